package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// TestUnload checks that goroutines end at the calls in which they are parked. They end in reverse
// order and run their deferred functions, but no code after the call.
func TestUnload(t *testing.T) {
	var log []string
	var mu sync.Mutex
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		x.Cleanup(false, func(replay.Ctx) error { log = append(log, "Cleanup"); return nil })
		for i := range 3 {
			x.Go(func(y replay.Ctx) (any, error) {
				defer func() { log = append(log, fmt.Sprintf("defer %d", i)) }()
				defer func() {
					for { // the durable call ends the loop
						_ = y.Sleep(time.Hour)
					}
				}()
				for {
					func() {
						defer func() { _ = recover() }() // no effect: Goexit is not a panic
						_ = y.Sleep(time.Hour)
					}()
				}
			})
		}

		mu.Lock()
		defer mu.Unlock()
		defer func() {
			log = append(log, "root")
			panic("in a deferred function")
		}()

		err := x.Get(x.Next("never"))
		log = append(log, "ran on")
		return "", err
	}, func(e *engine) {
		e.settle()
		e.w.Evict(e.start.Run, e.gen, "idle")
		synctest.Wait()
		if got, want := strings.Join(log, ", "), "defer 2, defer 1, defer 0, root"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if !mu.TryLock() {
			t.Error("the mutex is held")
		}
		mu.Unlock()
		if n := e.w.LoadedRuns(); n != 0 {
			t.Errorf("%d runs are loaded", n)
		}
	})
}

// TestUnloadThatDoesNotEnd expects a log entry with the stack of a deferred function that blocks.
func TestUnloadThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		free := make(chan struct{})
		e := newEngine(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			defer func() { <-free }()
			return model.Payload{}, x.Sleep(time.Hour)
		})

		e.cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		e.activate(-1)
		e.settle()
		e.w.Evict(e.start.Run, e.gen, "idle")
		pass(time.Minute)
		if s := logged.String(); !strings.Contains(s, "does not end") || !strings.Contains(s, "unload_test.go") || !strings.Contains(s, "chan receive") {
			t.Errorf("log: %s", s)
		}
		close(free)
		e.stop()
	})
}

func TestIdleRunsAreReleased(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		if _, err := e.step(x, "a"); err != nil {
			return "", err
		}
		f := x.Next("go")
		return "woken", x.Get(f)
	}, func(e *engine) {
		pass(time.Minute)
		if e.isReleased() {
			t.Fatal("released while a body runs")
		}
		e.settle()
		pass(4 * time.Second)
		if e.isReleased() {
			t.Fatal("released too early")
		}

		pass(2 * time.Second)
		if !e.isReleased() || e.waits[0].Code != model.WaitSignal {
			t.Fatalf("released %v, waits %v", e.isReleased(), e.waits)
		}
		e.signal("go", "1")
		e.deliver(1) // an event has arrived, so the run stays
		e.settle()
		e.wantClosed(t, model.Completed, "woken")
	})
}

// TestLongStepIsSaid expects that the worker reports what a run waits for when the wait takes long,
// even if there is nothing to record.
func TestLongStepIsSaid(t *testing.T) {
	bothWays(t, func(e *engine, x replay.Ctx) (string, error) {
		return e.step(x, "long")
	}, func(t *testing.T, e *engine) {
		pass(2 * time.Second)
		e.applyAll()
		if len(e.waits) == 0 || e.waits[0] != (model.Reason{Code: model.WaitStep, Name: "long"}) {
			t.Errorf("waits %v", e.waits)
		}
		if e.commits > 2 {
			t.Errorf("said %d times", e.commits)
		}
		e.settle()
		e.wantClosed(t, model.Completed, "out-long")
	})
}

// TestBlockingCodeIsSaid expects a report of workflow code that blocks outside of durable calls,
// with its stack.
func TestBlockingCodeIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		e := newEngine(func(replay.Ctx, model.Payload) (model.Payload, error) {
			<-free
			return payload("went on"), nil
		})

		e.activate(-1)
		pass(5 * time.Second)
		e.applyAll()

		if len(e.waits) == 0 || e.waits[0].Code != model.WaitStuck || !strings.Contains(e.waits[0].Detail, "unload_test.go") ||
			!strings.Contains(e.waits[0].Detail, "chan receive") {
			t.Errorf("waits %v", e.waits)
		}

		if e.commits != 1 {
			t.Errorf("said %d times", e.commits)
		}
		close(free)
		synctest.Wait()
		e.settle()
		e.stop()
		e.wantClosed(t, model.Completed, "went on")
	})
}

