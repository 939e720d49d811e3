package lane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// timersIn starts a run with the given timers, seconds from now.
func (r *rig) timersIn(a model.Address, seconds ...int) {
	r.t.Helper()
	r.startRun(a)
	var t model.Turn
	for _, s := range seconds {
		t.Commands = append(t.Commands, timer(fmt.Sprint("t", s), r.now.Add(time.Duration(s)*time.Second)))
	}
	t.Waits = []model.Reason{{Code: model.WaitTimer}}
	r.turn(a, t)
	r.settle()
}

// wantFired checks that the timers of the given seconds have fired, each once and not before its
// time.
func (r *rig) wantFired(a model.Address, since model.Time, seconds ...int) {
	r.t.Helper()
	row := r.current(a)
	var got []int
	for _, e := range r.history(a, row.Start.Run) {
		if e.Kind == model.EventTimerFired {
			s := int(e.Due.Sub(since).Seconds())
			got = append(got, s)
			if e.At < e.Due {
				r.t.Errorf("%s of %s fired at %s, due at %s", e.ID, a.Key, e.At, e.Due)
			}
		}
	}

	slices.Sort(got)
	if !slices.Equal(got, seconds) {
		r.t.Errorf("timers of %s that fired: %v, want %v", a.Key, got, seconds)
	}
}

// The window holds timers that are due soon. The lane reads later timers in time.
func TestTimersBeyondTheHorizon(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.TimerHorizon = 30 * time.Second })
	r.join(1)
	a, from := key("a"), r.now
	r.timersIn(a, 1, 29, 31, 61, 3600, 86400)
	r.pass(30 * time.Second)
	r.wantFired(a, from, 1, 29)
	r.pass(2 * time.Second)
	r.wantFired(a, from, 1, 29, 31)
	r.pass(time.Hour)
	r.wantFired(a, from, 1, 29, 31, 61, 3600)
	r.pass(24 * time.Hour)
	r.wantFired(a, from, 1, 29, 31, 61, 3600, 86400)
}

// Timers fire when they are due, at the latest at the time that Wake returned.
func TestTimersFireOnTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	from := r.now

	var all []int
	for i := range 20 {
		r.timersIn(key(fmt.Sprint(i)), i*7, i*7+3)
		all = append(all, i*7)
	}

	r.pass(time.Duration(all[len(all)-1]+10) * time.Second)
	for i := range 20 {
		row := r.current(key(fmt.Sprint(i)))
		for _, e := range r.history(row.Start.Address, row.Start.Run) {
			if late := e.At.Sub(e.Due); e.Kind == model.EventTimerFired && late > 0 {
				t.Errorf("%s due %s after the beginning fired %s late", e.ID, e.Due.Sub(from), late)
			}
		}
		r.wantFired(key(fmt.Sprint(i)), from, i*7, i*7+3)
	}
}

// A timer is committed while a refill is in flight. The window compares it with the bound that the
// refill asked for, whether the read or the commit comes first.
func TestTimerCommittedDuringRefill(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"read, commit, result", "commit, read, result", "read, result, commit", "commit result last"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *lane.Config) { c.TimerHorizon = 30 * time.Second })
			r.join(1)
			a := key("a")
			r.startRun(a)
			r.now = r.now.Add(20 * time.Second) // the lane must read the next timers
			from := r.now
			r.flush()
			if len(r.loads) != 1 || r.loads[0].Kind != lane.LoadTimers {
				t.Fatalf("loads = %+v, want a refill", r.loads)
			}

			refill := r.loads[0]
			r.loads = nil
			var read []store.Timer

			look := func() {
				var err error
				if read, err = r.st.LoadTimers(t.Context(), refill.Shards, refill.Mark, refill.Until, refill.Limit); err != nil {
					t.Fatal(err)
				}
			}

			result := func() { r.l.FinishLoad(r.now, refill.ID, lane.LoadResult{Timers: read}); r.flush() }
			r.turn(a, commandTurn(timer("t25", r.now.Add(25*time.Second)), timer("t40", r.now.Add(40*time.Second))))
			r.flush()

			switch order {
			case "read, commit, result":
				look()
				r.commitNow()
				result()
			case "commit, read, result":
				r.commitNow()
				look()
				result()
			case "read, result, commit":
				look()
				result()
				r.commitNow()
			case "commit result last":
				res, err := r.land()
				look()
				result()
				r.l.FinishCommit(r.now, res, err)
			}

			r.pass(26 * time.Second)
			r.wantFired(a, from, 25)
			r.pass(20 * time.Second)
			r.wantFired(a, from, 25, 40)
		})
	}
}

