package pool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
	"github.com/perdure/perdure/internal/replay"
)

func bubble(t *testing.T, cfg pool.Config, test func(t *testing.T, e *engine)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(cfg)
		test(t, e)
		if !e.left {
			if err := e.close(time.Minute); err != nil {
				t.Error(err)
			}
		}
		if err := e.err(); err != nil {
			t.Error(err)
		}
		if n := e.p.Load(); n != 0 {
			t.Errorf("the load is %d", n)
		}
	})
}

func TestOutcomesAreReported(t *testing.T) {
	bubble(t, pool.Config{Slots: 1}, func(t *testing.T, e *engine) {
		for _, c := range []struct {
			name string
			do   func() (model.Payload, error)
			want func(r *model.TaskReport) bool
		}{
			{"success", succeed, func(r *model.TaskReport) bool { return r.Failure == nil && string(r.Output.Data) == "out" }},
			{"error", fail, func(r *model.TaskReport) bool { return r.Failure.Message == "boom" && !r.Failure.Permanent }},
			{"panic", panicNow, func(r *model.TaskReport) bool {
				return r.Failure.Kind == model.FailurePanic && strings.Contains(r.Failure.Stack, "panicNow")
			}},
			{"an error that panics", mute, func(r *model.TaskReport) bool {
				return r.Failure.Kind == model.FailurePanic && strings.Contains(r.Failure.Stack, "nobodysError")
			}},
			{"goexit", exitNow, func(r *model.TaskReport) bool { return r.Failure.Type == "runtime.Goexit" }},
			{"snooze", snooze, func(r *model.TaskReport) bool { return r.Returned && r.After == time.Minute && r.Failure == nil }},
			{"permanent", func() (model.Payload, error) {
				return model.Payload{}, replay.Permanent(errors.New("no"))
			}, func(r *model.TaskReport) bool { return r.Failure.Permanent }},
			{"retry after", func() (model.Payload, error) {
				return model.Payload{}, replay.RetryAfter(errors.New("busy"), time.Hour)
			}, func(r *model.TaskReport) bool { return r.RetryAfter == time.Hour && r.Failure.Message == "busy" }},
		} {
			r := e.claim("polite", model.TaskSpec{})
			if e.p.Load() != 1 {
				t.Fatalf("%s: the load is %d", c.name, e.p.Load())
			}
			e.finish(r, c.do)
			if got := e.reportOf(r); got == nil || !c.want(got) {
				t.Errorf("%s: %+v", c.name, got)
			}
		}
	})
}

func TestPolicyIsAsked(t *testing.T) {
	e := &engine{}
	worth := func(err error) bool {
		switch err.Error() {
		case "no":
			return false
		case "oops":
			panic("policy")
		}
		return true
	}

	run := func(_ context.Context, t *pool.Task) (model.Payload, error) {
		return model.Payload{}, errors.New(t.Claim().Spec.Queue)
	}

	bubble(t, pool.Config{Handlers: map[string]pool.Handler{"k": {Run: run, Worth: worth}}}, func(t *testing.T, got *engine) {
		e = got
		for text, permanent := range map[string]bool{"no": true, "yes": false, "oops": false} {
			r := e.reportOf(e.claim("k", model.TaskSpec{Queue: text}))
			if r.Failure.Permanent != permanent {
				t.Errorf("%s: %+v", text, r.Failure)
			}
			if text == "oops" && !strings.Contains(r.Failure.Message, "the policy panicked") {
				t.Error(r.Failure.Message)
			}
		}
	})
}

func TestTaskWithoutCodeIsGivenBack(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		r := e.reportOf(e.claim("unknown", model.TaskSpec{}))
		if r == nil || !r.Returned || r.Failure != nil || r.After <= 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestAttemptEndsInTime lets an attempt take longer than it may.
func TestAttemptEndsInTime(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		r := e.claim("polite", model.TaskSpec{ToClose: time.Minute})
		time.Sleep(time.Minute)
		synctest.Wait()
		got := e.reportOf(r)
		if got == nil || got.Failure == nil || got.Failure.Kind != model.FailureTimeout || got.Failure.Type != model.TimeoutToClose {
			t.Errorf("%+v", got)
		}
	})
}