// TestCodeAfterALongBodyIsNotStuck runs code that takes half a second after a step of a minute. The
// worker must not count the minute as time in which the code was stuck.
func TestCodeAfterALongBodyIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		e := newEngine(func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			_, err := x.Step(&replay.Step{Name: "long", Body: func(context.Context) (model.Payload, error) {
				time.Sleep(time.Minute)
				return payload("done"), nil
			}})
			<-free
			return payload("end"), err
		})

		e.activate(-1)
		pass(time.Minute + 500*time.Millisecond)
		e.applyAll()
		if len(e.waits) != 1 || e.waits[0] != (model.Reason{Code: model.WaitStep, Name: "long"}) {
			t.Errorf("waits %v", e.waits)
		}
		close(free)
		synctest.Wait()
		e.settle()
		e.stop()
		e.wantClosed(t, model.Completed, "end")
	})
}

// many is a session for many runs. It only counts what it receives.
type many struct {
	mu       sync.Mutex
	w        *replay.Worker
	released []byte
}

func (s *many) Report(context.Context, model.Turn) error { return nil }

func (s *many) Release(run model.RunID, gen uint64, _ int64, _ []model.Reason) {
	s.mu.Lock()
	s.released = append(s.released, run[0])
	s.mu.Unlock()
	s.w.Evict(run, gen, "released")
}

// Answer is part of the session.
//
//arch:parameters the signature of api.Session
func (s *many) Answer(model.RunID, uint64, uint64, model.Payload, *model.Failure) {}

func (s *many) Leave(context.Context) error { return nil }

func TestLeastRecentlyUsedRunsAreReleasedAboveTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &many{}
		s.w = replay.NewWorker(replay.Config{MaxLoaded: 3, IdleAfter: time.Hour, Code: map[string]replay.Code{
			"wf": func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
				for {
					if err := x.Get(x.Next("s")); err != nil {
						return model.Payload{}, err
					}
				}
			},
		}})

		s.w.Serve(s)
		start := func(n byte) {
			s.w.Activate(&api.Activation{Start: &model.Start{Address: model.Address{Type: "wf"}, Run: model.RunID{n}, At: 1}, Generation: 1, Now: 1})
			pass(time.Second)
		}
		for n := range byte(3) {
			start(n)
		}
		s.w.Deliver(model.RunID{0}, 1, []model.Event{{Seq: 1, Kind: model.EventSignalReceived, Name: "other"}})
		start(3)
		start(4)
		if got := string(s.released); got != "\x01\x02" {
			t.Errorf("released %q", got)
		}
		if s.w.LoadedRuns() != 3 {
			t.Errorf("%d are loaded", s.w.LoadedRuns())
		}
		if err := s.w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseDrains checks that Close gives parked runs back, lets a running body finish, and begins
// no new one.
func TestCloseDrains(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		beside(x)
		return "", steps("a", "b")(e, x)
	}, func(e *engine) {
		e.w.Freeze()
		e.letGo(0)
		e.settle()
		if len(e.bodies) > 0 || e.kinds() != "step_completed a" {
			t.Errorf("bodies %d, history %s", len(e.bodies), e.kinds())
		}
		if e.isReleased() {
			t.Error("a run with work to do was released")
		}
	})
}

// TestEvictAtEveryMoment evicts a run at every moment of its life. It need not check for goroutines
// that are left over: goleak and the bubble of every test do that.
func TestEvictAtEveryMoment(t *testing.T) {
	for moment := range 40 {
		synctest.Test(t, func(t *testing.T) {
			s := newSim([]op{{Kind: "step"}, {Kind: "par", M: 2, Body: []op{{Kind: "step"}, {Kind: "recvT"}}}, {Kind: "race", N: 1, M: 3}, {Kind: "now"}}, nil, false)
			s.signals, s.cancels = 0, 0
			s.e.activate(-1)
			for range moment {
				if as := s.actions(); len(as) > 0 {
					as[0]()
				}
			}
			s.e.w.Evict(s.e.start.Run, s.e.gen, "moment")
			s.e.stop()
			if err := s.e.err(); err != nil {
				t.Error(err)
			}
		})
	}
}