// There are more timers than the window holds. All of them fire, each once, in the order of their
// due times.
func TestMoreTimersThanTheWindow(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 10, 1000} {
		r := newRig(t, func(c *lane.Config) { c.TimerWindow = limit })
		r.join(1)
		from := r.now

		var want [4][]int
		for i := range 4 {
			for j := range 25 {
				want[i] = append(want[i], 1+(j*4+i)%50)
			}
			slices.Sort(want[i])
			want[i] = slices.Compact(want[i])
			r.timersIn(key(fmt.Sprint(i)), want[i]...)
		}

		r.pass(2 * time.Minute)
		for i := range 4 {
			r.wantFired(key(fmt.Sprint(i)), from, want[i]...)
		}
	}
}

// The window shrinks while a refill is in flight. No timer is missed.
func TestWindowShrinksDuringRefill(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.TimerWindow = 10 })
	r.join(1)
	a, b := key("a"), key("b")
	r.startRun(a)
	r.startRun(b)
	r.now = r.now.Add(20 * time.Second)
	from := r.now
	r.flush()
	if len(r.loads) != 1 || r.loads[0].Kind != lane.LoadTimers {
		t.Fatalf("loads = %+v, want a refill", r.loads)
	}

	// The lane commits far more timers than the window holds before the refill comes back.
	var turn model.Turn
	var want []int
	for i := 1; i <= 28; i++ {
		turn.Commands = append(turn.Commands, timer(fmt.Sprint(i), r.now.Add(time.Duration(i)*time.Second)))
		want = append(want, i)
	}

	r.turn(a, turn)
	r.turn(b, turn)
	r.flush()
	r.commitNow()
	r.read()
	r.pass(5 * time.Second)
	r.wantFired(a, from, want[:5]...)
	r.pass(time.Minute)
	r.wantFired(a, from, want...)
	r.wantFired(b, from, want...)
}

// The window shrinks while a refill is in flight. The refill reads the store before the commit of
// the timers that shrink the window.
func TestRefillShrinksTheWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.TimerWindow = 10; c.TimerHorizon = 100 * time.Second })
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.now = r.now.Add(80 * time.Second)
	from := r.now
	r.flush()
	refill := r.loads[0]
	r.loads = nil

	// The refill finds ten timers, and does not see eighteen others.
	var want []int
	commit := func(first, n, every int) {
		var turn model.Turn
		for i := range n {
			turn.Commands = append(turn.Commands, timer(fmt.Sprint(first+i*every), r.now.Add(time.Duration(first+i*every)*time.Second)))
			want = append(want, first+i*every)
		}
		r.turn(a, turn)
		r.flush()
		r.commitNow()
	}

	commit(10, 10, 5)
	found := engineTimers(r, refill)
	commit(1, 9, 1)
	commit(61, 9, 2)
	r.l.FinishLoad(r.now, refill.ID, lane.LoadResult{Timers: found})
	slices.Sort(want)
	r.pass(3 * time.Minute)
	r.wantFired(a, from, want...)
}

func engineTimers(r *rig, ld lane.Load) []store.Timer {
	r.t.Helper()
	ts, err := r.st.LoadTimers(r.t.Context(), ld.Shards, ld.Mark, ld.Until, ld.Limit)
	if err != nil {
		r.t.Fatal(err)
	}
	return ts
}