// TestCancel cancels a running handler and a task that waits in line. The engine accepts the report
// of the handler. The task in line never starts.
func TestCancel(t *testing.T) {
	bubble(t, pool.Config{Slots: 1, Prefetch: 1}, func(t *testing.T, e *engine) {
		a, b := e.claim("polite", model.TaskSpec{}), e.claim("polite", model.TaskSpec{})
		for _, r := range []model.ClaimRef{b, a} {
			e.p.Stop(r, model.StopCanceled)
			synctest.Wait()
			if got := e.reportOf(r); got == nil || got.Failure == nil || got.Failure.Kind != model.FailureCanceled {
				t.Errorf("%s: %+v", r, got)
			}
		}

		if e.jobs[b] != nil {
			t.Error("the one in line has begun")
		}
		c := model.Claim{Ref: ref(99), Spec: &model.TaskSpec{Kind: "polite"}, Canceled: true}
		e.withLock(func() { e.claims[c.Ref] = &c })
		e.p.Execute([]model.Claim{c})
		synctest.Wait()
		if got := e.reportOf(c.Ref); got == nil || got.Failure.Kind != model.FailureCanceled || e.jobs[c.Ref] != nil {
			t.Errorf("cancelled before it was claimed: %+v", got)
		}
	})
}

// TestLostClaimIsNotReported takes claims away while their handlers run and while they wait in
// line. A handler that continues keeps its slot, so the pool asks the engine for fewer claims.
func TestLostClaimIsNotReported(t *testing.T) {
	bubble(t, pool.Config{Slots: 1, Prefetch: 1}, func(t *testing.T, e *engine) {
		a, b := e.claim("deaf", model.TaskSpec{}), e.claim("polite", model.TaskSpec{})
		e.take(b)
		e.take(a)
		if cause := context.Cause(e.jobs[a].ctx); !errors.Is(cause, pool.ErrLost) {
			t.Errorf("the context ended with %v", cause)
		}
		if e.p.Load() != 1 || e.slots != 1 {
			t.Errorf("load %d, %d slots", e.p.Load(), e.slots)
		}
		c := e.claim("polite", model.TaskSpec{})
		if e.jobs[c] != nil {
			t.Error("two handlers run in one slot")
		}
		e.finish(a, succeed)
		if e.jobs[c] == nil || e.slots != 2 {
			t.Errorf("the slot is not free again: %d slots", e.slots)
		}
		e.finish(c, succeed)
		if len(e.reports) != 1 || e.reports[0].Ref != c {
			t.Errorf("reports %+v", e.reports)
		}
	})
}

// TestBeats expects beats for all claims at a third of the shortest time-out, and no beats when no
// claim needs one.
func TestBeats(t *testing.T) {
	bubble(t, pool.Config{Slots: 1, Prefetch: 2}, func(t *testing.T, e *engine) {
		a := e.claim("polite", model.TaskSpec{})
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(e.beats) > 0 {
			t.Fatalf("%d beats of a claim that needs none", len(e.beats))
		}
		b := e.claim("polite", model.TaskSpec{Silence: 30 * time.Second})
		c := e.claim("polite", model.TaskSpec{Silence: 3 * time.Minute})
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if len(e.beats) != 6 || len(e.beats[0]) != 3 {
			t.Errorf("%d beats of %d claims", len(e.beats), len(e.beats[0]))
		}
		e.take(b)
		e.withLock(func() { e.beats = nil })
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if len(e.beats) != 1 || len(e.beats[0]) != 2 {
			t.Errorf("%d beats after the shortest has gone", len(e.beats))
		}

		e.withLock(func() {
			e.cancels[a], e.lost[c] = true, true
			delete(e.claims, c)
		})

		time.Sleep(time.Minute)
		synctest.Wait()
		if got := e.reportOf(a); got == nil || got.Failure.Kind != model.FailureCanceled {
			t.Errorf("the beat told that it is cancelled, and its report is %+v", got)
		}
		if e.jobs[c] != nil || e.p.Load() != 0 {
			t.Error("a claim that was lost has begun")
		}
		e.withLock(func() { e.beats = nil })
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(e.beats) > 0 {
			t.Errorf("%d beats of an idle pool", len(e.beats))
		}
	})
}

