package breaker_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/model"
)

// oracle is a simple model of a breaker. It keeps all calls and failures since the last change of
// state, and counts them again for each decision.
type oracle struct {
	c      breaker.Config
	now    model.Time
	state  breaker.State
	since  model.Time
	held   model.Time
	calls  []call // calls of this generation
	failed []model.Time
	good   int
}

type call struct {
	permit breaker.Permit
	over   bool
}

func (o *oracle) enter(s breaker.State) {
	o.state, o.since, o.calls, o.failed, o.good = s, o.now, nil, nil, 0
}

func (o *oracle) underWay() (n int) {
	for _, c := range o.calls {
		if !c.over && c.permit.Lease > o.now {
			n++
		}
	}
	return n
}

// allow returns whether a call passes, and whether it passes as a probe.
func (o *oracle) allow() (ok, probe bool) {
	if o.now < o.held {
		return false, false
	}
	switch o.state {
	case breaker.Closed:
		return true, false
	case breaker.Open:
		if o.now < o.since.Add(o.c.Reset) {
			return false, false
		}
		o.enter(breaker.HalfOpen)
	case breaker.HalfOpen:
	}
	return o.underWay() < o.c.Probes, true
}

func (o *oracle) endCall(p breaker.Permit, how breaker.Outcome) {
	for i := range o.calls {
		if c := &o.calls[i]; c.permit == p && !c.over {
			c.over = true
			switch {
			case o.state == breaker.Closed && how == breaker.Failed:
				o.failed = append(o.failed, o.now)
				n := 0
				for _, t := range o.failed {
					if o.now.Sub(t) < o.c.Window {
						n++
					}
				}
				if n >= o.c.Failures {
					o.enter(breaker.Open)
				}
			case o.state == breaker.HalfOpen && p.Lease <= o.now:
			case o.state == breaker.HalfOpen && how == breaker.Failed:
				o.enter(breaker.Open)
			case o.state == breaker.HalfOpen && how == breaker.Succeeded:
				if o.good++; o.good >= o.c.Successes {
					o.enter(breaker.Closed)
				}
			}

			return
		}
	}
}

// pair applies inputs to a breaker and to its oracle. While the breaker is closed, all permits of a
// generation are equal, so a report may belong to any of them.
type pair struct {
	t      *rapid.T
	b      *breaker.Breaker
	o      oracle
	issued []breaker.Permit
}

func (p *pair) check() {
	if got := p.b.Status(p.o.now); got.State != p.o.state || p.o.state == breaker.HalfOpen && (got.Probes != p.o.underWay() || got.Successes != p.o.good) {
		p.t.Fatalf("%+v, want %v with %d probes, %d successes", got, p.o.state, p.o.underWay(), p.o.good)
	}
	n := 0
	for _, t := range p.o.failed {
		if p.o.now.Sub(t) < p.o.c.Window {
			n++
		}
	}
	if got := p.b.Status(p.o.now).Failures; got != int64(n) {
		p.t.Fatalf("%d failures in the window, want %d", got, n)
	}
}