// The lane serves due timers of all kinds of workflows in turn. A storm of timers of one kind does
// not delay the others.
func TestTimerStormOfOneKind(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBatchRows = 20 })
	r.join(1, "storm", "calm")
	calm := model.Address{Tenant: "default", Type: "calm", Key: "c"}
	r.startRun(calm)
	r.turn(calm, model.Turn{Commands: []model.Command{timer("t", r.now.Add(2*time.Second))}, Waits: []model.Reason{{Code: model.WaitTimer}}})

	for i := range 200 {
		a := model.Address{Tenant: "default", Type: "storm", Key: fmt.Sprint(i)}
		r.start(a, i)
		r.settle()
		r.turn(a, model.Turn{Commands: []model.Command{timer("t", r.now.Add(time.Second))}, Waits: []model.Reason{{Code: model.WaitTimer}}})
	}

	r.settle()
	r.now = r.now.Add(3 * time.Second) // all are due, the storm before the other timer
	batches := 0
	for len(r.events(calm)) == 0 {
		r.flush()
		if len(r.loads) > 0 {
			r.read()
		}
		if r.commit == nil {
			t.Fatal("nothing is in flight")
		}
		r.commitNow()
		if batches++; batches > 2 {
			t.Fatalf("the calm one still waits after %d batches", batches)
		}
	}
}

// Timers of a shard that the lane has just acquired must not wait because the window is full.
func TestFullWindowAndAnotherShard(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.TimerWindow = 5 })
	r.join(1)
	mine, theirs := in(0, 0), in(1, 0)
	from := r.now
	r.timersIn(theirs, 12)
	r.giveUp(1)
	r.settle()
	if len(r.freed) != 1 {
		t.Fatalf("freed = %v", r.freed)
	}

	r.timersIn(mine, 21, 22, 23, 24, 25, 26)
	r.pass(11 * time.Second)
	r.acquire(1)
	r.settle()
	r.pass(2 * time.Second)
	r.wantFired(theirs, from, 12)
}

// Timers of runs that have ended do nothing, even if the key has a new run.
func TestTimerOfAClosedRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.timersIn(a, 10)
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued}})
	r.settle()
	r.release(a, "s")
	r.settle()
	r.now = r.now.Add(11 * time.Second)
	r.flush() // the timer of the first run is due, and the lane reads the address
	r.signal(a, "s", "signal")
	r.settle()
	r.wantAnswer("signal", "")
	r.wantEvents(a, "signal_received s")
}

// A timer that is stopped and started again with another time fires at that time.
func TestTimerStartedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, from := key("a"), r.now
	r.timersIn(a, 5)
	r.turn(a, commandTurn(stop("t5")))
	r.settle()
	r.turn(a, commandTurn(timer("t5", r.now.Add(10*time.Second))))
	r.settle()
	r.pass(6 * time.Second)
	r.wantFired(a, from)
	r.pass(6 * time.Second)
	r.wantFired(a, from, 10)

	// The new time is earlier than the old one.
	from = r.now
	b := key("b")
	r.timersIn(b, 20)
	r.turn(b, commandTurn(stop("t20")))
	r.settle()
	r.turn(b, commandTurn(timer("t20", r.now.Add(3*time.Second))))
	r.settle()
	r.pass(4 * time.Second)
	r.wantFired(b, from, 3)
	r.pass(time.Minute)
	r.wantFired(b, from, 3)
}

// A timer that was started again for the same time is not forgotten when the window is full.
func TestTimerStartedAgainInAFullWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.TimerWindow = 1 })
	r.join(1)
	a, from := key("a"), r.now
	r.timersIn(a, 5)
	for range 2 {
		r.turn(a, commandTurn(stop("t5")))
		r.settle()
		r.turn(a, commandTurn(timer("t5", from.Add(5*time.Second))))
		r.settle()
	}
	r.pass(time.Minute)
	r.wantFired(a, from, 5)
}