// TestBeatsAreSentAgain lets beats fail.
func TestBeatsAreSentAgain(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		e.withLock(func() { e.deaf = true })
		r := e.claim("polite", model.TaskSpec{Silence: 9 * time.Second})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if len(e.beats) != 4 { // after 3 s, and then each second
			t.Errorf("%d beats", len(e.beats))
		}
		e.withLock(func() { e.deaf = false })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(e.beats) != 8 { // one immediately, and then one every 3 s
			t.Errorf("%d beats", len(e.beats))
		}
		e.finish(r, succeed)
	})
}

// If a session answers fewer heartbeats than it got, the pool does not know which claims it still
// has. It executes its tasks and sends the heartbeats again.
func TestMissingAnswersToBeats(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		e.withLock(func() { e.terse = true })
		r := e.claim("polite", model.TaskSpec{Silence: 9 * time.Second})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		e.withLock(func() {
			if len(e.beats) != 4 { // after 3 s, and then each second
				t.Errorf("%d beats, want 4", len(e.beats))
			}
			e.terse = false
		})
		e.finish(r, succeed)
	})
}

// TestProgressJoinsTheNextBeat reports progress often: the pool sends the last value, at most once
// a second.
func TestProgressJoinsTheNextBeat(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprint(sealed), func(t *testing.T) {
			cfg := pool.Config{}
			if sealed {
				cfg.Seal = func(_ context.Context, kind string, p model.Payload) (model.Payload, error) {
					time.Sleep(10 * time.Millisecond)
					return model.Payload{Data: append([]byte(kind+" "), p.Data...), Encoding: "x"}, nil
				}
			}

			bubble(t, cfg, func(t *testing.T, e *engine) {
				r := e.claim("polite", model.TaskSpec{})
				var last string
				for i := range 40 {
					last = fmt.Sprint(i)
					if err := e.jobs[r].t.Progress(model.Payload{Data: []byte(last)}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(100 * time.Millisecond)
				}

				time.Sleep(time.Minute)
				synctest.Wait()
				if n := len(e.beats); n < 4 || n > 6 {
					t.Errorf("%d beats in 4 s", n)
				}
				if sealed {
					last = "polite " + last
				}
				if p := e.beats[len(e.beats)-1][0].Progress; p == nil || string(p.Data) != last {
					t.Errorf("the last progress is %v, want %s", p, last)
				}
				j := e.jobs[r]
				e.finish(r, succeed)
				if err := j.t.Progress(model.Payload{}); err == nil {
					t.Error("progress of a task that has ended")
				}
			})
		})
	}
}

// TestLastProgressIsToldBeforeTheReport lets attempts report progress, and then fail, snooze or go
// back. The next attempt starts with that progress. When an attempt succeeds, the pool drops its
// progress.
func TestLastProgressIsToldBeforeTheReport(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		for name, c := range map[string]struct {
			end  func(e *engine, r model.ClaimRef)
			tell bool
		}{
			"fails":     {func(e *engine, r model.ClaimRef) { e.finish(r, fail) }, true},
			"panics":    {func(e *engine, r model.ClaimRef) { e.finish(r, panicNow) }, true},
			"snoozes":   {func(e *engine, r model.ClaimRef) { e.finish(r, snooze) }, true},
			"shut down": {func(e *engine, _ model.ClaimRef) { _ = e.close(0) }, true},
			"succeeds":  {func(e *engine, r model.ClaimRef) { e.finish(r, succeed) }, false},
		} {
			t.Run(fmt.Sprint(name, " ", sealed), func(t *testing.T) {
				cfg := pool.Config{}
				if sealed {
					cfg.Seal = func(ctx context.Context, _ string, p model.Payload) (model.Payload, error) {
						time.Sleep(10 * time.Millisecond)
						return p, ctx.Err()
					}
				}

				bubble(t, cfg, func(t *testing.T, e *engine) {
					r := e.claim("polite", model.TaskSpec{})
					// the pool sends the first one immediately, and would send the others a second
					// later
					for i := range 3 {
						if err := e.jobs[r].t.Progress(model.Payload{Data: fmt.Append(nil, i)}); err != nil {
							t.Fatal(err)
						}
						synctest.Wait()
					}

					c.end(e, r)
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					if e.reportOf(r) == nil {
						t.Fatal("there is no report")
					}

					var last string
					for _, beat := range e.beats {
						if p := beat[0].Progress; p != nil {
							last = string(p.Data)
						}
					}

					if told := last == "2"; told != c.tell {
						t.Errorf("the last progress that was told is %q", last)
					}
				})
			})
		}
	}
}

