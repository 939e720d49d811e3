package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// After a restart the engine does not repeat steps that are in the history, sleeps end at their
// original time, and code gets the same error of an activity (entities-workflows §17.5; reliability
// F10).
func TestReopen(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		var ran atomic.Int64
		wake := perdure.NewSignal[string]("wake")
		w := perdure.NewWorkflow("long", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
			first, err := perdure.Do(ctx, "first", func(context.Context) (int64, error) { return ran.Add(1), nil })
			if err != nil {
				return "", err
			}

			_, failed := perdure.Do(ctx, "fail", func(ctx context.Context) (int, error) {
				ran.Add(1)
				return 0, fmt.Errorf("attempt %d", perdure.Attempt(ctx))
			}, perdure.Constant(3, time.Millisecond))

			if err := ctx.Sleep(1500 * time.Millisecond); err != nil {
				return "", err
			}
			word, err := wake.Receive(ctx)
			if err != nil {
				return "", err
			}

			last, err := perdure.Do(ctx, "last", func(context.Context) (int64, error) { return ran.Add(1), nil })
			return fmt.Sprintf("%d, %v, %s, %d", first, failed, word, last), err
		})

		app := s.open(w)
		c := caller(t, app)
		exec := mustStart(t, c, w, "", perdure.RawKey("k"))
		reason(t, app, exec, "waits for a timer")
		app = s.reopen(app, w) // while it sleeps
		reason(t, app, exec, "waits for signal wake")
		app = s.reopen(app, w) // while it waits
		c = caller(t, app)
		if err := wake.Send(c, exec, "up"); err != nil {
			t.Fatal(err)
		}

		got, err := exec.Result(c)
		equal(t, "result", got, err, "1, attempt 3, up, 5")
		if n := ran.Load(); n != 5 {
			t.Errorf("bodies ran %d times, want 5", n)
		}
		app = s.reopen(app, w)
		got, err = w.Run(caller(t, app), "", perdure.RawKey("k"))
		equal(t, "the result of one that ended in another life", got, err, "1, attempt 3, up, 5")
	})
}

// If the code no longer fits the history, the execution is blocked. Its reason names the recorded
// step and the step of the code, and no further step runs. The execution continues with code that
// fits (docs/guarantees.md).
func TestChangedCode(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		wake := perdure.NewSignal[int]("wake")
		ran := map[string]int{}
		var mu sync.Mutex
		w := perdure.DeclareWorkflow[string, string]("changing")
		code := func(first string) perdure.Binding {
			return w.Bind(func(ctx perdure.WorkflowCtx, _ string) (string, error) {
				for _, name := range []string{first, "second"} {
					_, err := perdure.Do(ctx, name, func(context.Context) (int, error) {
						mu.Lock()
						defer mu.Unlock()
						ran[name]++
						return 0, nil
					})
					if err != nil {
						return "", err
					}
					if _, err := wake.Receive(ctx); err != nil {
						return "", err
					}
				}
				return "done", nil
			})
		}
		fine := perdure.NewWorkflow("fine", func(perdure.WorkflowCtx, string) (string, error) { return "fine", nil })
		app := s.open(code("charge"), fine)
		exec := mustStart(t, caller(t, app), w, "", perdure.RawKey("k"))
		reason(t, app, exec, "waits for signal wake")

		app = s.reopen(app, code("refund"), fine)
		c := caller(t, app)
		if err := wake.Send(c, exec, 1); err != nil {
			t.Fatal(err)
		}
		info := reason(t, app, exec, "replay mismatch")
		for _, name := range []string{"charge", "refund", "life_test.go:"} {
			if !strings.Contains(info.Reason, name) {
				t.Errorf("reason %q does not name %q", info.Reason, name)
			}
		}
		if !info.Status.Open() {
			t.Errorf("a mismatch made the execution %s", info.Status)
		}
		got, err := fine.Run(c, "", perdure.RawKey("k"))
		equal(t, "another execution", got, err, "fine")

		app = s.reopen(app, code("charge"), fine)
		c = caller(t, app)
		if err := wake.Send(c, exec, 2); err != nil {
			t.Fatal(err)
		}
		got, err = exec.Result(c)
		equal(t, "result with the old code", got, err, "done")
		if ran["charge"] != 1 || ran["refund"] != 0 || ran["second"] != 1 {
			t.Errorf("steps ran %v", ran)
		}
	})
}

