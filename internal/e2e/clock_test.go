package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crash"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/sqlite"
)

const aDay = 24 * time.Hour

// steered is a store whose clock can be moved and whose renewals can be slow.
type steered struct {
	store.Store
	ahead atomic.Int64 // how far the clock is ahead of the real time
	back  atomic.Int64 // how long answers to renewals take

	commits atomic.Int64
	deaf    atomic.Bool // the store does not answer renewals
}

func (s *steered) shift(v *store.View) {
	ahead := time.Duration(s.ahead.Load())
	v.Now = v.Now.Add(ahead)
	for i := range v.Members {
		v.Members[i].Expires = v.Members[i].Expires.Add(ahead)
	}
}

func (s *steered) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	r, err := s.Store.Register(ctx, n, lanes, ttl)
	r.Now = r.Now.Add(time.Duration(s.ahead.Load()))
	time.Sleep(time.Duration(s.back.Load()))

	return r, err
}

func (s *steered) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	if s.deaf.Load() {
		<-ctx.Done()
		return store.View{}, store.Errorf(store.Away, "renew", "%w", ctx.Err())
	}
	v, err := s.Store.Renew(ctx, r)
	s.shift(&v)
	time.Sleep(time.Duration(s.back.Load()))

	return v, err
}

func (s *steered) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	s.commits.Add(1)
	return s.Store.Commit(ctx, b)
}

func (s *steered) move(d time.Duration) { s.ahead.Add(int64(d)) }

// lines collects the log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.buf.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()

	return strings.Count(l.buf.String(), text)
}

var look = perdure.NewActivity("look", func(context.Context, perdure.Void) (time.Time, error) { return time.Now(), nil })

// nap runs a step, sleeps and runs another step. It returns the time between the two steps,
// measured with a clock that does not depend on the store.
func nap(ctx perdure.WorkflowCtx, d time.Duration) (time.Duration, error) {
	before, err := look.Run(ctx, perdure.Void{})
	if err != nil {
		return 0, err
	}
	if err := ctx.Sleep(d); err != nil {
		return 0, err
	}
	after, err := look.Run(ctx, perdure.Void{})

	return after.Sub(before), err
}

// rig is a process on a steered store.
type rig struct {
	*crash.Process
	st   *steered
	log  *lines
	nap  *perdure.Workflow[time.Duration, time.Duration]
	gate *perdure.Workflow[time.Duration, time.Duration]
	n    int
}

var opens = perdure.NewSignal[perdure.Void]("open")

func openRig(t *testing.T, st *steered, cfg engine.Config) *rig {
	t.Helper()
	r := &rig{st: st, log: &lines{}}
	r.nap = perdure.NewWorkflow("nap", func(ctx perdure.WorkflowCtx, d time.Duration) (time.Duration, error) { return nap(ctx, d) })
	r.gate = perdure.NewWorkflow("gate", func(ctx perdure.WorkflowCtx, d time.Duration) (time.Duration, error) {
		if _, err := opens.Receive(ctx); err != nil {
			return 0, err
		}

		return nap(ctx, d)
	})
	cfg.Log = slog.New(slog.NewTextHandler(r.log, nil))
	p, err := crash.Open(crash.Config{Store: st, Engine: cfg, Patience: time.Minute}, r.nap, r.gate)
	if err != nil {
		t.Fatal(err)
	}
	r.Process = p

	return r
}

func (r *rig) close(t *testing.T) {
	t.Helper()
	if _, err := r.Close(); err != nil {
		t.Error(err)
	}
}

// naps checks that a sleep of d lasts d, within the error that docs/time.md allows.
func (r *rig) naps(t *testing.T, when string, d time.Duration) {
	t.Helper()
	r.n++
	ctx, cancel := context.WithTimeout(t.Context(), 2*d+time.Minute)
	defer cancel()
	got, err := r.nap.Run(r.App.With(ctx), d, perdure.RawKey(fmt.Sprint("n", r.n)))
	if least, most := d-d/200-5*time.Millisecond, d+d/9+50*time.Millisecond; err != nil || got < least || got > most {
		t.Errorf("%s: a sleep of %s lasted %s, %v", when, d, got, err)
	}
}