// TestPanicInSealing lets the code that seals values panic. The pool drops that progress, and
// everything else continues.
func TestPanicInSealing(t *testing.T) {
	cfg := pool.Config{Seal: func(_ context.Context, _ string, p model.Payload) (model.Payload, error) {
		if string(p.Data) == "bad" {
			panic("no key")
		}
		return p, nil
	}}

	bubble(t, cfg, func(t *testing.T, e *engine) {
		r := e.claim("polite", model.TaskSpec{})
		for _, p := range []string{"bad", "good"} {
			if err := e.jobs[r].t.Progress(model.Payload{Data: []byte(p)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}

		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(e.beats) != 1 || string(e.beats[0][0].Progress.Data) != "good" {
			t.Errorf("%v was told", e.beats)
		}
		e.finish(r, fail)
		if e.reportOf(r) == nil {
			t.Error("there is no report")
		}
	})
}

// TestCloseTwice calls Close twice. Both calls return, whether all tasks end or one never ends.
func TestCloseTwice(t *testing.T) {
	for _, kind := range []string{"polite", "deaf"} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
				r := e.claim(kind, model.TaskSpec{})
				done := make(chan error, 2)
				go func() { done <- e.p.Close(context.Background()) }()
				synctest.Wait()
				go func() { done <- e.close(time.Minute) }()
				synctest.Wait()
				if kind == "polite" {
					e.finish(r, succeed)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if len(done) != 2 {
					t.Errorf("%d of 2 have come to an end", len(done))
				}
				if kind == "deaf" {
					e.finish(r, succeed)
				}
			})
		})
	}
}

// TestDrain lets running tasks finish and takes no new ones. Beats continue.
func TestDrain(t *testing.T) {
	bubble(t, pool.Config{Slots: 1, Prefetch: 1}, func(t *testing.T, e *engine) {
		a, b := e.claim("polite", model.TaskSpec{Silence: 3 * time.Second}), e.claim("polite", model.TaskSpec{})
		done := make(chan error)
		go func() { done <- e.close(time.Minute) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := e.reportOf(b); got == nil || !got.Returned {
			t.Errorf("what waits is not given back: %+v", got)
		}
		if e.slots != 0 || len(e.beats) < 9 {
			t.Errorf("%d slots, %d beats", e.slots, len(e.beats))
		}
		c := e.claim("polite", model.TaskSpec{}) // the engine sent it before the pool drained
		if got := e.reportOf(c); got == nil || !got.Returned {
			t.Errorf("what comes late is not given back: %+v", got)
		}
		e.finish(a, succeed)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := e.reportOf(a); got == nil || got.Failure != nil || got.Returned {
			t.Errorf("what ran: %+v", got)
		}
	})
}

// The error of Close counts the claims that the pool gave back. A lost claim is not one of them,
// although its handler still runs.
func TestCloseGivesNoLostClaimBack(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		lost, held := e.claim("deaf", model.TaskSpec{}), e.claim("deaf", model.TaskSpec{})
		e.take(lost)
		err := e.close(time.Minute)
		if want := "2 tasks ignore the end of their context, and their code still runs: deaf, deaf; the pool gave 1 of their claims back"; err == nil || err.Error() != want {
			t.Errorf("close: %v, want %s", err, want)
		}
		if r := e.reportOf(lost); r != nil {
			t.Errorf("the lost claim is reported: %+v", r)
		}
		e.finish(lost, succeed)
		e.finish(held, succeed)
	})
}

