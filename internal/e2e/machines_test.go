package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// shipment is a machine that uses most features: it charges (which fails at first), waits for a
// signal or a deadline, and lets a child ship the parcel. It records its events.
type shipment struct {
	perdure.Events
	in    string
	h     *parcelHandles
	heard []string
}

type parcelHandles struct {
	charge, refund *perdure.Activity[string, string]
	courier        *perdure.Workflow[string, string]
	machine        *perdure.Workflow[string, string]
	address        *perdure.Signal[string]
}

func (p *shipment) hear(format string, args ...any) {
	p.heard = append(p.heard, fmt.Sprintf(format, args...))
}

func (p *shipment) OnStart() perdure.Actions {
	return perdure.Actions{p.h.charge.Schedule("charge", p.in), perdure.StartTimer("deadline", time.Hour)}
}

func (p *shipment) OnActivityCompleted(e perdure.ActivityCompleted) perdure.Actions {
	if e.Activity == "refund" {
		return perdure.Actions{perdure.Fail(fmt.Errorf("%s, refunded: %w", strings.Join(p.heard, "; "), perdure.ErrCanceled))}
	}
	out, err := p.h.charge.Result(e)
	p.hear("%s %s %v", e.ID, out, err)
	return nil
}

func (p *shipment) OnActivityFailed(e perdure.ActivityFailed) perdure.Actions {
	p.hear("%s failed: %v", e.ID, e.Err)
	return perdure.Actions{p.h.machine.Complete(strings.Join(p.heard, "; "))}
}

func (p *shipment) OnSignal(e perdure.SignalReceived) perdure.Actions {
	to, ok := p.h.address.Value(e)
	if !ok {
		p.hear("ignored %s", e.Signal)
		return nil
	}
	p.hear("to %s", to)
	return perdure.Actions{perdure.CancelAction("deadline"), p.h.courier.Child("courier", to)}
}

func (p *shipment) OnChildClosed(e perdure.ChildClosed) perdure.Actions {
	out, err := p.h.courier.Result(e)
	if err != nil {
		p.hear("%s failed: %v", e.ID, err)
		return perdure.Actions{perdure.StartTimer("soon", time.Millisecond)}
	}
	p.hear("%s %s", e.ID, out)
	return perdure.Actions{p.h.machine.Complete(strings.Join(p.heard, "; "))}
}

func (p *shipment) OnTimerFired(e perdure.TimerFired) perdure.Actions {
	p.hear("%s", e.ID)
	return perdure.Actions{p.h.machine.Complete(strings.Join(p.heard, "; "))}
}

func (p *shipment) OnCancel(reason string) perdure.Actions {
	p.hear("cancelled: %s", reason)
	return perdure.Actions{p.h.refund.Schedule("refund", p.in)}
}

// parcels returns the definitions around a shipment.
func parcels() (*parcelHandles, perdure.Group) {
	h := &parcelHandles{
		charge: perdure.NewActivity("charge", func(ctx context.Context, in string) (string, error) {
			if in == "poor" {
				return "", perdure.Permanent(errors.New("no money"))
			}
			if perdure.Attempt(ctx) == 1 {
				return "", errors.New("busy")
			}
			return "paid", nil
		}, perdure.Constant(3, time.Millisecond)),
		refund: perdure.NewActivity("refund", func(context.Context, string) (string, error) { return "", nil }),
		courier: perdure.NewWorkflow("courier", func(ctx perdure.WorkflowCtx, to string) (string, error) {
			if to == "nowhere" {
				return "", errors.New("no such place")
			}
			return "delivered to " + to, ctx.Sleep(5 * time.Millisecond)
		}),
		machine: perdure.DeclareWorkflow[string, string]("shipment"),
		address: perdure.NewSignal[string]("address"),
	}

	bound := perdure.BindMachine(h.machine, func(in string) *shipment { return &shipment{in: in, h: h} })
	return h, perdure.Group{h.charge, h.refund, h.courier, bound}
}