func memories(*testing.T) store.Store { return memory.New(memory.Options{}) }

func files(t *testing.T) store.Store {
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "clock.db")})
	if err != nil {
		t.Fatal(err)
	}

	return st
}

// inTime runs a test in virtual time on the memory store and on a file.
func inTime(t *testing.T, test func(t *testing.T, st *steered)) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) store.Store{"memory": memories, "sqlite": files} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := &steered{Store: open(t)}
				test(t, st)
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Some renewals get slow answers and others get quick ones. No sleep becomes shorter.
func TestSleepBesideSlowRenewals(t *testing.T) {
	inTime(t, func(t *testing.T, st *steered) {
		r := openRig(t, st, engine.Config{})
		defer r.close(t)
		for i := range 20 {
			st.back.Store(int64(1500*time.Millisecond) * int64(i%2))
			time.Sleep(2300 * time.Millisecond)
			r.naps(t, fmt.Sprint("round ", i), 1740*time.Millisecond)
		}
		if n := r.log.count("has jumped"); n != 0 {
			t.Errorf("%d jumps were noticed", n)
		}
	})
}

// The first answers of the store are slow. Sleeps do not become shorter when quick answers correct
// the time.
func TestSleepAfterSlowStart(t *testing.T) {
	inTime(t, func(t *testing.T, st *steered) {
		st.back.Store(int64(1500 * time.Millisecond))
		r := openRig(t, st, engine.Config{})
		defer r.close(t)
		r.n++
		run, err := r.nap.Start(r.App.With(t.Context()), 1740*time.Millisecond, perdure.RawKey("a"))
		if err != nil {
			t.Fatal(err)
		}
		st.back.Store(0)
		if got, err := run.Result(r.App.With(t.Context())); err != nil || got < 1730*time.Millisecond {
			t.Errorf("a sleep of 1.74s lasted %s, %v", got, err)
		}
	})
}

// The store's clock jumps for a while, or permanently. Sleeps before, during and after the jump
// last as long as they should.
func TestSleepBesideJumps(t *testing.T) {
	for _, jump := range []struct{ by, lasts time.Duration }{
		{aDay, 10 * time.Second},
		{31 * aDay, 3 * time.Minute},
		{-aDay, 10 * time.Second},
		{-5 * time.Hour, 20 * time.Minute},
		{5 * time.Hour, 20 * time.Minute},
		{-3 * time.Second, 5 * time.Minute},
		{3 * time.Second, 5 * time.Minute},
	} {
		t.Run(fmt.Sprint(jump.by, " for ", jump.lasts), func(t *testing.T) {
			inTime(t, func(t *testing.T, st *steered) {
				r := openRig(t, st, engine.Config{})
				defer r.close(t)
				r.naps(t, "before", time.Second)
				began := time.Now()
				long, err := r.nap.Start(r.App.With(t.Context()), 8*time.Minute, perdure.RawKey("long"))
				if err != nil {
					t.Fatal(err)
				}

				st.move(jump.by)
				for time.Since(began) < jump.lasts {
					time.Sleep(min(jump.lasts/4, 30*time.Second))
					r.naps(t, fmt.Sprint(time.Since(began), " after the jump"), time.Second)
				}

				st.move(-jump.by)
				for range 5 {
					r.naps(t, "after it", time.Second)
					time.Sleep(3 * time.Minute)
				}

				if got, err := long.Result(r.App.With(t.Context())); err != nil || got < 8*time.Minute*199/200 || got > 9*time.Minute {
					t.Errorf("a sleep of 8m lasted %s, %v", got, err)
				}
				if n := r.log.count("has jumped"); n > 2 {
					t.Errorf("%d jumps were noticed", n)
				}
			})
		})
	}
}