// A breaker does what the oracle does, even if the test stores it and reads it back in between.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := breaker.Config{
			Failures: rapid.IntRange(1, 4).Draw(t, "failures"), Successes: rapid.IntRange(1, 3).Draw(t, "successes"),
			Probes: rapid.IntRange(1, 3).Draw(t, "probes"), Window: 10 * time.Second, Reset: 5 * time.Second, Lease: 3 * time.Second, MaxRetryAfter: 8 * time.Second,
		}

		p := &pair{t: t, b: breaker.New(c, t0), o: oracle{c: c, now: t0, since: t0}}
		b, o := p.b, &p.o
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { p.check() },
			"pass time": func(t *rapid.T) {
				o.now = o.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "tenths")) * 100 * time.Millisecond)
			},
			"allow": func(t *rapid.T) {
				ok, probe := o.allow()
				a := b.Allow(o.now, 0)
				if a.OK != ok || ok && (a.Permit.Probe != 0) != probe || ok && a.Changed != probe {
					t.Fatalf("%+v, want ok %v, probe %v", a, ok, probe)
				}
				if !ok && a.Until <= o.now {
					t.Fatalf("refused until the past: %+v", a)
				}
				if ok {
					o.calls = append(o.calls, call{permit: a.Permit})
					p.issued = append(p.issued, a.Permit)
				}
			},
			"done": func(t *rapid.T) {
				if len(p.issued) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(p.issued)-1).Draw(t, "call")
				permit := p.issued[i]
				// A probe may be reported twice. Other permits are all alike, so the test reports
				// each only once.
				if permit.Probe == 0 {
					p.issued = append(p.issued[:i], p.issued[i+1:]...)
				}
				how := rapid.SampledFrom([]breaker.Outcome{breaker.Neither, breaker.Succeeded, breaker.Failed, breaker.Failed}).Draw(t, "how")
				was := o.state
				o.endCall(permit, how)
				if changed := b.Done(o.now, permit, how); was != o.state && !changed {
					t.Fatal("a change of state is not told")
				}
			},
			"trip":   func(*rapid.T) { o.enter(breaker.Open); b.Trip(o.now, "x") },
			"reset":  func(*rapid.T) { o.held = 0; o.enter(breaker.Closed); b.Reset(o.now) },
			"pause":  func(*rapid.T) { o.held = o.now.Add(2 * time.Second); b.PauseUntil(o.now, o.held, "x") },
			"resume": func(*rapid.T) { o.held = 0; b.PauseUntil(o.now, 0, "") },
			"retry after": func(*rapid.T) {
				until := o.now.Add(20 * time.Second)
				o.held = max(o.held, o.now.Add(c.MaxRetryAfter))
				b.RetryAfter(o.now, until)
			},
			"store": func(t *rapid.T) {
				row, err := b.Encode()
				if err != nil {
					t.Fatal(err)
				}
				again, err := breaker.Decode(row)
				if err != nil {
					t.Fatal(err)
				}
				*b = *again
			},
		})
	})
}

// The test applies every sequence of seven inputs, drawn from seven possible inputs, to a breaker
// with small numbers.
func TestExhaustive(t *testing.T) {
	t.Parallel()
	c := breaker.Config{Failures: 2, Successes: 2, Probes: 1, Window: 2 * time.Second, Reset: 2 * time.Second, Lease: time.Second}
	depth := 7
	if testing.Short() {
		depth = 5
	}
	steps := make([]int, depth)

	n := 0
	for {
		walk(t, c, steps)
		n++
		i := 0
		for ; i < depth; i++ {
			if steps[i]++; steps[i] < 7 {
				break
			}
			steps[i] = 0
		}
		if i == depth || t.Failed() {
			break
		}
	}

	t.Logf("%d sequences", n)
}

func walk(t *testing.T, c breaker.Config, steps []int) {
	b := breaker.New(c, t0)
	o := oracle{c: c, now: t0, since: t0}
	var held []breaker.Permit
	for i, s := range steps {
		switch s {
		case 0:
			o.now = o.now.Add(time.Second)
		case 1:
			ok, probe := o.allow()
			a := b.Allow(o.now, 0)
			if a.OK != ok || ok && (a.Permit.Probe != 0) != probe {
				t.Fatalf("%v at %d: %+v, want %v, probe %v", steps, i, a, ok, probe)
			}
			if ok {
				o.calls = append(o.calls, call{permit: a.Permit})
				held = append(held, a.Permit)
			}
		case 2, 3, 4, 5: // the oldest or the newest call fails or succeeds
			if len(held) == 0 {
				return // the same as the sequence without this input
			}
			k := 0
			if s >= 4 {
				k = len(held) - 1
			}
			p := held[k]
			held = append(held[:k:k], held[k+1:]...)
			how := breaker.Failed
			if s%2 == 1 {
				how = breaker.Succeeded
			}
			o.endCall(p, how)
			b.Done(o.now, p, how)
		case 6:
			o.enter(breaker.Open)
			b.Trip(o.now, "")
		}

		if got := b.Status(o.now); got.State != o.state {
			t.Fatalf("%v at %d: %v, want %v", steps, i, got.State, o.state)
		}
	}
}