// entities-workflows §17.10 and §17.14: a thousand waiting executions need no goroutine and little
// memory, and do not delay the end of the process.
//
//nolint:paralleltest // counts goroutines of the process
func TestParkedExecutionsCostNothing(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newSite(t, kind)
			s.cfg.IdleAfter = 20 * time.Millisecond
			wake := perdure.NewSignal[int]("wake")

			w := perdure.NewWorkflow("parked", func(ctx perdure.WorkflowCtx, i int) (int, error) {
				if i%2 == 0 {
					return i, ctx.Sleep(time.Hour)
				}
				// This is one more goroutine while the run is in memory.
				both := perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) { return wake.Receive(ctx) })
				return both.Get(ctx)
			})

			app := s.open(w)
			c := caller(t, app)
			const n = 1000

			begin := func(prefix string) {
				var wg sync.WaitGroup
				for part := range 10 {
					wg.Go(func() {
						for i := part; i < n; i += 10 {
							if _, err := w.Start(c, i, perdure.RawKey(prefix+strconv.Itoa(i))); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
			}

			begin("warm-") // so that buffers have their final size
			settled := func() (goroutines int, memory uint64) {
				eventually(t, "everything is unloaded", func() bool {
					buf := make([]byte, 4<<20)
					return !strings.Contains(string(buf[:runtime.Stack(buf, true)]), "replay.(*Coroutine)")
				})
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return runtime.NumGoroutine(), m.HeapAlloc
			}

			before, heap := settled()
			begin("")
			after, more := settled()
			each := (int64(more) - int64(heap)) / n
			t.Logf("%d goroutines before, %d after; %d bytes for each", before, after, each)
			if after > before+10 {
				t.Errorf("%d parked executions left %d goroutines, there were %d", n, after, before)
			}

			// The memory store keeps everything on the heap.
			if kind != "memory" && each > 1024 {
				t.Errorf("a parked execution costs %d bytes, want at most 1024", each)
			}
			if got := list(t, app, `status = "open"`); len(got) != 2*n {
				t.Errorf("%d executions are open, want %d", len(got), 2*n)
			}
			exec := w.Execution(perdure.RawKey("501"))
			if err := wake.Send(c, exec, 501); err != nil {
				t.Fatal(err)
			}

			got, err := exec.Result(c)
			equal(t, "one of them", got, err, 501)
			if err := app.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A lane has only the next timers in memory. It reads the later timers from the store in time,
// again and again (reliability F9).
func TestTimersBeyondTheWindow(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		const n = 40
		nap := perdure.NewWorkflow("nap", func(ctx perdure.WorkflowCtx, d time.Duration) (time.Duration, error) {
			from := ctx.Now()
			err := ctx.Sleep(d)
			return ctx.Now().Sub(from), err
		})

		nd, err := node.Open(t.Context(), node.Config{
			URL: s.url, AllowUnsafe: true, Lane: lane.Config{TimerHorizon: 50 * time.Millisecond, TimerWindow: 3},
		})
		if err != nil {
			t.Fatal(err)
		}
		app, err := attach.Embed(t.Context(), attach.Config{Backend: nd.Backend(), Tenant: model.DefaultTenant, OnClose: nd.Close, IdleAfter: time.Millisecond}, nap)
		if err != nil {
			t.Fatal(err)
		}

		defer app.Close()
		c := caller(t, app)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				// The timers are due within a second, in random order.
				d := time.Duration(1+i*25%n) * 25 * time.Millisecond
				slept, err := nap.Run(c, d, perdure.RawKey(strconv.Itoa(i)))
				if err != nil || slept < d || slept > d+patience {
					t.Errorf("a sleep of %s took %s, %v", d, slept, err)
				}
			})
		}

		wg.Wait()
	})
}