// A timer is started again while a refill brings the old row of the timer. The old row does not
// replace the new timer.
func TestTimerStartedAgainDuringRefill(t *testing.T) {
	t.Parallel()
	for _, later := range []int{28, 45} { // within what the refill asks for, and beyond
		r := newRig(t, func(c *lane.Config) { c.TimerHorizon = 30 * time.Second })
		r.join(1)
		a := key("a")
		r.timersIn(a, 40) // beyond the window
		r.now = r.now.Add(20 * time.Second)
		from := r.now
		r.flush()
		if len(r.loads) != 1 || r.loads[0].Kind != lane.LoadTimers {
			t.Fatalf("loads = %+v, want a refill", r.loads)
		}

		refill := r.loads[0]
		r.loads = nil
		read, err := r.st.LoadTimers(t.Context(), refill.Shards, refill.Mark, refill.Until, refill.Limit)
		if err != nil || len(read) != 1 {
			t.Fatalf("read %v, %v", read, err)
		}
		r.turn(a, commandTurn(stop("t40")))
		r.turn(a, commandTurn(timer("t40", r.now.Add(time.Duration(later)*time.Second))))
		r.flush()
		r.commitNow()
		r.l.FinishLoad(r.now, refill.ID, lane.LoadResult{Timers: read})
		r.flush()
		r.pass(25 * time.Second)
		r.wantFired(a, from)
		r.pass(25 * time.Second)
		r.wantFired(a, from, later)
	}
}

// The back-off of a step ends. If a worker holds the run, it gets the retry. If the worker had
// given up the run, a worker gets the run again.
func TestBackoff(t *testing.T) {
	t.Parallel()
	for _, released := range []bool{false, true} {
		r := newRig(t)
		r.join(1)
		a := key("a")
		run := r.startRun(a)
		retry := model.Command{Kind: model.CommandRetry, Delay: 5 * time.Second, Event: model.Event{ID: "x", Attempt: 1}}
		r.turn(a, model.Turn{Commands: []model.Command{retry}, Waits: []model.Reason{{Code: model.WaitRetry}}})
		r.settle()

		if released {
			r.release(a, "retry")
			r.settle()
			r.wantHolder(a, 0)
		}

		r.pass(4 * time.Second)
		if h := r.held[run]; released != (h == nil) || h != nil && len(h.retry) > 0 {
			t.Fatalf("released %v: woken too early", released)
		}
		r.pass(2 * time.Second)
		h := r.held[run]
		if h == nil || !released && !slices.Equal(h.retry, []string{"x"}) || len(h.events) != 1 {
			t.Fatalf("released %v: %+v, want the step to be run again", released, h)
		}

		r.turn(a, steps("x"))
		r.settle()
		if r.timers(a) != 0 {
			t.Error("the timer of the back-off is left")
		}
	}
}

// A lane without shards sleeps.
func TestLaneWithoutShardsSleeps(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.timersIn(key("a"), 100)
	r.giveUp(0, 1, 2, 3)
	r.settle()
	if len(r.freed) != 4 || len(r.held) != 0 {
		t.Fatalf("freed %v, held %d", r.freed, len(r.held))
	}

	r.pass(time.Hour)
	if at := r.l.Wake(); at != 0 && at <= r.now {
		t.Errorf("wants to be woken at %s", at)
	}
	from := begin
	r.acquire(0, 1, 2, 3)
	r.settle()
	r.wantFired(key("a"), from, 100)
}

// The window overflows after a shard was added and before its timers were read. The lane still
// knows that it has to read them.
func TestWindowShrinksAfterAShardWasAdded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.TimerWindow = 2 })
	r.join(1)
	mine, theirs := in(0, 0), in(1, 0)
	r.timersIn(theirs, 25)
	r.startRun(mine)
	from := r.now
	r.giveUp(1)
	r.settle()
	r.now = r.now.Add(20 * time.Second)
	r.flush()
	if len(r.loads) != 1 || r.loads[0].Kind != lane.LoadTimers {
		t.Fatalf("loads = %+v, want a refill", r.loads)
	}

	refill := r.loads
	r.loads = nil
	r.acquire(1)
	var turn model.Turn
	for i := 28; i < 34; i++ { // within what the refill asked for
		turn.Commands = append(turn.Commands, timer(fmt.Sprint(i), from.Add(time.Duration(i)*time.Second)))
	}
	r.turn(mine, turn)
	r.flush()
	r.commitNow()
	r.loads = append(refill, r.loads...)
	r.settle()
	r.pass(6 * time.Second)
	r.wantFired(theirs, from, 25)
	r.pass(time.Minute)
	r.wantFired(mine, from, 28, 29, 30, 31, 32, 33)
}