// A process opens while the store's clock is wrong. Sleeps last as long as they should, also in
// executions that started at that time and continue when the clock is right again.
func TestOpenedDuringAJump(t *testing.T) {
	inTime(t, func(t *testing.T, st *steered) {
		st.move(aDay)
		r := openRig(t, st, engine.Config{})
		r.naps(t, "during the jump", time.Second)
		if _, err := r.gate.Start(r.App.With(t.Context()), time.Second, perdure.RawKey("g")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		st.move(-aDay)
		time.Sleep(3 * time.Second)
		r.naps(t, "after it", time.Second)
		time.Sleep(15 * time.Minute)
		r.naps(t, "long after it", time.Second)
		r.close(t)

		r = openRig(t, st, engine.Config{})
		defer r.close(t)
		c := r.App.With(t.Context())
		if err := opens.Send(c, r.gate.Execution(perdure.RawKey("g")), perdure.Void{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		got, err := r.gate.Execution(perdure.RawKey("g")).Result(c)
		waited := time.Since(began)
		if err != nil || got < time.Second || got > 2*time.Second || waited > 3*time.Second {
			t.Errorf("a sleep of 1s of a history that is ahead lasted %s for the workflow and %s for its caller: %v", got, waited, err)
		}
	})
}

// The machine is suspended for longer than the lease. The node commits nothing before it has
// renewed its lease, timers that came due during the suspension fire, and the node reports no clock
// jump.
func TestSuspend(t *testing.T) {
	inTime(t, func(t *testing.T, st *steered) {
		var asleep atomic.Int64
		r := openRig(t, st, engine.Config{Suspended: func() time.Duration { return time.Duration(asleep.Load()) }})
		defer r.close(t)
		c := r.App.With(t.Context())
		sleeper, err := r.nap.Start(c, time.Hour, perdure.RawKey("sleeper"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.gate.Start(c, time.Second, perdure.RawKey("g")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)

		// The suspend: two hours pass, but not for the process.
		st.deaf.Store(true)
		asleep.Store(int64(2 * time.Hour))
		st.move(2 * time.Hour)
		before := st.commits.Load()
		sent := make(chan error, 1)
		go func() { sent <- opens.Send(c, r.gate.Execution(perdure.RawKey("g")), perdure.Void{}) }()
		time.Sleep(3 * time.Second)
		if n := st.commits.Load() - before; n != 0 {
			t.Errorf("%d commits under a lease that is over", n)
		}

		st.deaf.Store(false)
		if err := <-sent; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := sleeper.Result(r.App.With(ctx)); err != nil {
			t.Errorf("a sleep that ended during the suspend: %v", err)
		}
		r.naps(t, "after the suspend", time.Second)
		if n := r.log.count("has jumped"); n != 0 {
			t.Errorf("%d jumps were noticed", n)
		}
		if n := r.log.count("was suspended"); n != 1 {
			t.Errorf("%d suspends were noticed", n)
		}
	})
}

// A jump by a month for three minutes removes no run and forgets no request id, in a process that
// was running before the jump or that opens during it.
func TestJumpDeletesNothing(t *testing.T) {
	for name, opened := range map[string]bool{"running": false, "opened during it": true} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, st *steered) {
				r := openRig(t, st, engine.Config{})
				defer func() { r.close(t) }()
				c := r.App.With(t.Context())
				if !opened {
					time.Sleep(time.Hour)
				}
				if _, err := r.nap.Start(c, time.Second, perdure.RawKey("a"), perdure.RequestID("once")); err != nil {
					t.Fatal(err)
				}

				time.Sleep(4 * time.Minute)
				if opened {
					r.close(t)
				}
				st.move(31 * aDay)

				if opened {
					r = openRig(t, st, engine.Config{})
					c = r.App.With(t.Context())
				}

				time.Sleep(3 * time.Minute)
				st.move(-31 * aDay)
				time.Sleep(20 * time.Minute)
				got, err := r.nap.Execution(perdure.RawKey("a")).Result(c)
				if err != nil || got < time.Second {
					t.Errorf("the run of before the jump: %s, %v", got, err)
				}
				if _, err := r.nap.Start(c, time.Hour, perdure.RawKey("a"), perdure.RequestID("once")); err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.AlreadyExists) {
					t.Errorf("the request again: %v", err)
				}
				if n, err := st.Count(t.Context(), store.Query{Tenant: model.DefaultTenant, AllRuns: true}); err != nil || n != 1 {
					t.Errorf("%d runs, %v; want the one", n, err)
				}
			})
		})
	}
}