// A machine gets the results of activities, signals, children and timers in the order of the
// history, in every replay.
func machines(t *testing.T, s *site) {
	h, defs := parcels()
	app := s.open(defs)
	c := caller(t, app)
	got, err := h.machine.Run(c, "poor", perdure.RawKey("poor"))
	equal(t, "a charge that fails", got, err, "charge failed: no money")

	for _, to := range []string{"Rome", "nowhere"} {
		x, err := h.machine.Start(c, "rich", perdure.RawKey(to))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is paid", func() bool { return slices.Contains(kindsOf(t, app, x), "step_completed") })
		reason(t, app, x, "waits for a timer")
		if err := perdure.NewSignal[int]("other").Send(c, x, 1); err != nil {
			t.Fatal(err)
		}

		if err := h.address.Send(c, x, to); err != nil {
			t.Fatal(err)
		}
		want := "charge paid <nil>; ignored other; to Rome; courier delivered to Rome"
		if to == "nowhere" {
			want = "charge paid <nil>; ignored other; to nowhere; courier failed: no such place; soon"
		}
		got, err := x.Result(c)
		equal(t, "to "+to, got, err, want)
		if taken := takenOf(t, app, x); !slices.Equal(taken, []string{"other", "address"}) {
			t.Errorf("taken signals are %v", taken)
		}
		if attempts := strings.Count(strings.Join(kindsOf(t, app, x), " "), "attempt_failed"); attempts != 1 {
			t.Errorf("%d failed attempts are recorded, want 1", attempts)
		}
	}
}

// A machine receives a cancel request as an event. The request does not cancel the actions with
// which the machine reacts, and the machine decides how it ends.
func machineCancel(t *testing.T, s *site) {
	h, defs := parcels()
	app := s.open(defs)
	c := caller(t, app)
	x, err := h.machine.Start(c, "rich", perdure.RawKey("k"))
	if err != nil {
		t.Fatal(err)
	}

	eventually(t, "it is paid", func() bool { return slices.Contains(kindsOf(t, app, x), "step_completed") })
	if err := x.Cancel(c, "changed my mind"); err != nil {
		t.Fatal(err)
	}
	_, err = x.Result(c)
	wantError(t, "a cancelled machine", err, perdure.ErrCanceled, "charge paid <nil>; cancelled: changed my mind, refunded")
	if out, err := x.Poll(c); err != nil || out.Status != perdure.Canceled {
		t.Errorf("ended as %v, %v", out, err)
	}
}

// relay is a machine whose children are functions that run machines.
type relay struct {
	perdure.Events
	n     int
	inner *perdure.Workflow[int, int]
	self  *perdure.Workflow[int, int]
}

func (r *relay) OnStart() perdure.Actions {
	if r.n == 0 {
		return perdure.Actions{r.self.Complete(1)}
	}
	return perdure.Actions{r.inner.Child("a", r.n-1), r.inner.Child("b", r.n-1, perdure.RawKey(fmt.Sprint("b", r.n)))}
}

func (r *relay) OnChildClosed(e perdure.ChildClosed) perdure.Actions {
	v, err := r.inner.Result(e)
	if err != nil {
		return perdure.Actions{perdure.Fail(err)}
	}
	if e.ID == "a" {
		r.n += 100 * v
	} else {
		r.n += 10000 * v
	}
	if r.n >= 10000 && r.n%10000 >= 100 {
		return perdure.Actions{r.self.Complete(r.n / 10000 * 2)}
	}
	return nil
}

// Machines start functions and functions start machines.
func machinesAndFunctions(t *testing.T, s *site) {
	outer := perdure.DeclareWorkflow[int, int]("relay")
	inner := perdure.NewWorkflow("inner", func(ctx perdure.WorkflowCtx, n int) (int, error) { return outer.Run(ctx, n) })
	app := s.open(inner, perdure.BindMachine(outer, func(n int) *relay { return &relay{n: n, inner: inner, self: outer} }))
	got, err := outer.Run(caller(t, app), 2, perdure.RawKey("top"))
	equal(t, "result", got, err, 4)
}