// Successes of other places count for the ratio, at the time when they happened, and only for their
// generation.
func TestViewsTally(t *testing.T) {
	t.Parallel()
	o := breaker.New(breaker.Config{Ratio: 500, Calls: 2, Window: 20 * time.Second}, t0)
	v := breaker.NewView()

	exchange := func(now model.Time) {
		for range 2 {
			if m, ok := v.Tell(); ok {
				o.Receive(now, &m)
				n := o.News(now)
				n.Answer = m.Ask
				v.Receive(now, n)
			}
		}
	}

	v.Allow(t0, 0)
	exchange(t0)
	for range 10 {
		v.Done(t0, v.Allow(t0, 0).Permit, breaker.Succeeded)
	}
	exchange(t0)
	if n := o.Status(t0).Calls; n != 0 {
		t.Fatalf("the owner knows %d successes, want 0: a place reports successes together, not one by one", n)
	}

	later := at(15 * time.Second)
	v.Done(later, v.Allow(later, 0).Permit, breaker.Failed)
	exchange(later)
	if s := o.Status(later); s.Calls != 11 || s.Failures != 1 {
		t.Fatalf("%+v", s)
	}
	if s := o.Status(at(21 * time.Second)); s.Calls != 1 {
		t.Fatalf("successes that are older than the window still count: %+v", s)
	}

	v.Done(later, v.Allow(later, 0).Permit, breaker.Succeeded)
	o.Trip(later, "")
	o.Reset(later)
	v.Receive(later, o.News(later))
	v.Done(later, v.Allow(later, 0).Permit, breaker.Failed)
	exchange(later)
	if s := o.Status(later); s.Calls != 1 || s.Failures != 1 {
		t.Fatalf("a success of an earlier generation counts: %+v", s)
	}
}

func TestViewIsHeldBack(t *testing.T) {
	t.Parallel()
	o, v := breaker.New(breaker.Config{}, t0), breaker.NewView()
	if a := v.Allow(t0, 0); a.OK || !a.Until.IsZero() {
		t.Fatalf("nothing is known yet: %+v", a)
	}
	m, _ := v.Tell()
	probe, changed := o.Receive(t0, &m)
	if changed || probe != (breaker.Permit{}) || !v.Receive(t0, o.News(t0)) {
		t.Fatalf("%v %v", changed, probe)
	}

	if !v.Allow(t0, 0).OK {
		t.Fatal("the closed breaker refuses a call")
	}
	v.RetryAfter(at(time.Minute))
	m, _ = v.Tell()
	if _, changed = o.Receive(t0, &m); !changed || v.Receive(t0, o.News(t0)) {
		t.Fatalf("%v", changed)
	}

	if a := v.Allow(at(time.Second), 0); a.OK || a.Until != at(time.Minute) {
		t.Fatalf("%+v", a)
	}
	if !v.Allow(at(time.Minute), 0).OK {
		t.Fatal("the hold is over")
	}
}