// Callers that wait when the app closes get an error. Nothing hangs, and a closed app reports that
// it is closed.
func TestCloseWithCallers(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		wake := perdure.NewSignal[string]("wake")
		w := perdure.NewWorkflow("wait", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return wake.Receive(ctx) })
		app := s.open(w)
		c := app.With(t.Context()) // without its own deadline

		heard := make(chan error, 3)
		for i := range cap(heard) {
			exec := mustStart(t, c, w, "", perdure.RawKey(strconv.Itoa(i)))
			reason(t, app, exec, "waits for signal wake")
			go func() {
				_, err := exec.Result(c)
				heard <- err
			}()
		}

		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		for range cap(heard) {
			select {
			case err := <-heard:
				wantError(t, "a caller that waits when the app closes", err, perdure.ErrUnavailable, "wait/")
			case <-time.After(patience):
				t.Fatal("a caller waits forever after the app has closed")
			}
		}

		calls := map[string]func() error{
			"start":  func() error { _, err := w.Start(c, "", perdure.RawKey("late")); return err },
			"signal": func() error { return wake.Send(c, w.Execution(perdure.RawKey("0")), "") },
			"result": func() error { _, err := w.Execution(perdure.RawKey("0")).Result(c); return err },
		}
		for what, call := range calls {
			done := make(chan error, 1)
			go func() { done <- call() }()
			select {
			case err := <-done:
				wantError(t, what+" after the close", err, perdure.ErrUnavailable)
			case <-time.After(patience):
				t.Fatalf("%s hangs after the app has closed", what)
			}
		}

		if err := app.Close(); err != nil {
			t.Errorf("a second close: %v", err)
		}
	})
}

// Close waits for a running step and keeps its outcome: the next process does not repeat it.
func TestCloseWaitsForSteps(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		began, finish := make(chan struct{}), make(chan struct{})
		var ran atomic.Int64
		w := perdure.NewWorkflow("slow", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
			_, err := perdure.Do(ctx, "step", func(context.Context) (int, error) {
				ran.Add(1)
				close(began)
				<-finish
				return 0, nil
			})
			return "done", err
		})

		app := s.open(w)
		exec := mustStart(t, caller(t, app), w, "", perdure.RawKey("k"))
		<-began
		closed := make(chan error, 1)
		go func() { closed <- app.Close() }()

		select {
		case err := <-closed:
			t.Fatalf("closed (%v) while a step runs", err)
		case <-time.After(100 * time.Millisecond):
			// If Close did not wait, it would have returned by now.
		}

		close(finish)
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		app = s.open(w)
		got, err := exec.Result(caller(t, app))
		equal(t, "result", got, err, "done")
		if n := ran.Load(); n != 1 {
			t.Errorf("the step ran %d times", n)
		}
	})
}

// A step that does not end in time does not keep the app from closing. Close abandons the step, and
// the next process runs it again.
func TestCloseAbandonsStepsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		s.cfg.DrainTimeout = 100 * time.Millisecond
		var ran atomic.Int64
		began := make(chan struct{}, 2)

		w := perdure.NewWorkflow("endless", func(ctx perdure.WorkflowCtx, _ string) (int64, error) {
			return perdure.Do(ctx, "step", func(c context.Context) (int64, error) {
				n := ran.Add(1)
				began <- struct{}{}
				if n == 1 {
					<-c.Done() // ends when its context is cancelled
				}
				return n, c.Err()
			})
		})

		app, err := s.cfg.Open(t.Context(), s.url, w)
		if err != nil {
			t.Fatal(err)
		}
		exec := mustStart(t, caller(t, app), w, "", perdure.RawKey("k"))
		<-began
		// Close returns although the step has not returned.
		if err := app.Close(); err != nil && !errors.Is(err, perdure.ErrTimeout) {
			t.Logf("close: %v", err)
		}
		app = s.open(w)
		got, err := exec.Result(caller(t, app))
		equal(t, "result", got, err, 2)
	})
}

// If an attempt is due when its execution leaves memory, the attempt runs once. It does not run
// both before and after the execution leaves memory.
func TestUnloadingRepeatsNoAttempt(t *testing.T) {
	t.Parallel()
	for i := range 40 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "memory")
			s.cfg.IdleAfter = time.Nanosecond
			attempts(t, s)
		})
	}
}