// The pool logs why the engine ignores an outcome. It logs nothing if the engine has stored the
// outcome.
func TestIgnoredOutcomeIsLoggedWithItsReason(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := pool.New(pool.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	p.Settle(ref(1), nil)
	if log.Len() != 0 {
		t.Errorf("a stored outcome is logged: %s", &log)
	}
	p.Settle(ref(2), fault.New(fault.Exhausted, "the output is too large"))
	if got := log.String(); !strings.Contains(got, "the engine ignores the outcome of a task") || !strings.Contains(got, "the output is too large") || strings.Contains(got, "too late") {
		t.Errorf("log: %s", got)
	}
}

// TestDrainGivesBack lets the time of a drain run out. The pool gives the claims back without using
// up an attempt, even the claim of a handler that continues.
func TestDrainGivesBack(t *testing.T) {
	bubble(t, pool.Config{}, func(t *testing.T, e *engine) {
		a, b := e.claim("polite", model.TaskSpec{}), e.claim("deaf", model.TaskSpec{})
		job := e.jobs[b]
		err := e.close(time.Minute)
		if err == nil || !strings.Contains(err.Error(), "1 tasks ignore") || !strings.Contains(err.Error(), "deaf") {
			t.Errorf("close: %v", err)
		}

		for _, r := range []model.ClaimRef{a, b} {
			if got := e.reportOf(r); got == nil || !got.Returned || got.Failure != nil {
				t.Errorf("%s: %+v", r, got)
			}
		}

		if cause := context.Cause(job.ctx); !errors.Is(cause, pool.ErrShutdown) {
			t.Errorf("the context ended with %v", cause)
		}
		e.finish(b, succeed) // has no effect
		if len(e.reports) != 2 {
			t.Errorf("%d reports", len(e.reports))
		}
	})
}

// TestWorkThatIsDoneCountsAfterTheDeadline has a handler that completes its work when its context
// ends.
func TestWorkThatIsDoneCountsAfterTheDeadline(t *testing.T) {
	run := func(ctx context.Context, _ *pool.Task) (model.Payload, error) {
		<-ctx.Done()
		return succeed()
	}
	bubble(t, pool.Config{Handlers: map[string]pool.Handler{"k": {Run: run}}}, func(t *testing.T, e *engine) {
		r := e.claim("k", model.TaskSpec{})
		if err := e.close(time.Second); err != nil {
			t.Error(err)
		}
		if got := e.reportOf(r); got == nil || got.Returned || string(got.Output.Data) != "out" {
			t.Errorf("%+v", got)
		}
	})
}

// TestFullEngine delays reports: beats continue, and the slot stays occupied.
func TestFullEngine(t *testing.T) {
	bubble(t, pool.Config{Slots: 1}, func(t *testing.T, e *engine) {
		e.full = make(chan struct{})
		r := e.claim("polite", model.TaskSpec{Silence: 3 * time.Second})
		e.finish(r, succeed)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(e.beats) < 9 || e.p.Load() != 1 {
			t.Errorf("%d beats, load %d", len(e.beats), e.p.Load())
		}
		close(e.full)
		synctest.Wait()
		if e.reportOf(r) == nil || e.p.Load() != 0 {
			t.Errorf("load %d", e.p.Load())
		}
	})
}

// TestHighMemoryAlone sets only a high mark. The default low mark must be one that a process can
// reach.
func TestHighMemoryAlone(t *testing.T) {
	var level atomic.Value
	level.Store(0.7)
	cfg := pool.Config{Slots: 10, HighMemory: 0.63}.WithMemory(func() float64 { return level.Load().(float64) })

	bubble(t, cfg, func(t *testing.T, e *engine) {
		e.finish(e.claim("polite", model.TaskSpec{}), succeed)
		for _, step := range []struct {
			level float64
			slots int
		}{{0.63, 0}, {0.57, 0}, {0.55, 10}} {
			level.Store(step.level)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if e.slots != step.slots {
				t.Errorf("memory %v: %d slots", step.level, e.slots)
			}
		}
	})
}

// TestMemoryFullOfGarbage fills the memory with garbage. Garbage does not shut the gate. A process
// whose gate is shut and that has no tasks collects the garbage that its last tasks left behind.
func TestMemoryFullOfGarbage(t *testing.T) {
	var used, garbage atomic.Int64 // in hundredths
	collections := atomic.Int64{}
	cfg := pool.Config{Slots: 10}.WithMemory(func() float64 { return float64(used.Load()+garbage.Load()) / 100 }).WithCollector(func() {
		collections.Add(1)
		garbage.Store(0)
	})

	bubble(t, cfg, func(t *testing.T, e *engine) {
		r := e.claim("polite", model.TaskSpec{})
		look := func(slots int, collected int64) {
			t.Helper()
			collections.Store(0)
			time.Sleep(7 * time.Second)
			synctest.Wait()
			if n := collections.Load(); e.slots != slots || n != collected {
				t.Errorf("used %d, garbage %d: %d slots and %d collections, want %d and %d", used.Load(), garbage.Load(), e.slots, n, slots, collected)
			}
		}

		used.Store(60)
		garbage.Store(25)
		look(10, 0)
		garbage.Store(35)
		look(10, 1)
		used.Store(95)
		look(0, 1)
		look(0, 0)
		used.Store(20)
		garbage.Store(75)
		e.finish(r, succeed)
		look(10, 1)
	})
}

// TestPressure fills the memory, and then the pool.
func TestPressure(t *testing.T) {
	var level atomic.Value
	level.Store(0.5)
	cfg := pool.Config{Slots: 10, HighLoad: 0.8, LowLoad: 0.5, HighMemory: 0.9, LowMemory: 0.7}.WithMemory(func() float64 { return level.Load().(float64) })

	bubble(t, cfg, func(t *testing.T, e *engine) {
		var rs []model.ClaimRef
		for range 7 {
			rs = append(rs, e.claim("polite", model.TaskSpec{}))
		}

		for _, step := range []struct {
			level float64
			slots int
		}{{0.89, 10}, {0.9, 0}, {0.75, 0}, {0.7, 10}, {0.8, 10}} {
			level.Store(step.level)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if e.slots != step.slots {
				t.Errorf("memory %v: %d slots", step.level, e.slots)
			}
		}

		rs = append(rs, e.claim("polite", model.TaskSpec{}))
		if e.slots != 0 {
			t.Errorf("load 8 of 10: %d slots", e.slots)
		}

		for i, want := range []int{0, 0, 10, 10} {
			e.finish(rs[i], succeed)
			if e.slots != want {
				t.Errorf("load %d of 10: %d slots", e.p.Load(), e.slots)
			}
		}

		e.p.Pause()
		synctest.Wait()
		if e.slots != 0 {
			t.Errorf("paused: %d slots", e.slots)
		}
		e.p.Resume()
		synctest.Wait()
		if e.slots != 10 {
			t.Errorf("resumed: %d slots", e.slots)
		}
		level.Store(1.0)
		time.Sleep(3 * time.Second)
		for _, r := range rs[4:] {
			e.finish(r, succeed)
		}
		level.Store(0.1) // the pool still looks at the memory while it is idle
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if e.slots != 10 {
			t.Errorf("%d slots", e.slots)
		}
		if slices.Contains(e.told, 10) && len(e.told) > 8 {
			t.Errorf("the engine is told too often: %v", e.told)
		}
	})
}

// TestIdlePoolCostsNothing checks that no timer wakes an idle pool.
func TestIdlePoolCostsNothing(t *testing.T) {
	bubble(t, pool.Config{Slots: 1000}, func(t *testing.T, e *engine) {
		r := e.claim("polite", model.TaskSpec{Silence: 30 * time.Second})
		e.finish(r, succeed)
		time.Sleep(100 * 365 * 24 * time.Hour)
		if len(e.beats) > 0 {
			t.Errorf("%d beats", len(e.beats))
		}
	})
}