// crowd schedules many activities in one step and counts their results.
type crowd struct {
	perdure.Events
	n, home int
	step    *perdure.Activity[int, int]
	self    *perdure.Workflow[int, int]
}

func (c *crowd) OnStart() (as perdure.Actions) {
	for i := range c.n {
		as = append(as, c.step.Schedule(fmt.Sprint(i), i))
	}
	return as
}

func (c *crowd) OnActivityCompleted(perdure.ActivityCompleted) perdure.Actions {
	if c.home++; c.home == c.n {
		return perdure.Actions{c.self.Complete(c.home)}
	}
	return nil
}

// A machine can have thousands of pending activities.
func machineCrowd(t *testing.T, s *site) {
	step := perdure.NewActivity("step", func(_ context.Context, i int) (int, error) { return i, nil })
	self := perdure.DeclareWorkflow[int, int]("crowd")
	app := s.open(step, perdure.BindMachine(self, func(n int) *crowd { return &crowd{n: n, step: step, self: self} }))
	const n = 5000
	began := time.Now()
	got, err := self.Run(caller(t, app), n, perdure.RawKey("k"))
	equal(t, "result", got, err, n)
	t.Logf("%d activities took %s", n, time.Since(began).Round(time.Millisecond))
}

// A machine with a mistake fails and can be started again. A machine whose recorded outcome does
// not fit the current type is blocked, also after restarts. It continues with a build that can read
// the outcome.
func TestRepairedMachine(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		var mu sync.Mutex
		ran := 0
		load := perdure.NewActivity("load", func(context.Context, string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			ran++
			return "text", nil
		})

		loadNumber := perdure.DeclareActivity[string, int]("load")
		self := perdure.DeclareWorkflow[string, string]("repair")
		mistaken := perdure.BindMachine(self, func(in string) *repair {
			return &repair{start: perdure.Actions{load.Schedule("a", in), perdure.StartTimer("a", time.Hour)}}
		})

		misread := perdure.BindMachine(self, func(in string) *repair {
			return &repair{start: perdure.Actions{load.Schedule("a", in)}, completed: func(e perdure.ActivityCompleted) perdure.Actions {
				n, err := loadNumber.Result(e)
				return perdure.Actions{self.Complete(fmt.Sprint(n, err))}
			}}
		})

		right := perdure.BindMachine(self, func(in string) *repair {
			return &repair{start: perdure.Actions{load.Schedule("a", in)}, completed: func(e perdure.ActivityCompleted) perdure.Actions {
				v, err := load.Result(e)
				return perdure.Actions{self.Complete(fmt.Sprint(v, err))}
			}}
		})

		app := s.open(load, mistaken)
		x := mustStart(t, caller(t, app), self, "in", perdure.RawKey("k"))
		if _, err := x.Result(caller(t, app)); !errors.Is(err, perdure.ErrInvalid) ||
			!strings.Contains(err.Error(), `machine repair: id "a" of action start timer "a" 1h0m0s is still in use by schedule load "a" "in"`) {
			t.Errorf("the mistake ended with %v", err)
		}

		app = s.reopen(app, load, misread)
		x = mustStart(t, caller(t, app), self, "in", perdure.RawKey("k"), perdure.ReuseIfFailed)
		reason(t, app, x, "output of activity load cannot be decoded")
		app = s.reopen(app, load, right)
		got, err := x.Result(caller(t, app))
		equal(t, "result", got, err, "text<nil>")
		mu.Lock()
		defer mu.Unlock()
		if ran != 1 {
			t.Errorf("the activity ran %d times, want once", ran)
		}
	})
}

type repair struct {
	perdure.Events
	start     perdure.Actions
	completed func(perdure.ActivityCompleted) perdure.Actions
}

func (r *repair) OnStart() perdure.Actions { return r.start }

func (r *repair) OnActivityCompleted(e perdure.ActivityCompleted) perdure.Actions {
	return r.completed(e)
}