// Several places share one breaker and exchange messages with it. Messages take any time, but
// messages with the same sender and receiver arrive in order. Whatever the delays are, three things
// hold. At most Probes calls are in flight while the breaker is half-open. A place that knows that
// the breaker is open lets nothing through. When all messages are delivered, no slot is lost.
func TestViews(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := breaker.Config{
			Failures: rapid.IntRange(1, 3).Draw(t, "failures"), Successes: rapid.IntRange(1, 2).Draw(t, "successes"),
			Probes: rapid.IntRange(1, 2).Draw(t, "probes"), Window: time.Hour, Reset: 5 * time.Second, Lease: 30 * time.Second,
		}

		if rapid.Bool().Draw(t, "ratio") {
			c.Failures, c.Ratio, c.Calls = 0, 500, 2
		}
		now := t0
		o := breaker.New(c, now)
		type running struct {
			place  int
			permit breaker.Permit
		}

		var (
			views [3]*breaker.View
			up    [3][]breaker.ToOwner
			down  [3][]breaker.News
			calls []running
		)
		for i := range views {
			views[i] = breaker.NewView()
		}

		tell := func(i int) {
			if m, ok := views[i].Tell(); ok {
				up[i] = append(up[i], m)
			}
		}

		send := func() {
			for i := range down {
				down[i] = append(down[i], o.News(now))
			}
		}

		place := func(t *rapid.T) int { return rapid.IntRange(0, 2).Draw(t, "place") }
		deliverUp := func(i int) {
			m := up[i][0]
			up[i] = up[i][1:]
			probe, changed := o.Receive(now, &m)
			if changed {
				send()
			} else {
				down[i] = append(down[i], o.News(now))
			}
			last := &down[i][len(down[i])-1]
			last.Probe, last.Answer = probe, m.Ask
		}

		deliverDown := func(i int) {
			views[i].Receive(now, down[i][0])
			down[i] = down[i][1:]
		}

		check := func() {
			slots := map[int64]bool{}
			for _, r := range calls {
				if r.permit.Probe != 0 && r.permit.Lease > now {
					if slots[r.permit.Probe] {
						t.Fatalf("probe %d twice", r.permit.Probe)
					}
					slots[r.permit.Probe] = true
				}
			}

			if s := o.Status(now); s.Probes > c.Probes {
				t.Fatalf("%+v", s)
			}

			byGeneration := map[int64]int{}
			for _, r := range calls {
				if r.permit.Probe != 0 && r.permit.Lease > now {
					byGeneration[r.permit.Generation]++
				}
			}

			for g, n := range byGeneration {
				if n > c.Probes {
					t.Fatalf("%d probes under way in generation %d", n, g)
				}
			}
		}

		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"pass time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 8).Draw(t, "seconds")) * time.Second)
			},
			"allow": func(t *rapid.T) {
				i := place(t)
				until, _ := views[i].Until(now)
				a := views[i].Allow(now, 0)
				if a.OK && until > now && a.Permit.Probe == 0 {
					t.Fatalf("let through although held back until %v", until)
				}
				if a.OK {
					calls = append(calls, running{i, a.Permit})
				}
				tell(i)
			},
			"done": func(t *rapid.T) {
				if len(calls) == 0 {
					t.Skip()
				}
				k := rapid.IntRange(0, len(calls)-1).Draw(t, "call")
				r := calls[k]
				calls = append(calls[:k], calls[k+1:]...)
				views[r.place].Done(now, r.permit, rapid.SampledFrom([]breaker.Outcome{breaker.Neither, breaker.Succeeded, breaker.Failed}).Draw(t, "how"))
				tell(r.place)
			},
			"to owner": func(t *rapid.T) {
				if i := place(t); len(up[i]) > 0 {
					deliverUp(i)
				}
			},
			"to place": func(t *rapid.T) {
				if i := place(t); len(down[i]) > 0 {
					deliverDown(i)
				}
			},
			"trip":  func(*rapid.T) { o.Trip(now, "x"); send() },
			"pause": func(*rapid.T) { o.PauseUntil(now, now.Add(4*time.Second), "x"); send() },
			"later": func(t *rapid.T) {
				i := place(t)
				views[i].RetryAfter(now.Add(3 * time.Second))
				tell(i)
			},
			"move": func(t *rapid.T) {
				row, err := o.Encode()
				if err != nil {
					t.Fatal(err)
				}
				if o, err = breaker.Decode(row); err != nil {
					t.Fatal(err)
				}
			},
		})

		// When everything is reported and delivered, a half-open breaker has a slot for the next
		// place that asks.
		for _, r := range calls {
			views[r.place].Done(now, r.permit, breaker.Neither)
			tell(r.place)
		}

		calls = nil
		for busy := true; busy; {
			busy = false
			for i := range views {
				for len(up[i]) > 0 {
					deliverUp(i)
					busy = true
				}
				for len(down[i]) > 0 {
					deliverDown(i)
					busy = true
				}
			}
		}

		// Let leases end, because a place may have got a probe that it no longer needed.
		now = now.Add(time.Minute)
		for i := range views {
			passed := false
			for range 3 { // the place receives news, asks for a probe, and uses it
				if a := views[i].Allow(now, 0); a.OK {
					passed = true
					views[i].Done(now, a.Permit, breaker.Neither)
				}

				tell(i)
				for len(up[i]) > 0 {
					deliverUp(i)
				}

				for j := range views {
					for len(down[j]) > 0 {
						deliverDown(j)
					}
				}

				if passed {
					break
				}
			}

			if !passed {
				t.Fatalf("place %d gets nothing through: %s", i, fmt.Sprintf("%+v", o.Status(now)))
			}
		}
	})
}
