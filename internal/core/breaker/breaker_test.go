package breaker_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const t0 = model.Time(1_000_000_000_000_000)

func at(d time.Duration) model.Time { return t0.Add(d) }

// B1: the failure that reaches the threshold opens the breaker, even if calls succeed between the
// failures. A failure that is older than the window does not count.
func TestExactlyThresholdFailuresInTheWindowOpen(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name string
		at   []time.Duration
		open bool
	}{
		{"two of three", []time.Duration{0, 1}, false},
		{"three at once", []time.Duration{0, 0, 0}, true},
		{"three within the window", []time.Duration{0, 30 * time.Second, time.Minute - time.Microsecond}, true},
		{"the first is exactly as old as the window", []time.Duration{0, 30 * time.Second, time.Minute}, false},
		{"the last three of many", []time.Duration{0, time.Minute, 2 * time.Minute, 2*time.Minute + 1, 2*time.Minute + 2}, true},
		{"never three", []time.Duration{0, 40 * time.Second, 80 * time.Second, 120 * time.Second, 160 * time.Second}, false},
	} {
		b := breaker.New(breaker.Config{Failures: 3}, t0)
		for i, d := range c.at {
			a := b.Allow(at(d), 0)
			if !a.OK {
				t.Fatalf("%s: call %d refused", c.name, i)
			}
			b.Done(at(d), b.Allow(at(d), 0).Permit, breaker.Succeeded)
			changed := b.Done(at(d), a.Permit, breaker.Failed)
			if last := i == len(c.at)-1; changed != (last && c.open) {
				t.Errorf("%s: failure %d: changed %v", c.name, i, changed)
			}
		}
		if got := b.Status(at(c.at[len(c.at)-1])).State == breaker.Open; got != c.open {
			t.Errorf("%s: open %v, want %v", c.name, got, c.open)
		}
	}
}

func TestRatioNeedsEnoughCalls(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Config{Ratio: 500, Calls: 10, Window: 20 * time.Second}, t0)
	report := func(d time.Duration, how breaker.Outcome) bool {
		return b.Done(at(d), b.Allow(at(d), 0).Permit, how)
	}
	for i := range 9 {
		if report(0, breaker.Failed) {
			t.Fatalf("opened by failure %d of fewer than 10 calls", i+1)
		}
	}

	// All earlier outcomes are older than the window. Of 10 successes and 9 failures, less than
	// half are failures.
	for range 10 {
		report(21*time.Second, breaker.Succeeded)
	}

	for i := range 9 {
		if report(22*time.Second, breaker.Failed) {
			t.Fatalf("opened by %d failures of %d calls", i+1, 11+i)
		}
	}

	if !report(22*time.Second, breaker.Failed) {
		t.Fatal("10 failures of 20 calls did not open it")
	}
}

// E34, E35 (see internal/archtest/testdata/invariants.txt): the life of a breaker, step by step.
func TestOpenHalfOpenClosed(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Config{Failures: 1, Successes: 2, Probes: 2, Reset: 10 * time.Second, Lease: 5 * time.Second}, t0)
	early := b.Allow(t0, 0).Permit
	if !b.Done(t0, b.Allow(t0, 0).Permit, breaker.Failed) {
		t.Fatal("not open")
	}
	if a := b.Allow(at(10*time.Second-time.Microsecond), 0); a.OK || a.Until != at(10*time.Second) || a.Why == "" {
		t.Fatalf("open: %+v", a)
	}

	one, two := b.Allow(at(10*time.Second), 0), b.Allow(at(11*time.Second), 0)
	if !one.OK || !two.OK || !one.Changed || one.Permit.Probe == two.Permit.Probe || one.Permit.Lease != at(15*time.Second) {
		t.Fatalf("probes: %+v, %+v", one, two)
	}
	if a := b.Allow(at(11*time.Second), 0); a.OK || a.Until != at(15*time.Second) {
		t.Fatalf("a third probe: %+v", a)
	}

	if b.Done(at(11*time.Second), early, breaker.Failed) {
		t.Fatal("a call from before it opened has changed it")
	}
	if b.Done(at(12*time.Second), one.Permit, breaker.Succeeded); b.Status(at(12*time.Second)).State != breaker.HalfOpen {
		t.Fatal("closed by one success of two")
	}
	if b.Done(at(12*time.Second), one.Permit, breaker.Succeeded) {
		t.Fatal("the same probe counted twice")
	}

	// The second probe never reports: its slot is free when its lease ends, and its success comes
	// too late.
	three := b.Allow(at(16*time.Second), 0)
	four := b.Allow(at(16*time.Second), time.Hour)
	if !three.OK || !four.OK || four.Permit.Lease != at(16*time.Second+time.Hour) {
		t.Fatalf("after the lease: %+v, %+v", three, four)
	}
	if b.Done(at(17*time.Second), two.Permit, breaker.Succeeded); b.Status(at(17*time.Second)).State != breaker.HalfOpen {
		t.Fatal("a success after the end of the lease counted")
	}

	b.Done(at(17*time.Second), three.Permit, breaker.Neither)
	if s := b.Status(at(17 * time.Second)); s.State != breaker.HalfOpen || s.Probes != 1 || s.Successes != 1 {
		t.Fatalf("%+v", s)
	}
	if b.Done(at(18*time.Second), four.Permit, breaker.Succeeded); b.Status(at(18*time.Second)).State != breaker.Closed {
		t.Fatal("two successes did not close it")
	}
}

func TestFailedProbeOpensAgain(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Config{Probes: 2, Reset: 10 * time.Second}, t0)
	b.Trip(t0, "maintenance")
	if s := b.Status(t0); s.State != breaker.Open || s.Why != "maintenance" || s.Until != at(10*time.Second) {
		t.Fatalf("%+v", s)
	}
	one, two := b.Allow(at(10*time.Second), 0).Permit, b.Allow(at(10*time.Second), 0).Permit
	if !b.Done(at(11*time.Second), one, breaker.Failed) {
		t.Fatal("not told")
	}

	if b.Done(at(11*time.Second), two, breaker.Succeeded) {
		t.Fatal("a probe of the time before counted")
	}
	if a := b.Allow(at(21*time.Second-1), 0); a.OK || a.Until != at(21*time.Second) {
		t.Fatalf("%+v", a)
	}
}

// The clock of a node is behind the clock of the node that used the breaker last. A Retry-After
// that the first node reports still lasts as long as the called service asked for.
func TestRetryAfterByAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Config{MaxRetryAfter: time.Hour}, t0)
	b.Allow(at(time.Minute), 0) // at a time of the other clock
	if !b.RetryAfter(t0, at(10*time.Second)) {
		t.Fatal("it is not held")
	}
	if s := b.Status(at(time.Minute)); !s.Held || s.Until != at(70*time.Second) {
		t.Fatalf("%+v", s)
	}

	if a := b.Allow(at(9*time.Second), 0); a.OK {
		t.Fatalf("%+v", a)
	}
	if b.Receive(at(5*time.Second), &breaker.ToOwner{RetryAfter: at(20 * time.Second)}); b.Status(t0).Until != at(75*time.Second) {
		t.Fatalf("%+v", b.Status(t0))
	}
	if b.RetryAfter(t0, model.MaxTime); b.Status(t0).Until != at(time.Minute+time.Hour) {
		t.Fatal("the other side must not hold it forever")
	}
}

func TestHolds(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Config{Failures: 1, Reset: 10 * time.Second, MaxRetryAfter: time.Hour}, t0)
	p := b.Allow(t0, 0).Permit
	if !b.RetryAfter(t0, at(time.Minute)) || b.RetryAfter(t0, at(time.Second)) {
		t.Fatal("a hold is only lengthened")
	}
	if a := b.Allow(at(59*time.Second), 0); a.OK || a.Until != at(time.Minute) {
		t.Fatalf("%+v", a)
	}

	if a := b.Allow(at(time.Minute), 0); !a.OK {
		t.Fatalf("a hold changes no state: %+v", a)
	}
	if b.RetryAfter(at(time.Minute), model.MaxTime); b.Status(at(time.Minute)).Until != at(time.Minute+time.Hour) {
		t.Fatal("the other side must not hold it forever")
	}
	b.PauseUntil(at(2*time.Minute), at(3*time.Minute), "they migrate")
	if s := b.Status(at(2 * time.Minute)); !s.Held || s.Why != "they migrate" || s.Until != at(3*time.Minute) {
		t.Fatalf("%+v", s)
	}

	// The outcome of a call that the breaker let through earlier still counts.
	if !b.Done(at(2*time.Minute+55*time.Second), p, breaker.Failed) {
		t.Fatal("not opened")
	}
	if a := b.Allow(at(2*time.Minute+59*time.Second), 0); a.OK || a.Until != at(3*time.Minute+5*time.Second) {
		t.Fatalf("held and open: %+v", a)
	}

	b.PauseUntil(at(2*time.Minute+59*time.Second), 0, "")
	b.Reset(at(2*time.Minute + 59*time.Second))
	if !b.Allow(at(2*time.Minute+59*time.Second), 0).OK {
		t.Fatal("a reset lets calls pass")
	}
}

func TestConfigure(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Config{Failures: 2, Reset: time.Hour}, t0)
	b.Trip(t0, "")
	b.Configure(at(time.Second), breaker.Config{Failures: 2, Reset: time.Minute})
	if a := b.Allow(at(2*time.Second), 0); a.Until != at(time.Minute) {
		t.Fatalf("%+v", a)
	}
	b.Reset(at(2 * time.Second))
	b.Done(at(2*time.Second), b.Allow(at(2*time.Second), 0).Permit, breaker.Failed)
	b.Configure(at(3*time.Second), breaker.Config{Failures: 1})
	if s := b.Status(at(3 * time.Second)); s.State != breaker.Closed || s.Failures != 0 {
		t.Fatalf("a new window: %+v", s)
	}
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for _, c := range []breaker.Config{
		{Failures: -1},
		{Failures: breaker.MaxFailures + 1},
		{Ratio: 1001},
		{Calls: 3},
		{Window: time.Microsecond},
		{Reset: -time.Second},
		{Probes: breaker.MaxProbes + 1},
		{Lease: breaker.MaxDuration + 1},
		{Successes: -1},
	} {
		if err := c.Validate(); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}

	if err := (breaker.Config{Ratio: 500, Calls: 3}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestStoredFormThatIsNotUnderstood(t *testing.T) {
	t.Parallel()
	for _, row := range [][]byte{nil, {0xff}, {0xa0}, {0xa1, 0x01, 0x02}, []byte("\xa2\x01\x01\x03\x07")} {
		if _, err := breaker.Decode(row); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%x: %v", row, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	b := breaker.New(breaker.Config{Failures: 2, Ratio: 100}, t0)
	row, err := b.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(row)

	f.Fuzz(func(t *testing.T, row []byte) {
		b, err := breaker.Decode(row)
		if err != nil {
			return
		}
		// A decoded breaker works like the original.
		for i := range 10 {
			now := at(time.Duration(i) * time.Minute)
			a := b.Allow(now, 0)
			b.Done(now, a.Permit, breaker.Failed)
			b.Status(now)
		}
		if _, err := b.Encode(); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkAllowDone(b *testing.B) {
	m := breaker.New(breaker.Config{Failures: 100, Ratio: 500}, t0)
	now := t0
	b.ReportAllocs()
	for b.Loop() {
		now++
		m.Done(now, m.Allow(now, 0).Permit, breaker.Succeeded)
	}
}

// A place sends a message again if it does not know whether the message was stored. Such a message
// counts once. The place gets the same probe as the first time.
func TestToldAgain(t *testing.T) {
	t.Parallel()
	c := breaker.Config{Failures: 3, Window: time.Hour, Reset: time.Minute, Probes: 2}
	b := breaker.New(c, 1)
	now := model.Time(1)

	tell := func(place, seq int64, m breaker.ToOwner) (breaker.Permit, bool) {
		t.Helper()
		row, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if b, err = breaker.Decode(row); err != nil { // read the breaker again for each message
			t.Fatal(err)
		}
		m.Place, m.Seq = place, seq
		return b.Receive(now, &m)
	}

	failed := breaker.ToOwner{Reports: []breaker.Report{{Permit: breaker.Permit{Generation: 1}, How: breaker.Failed}}}
	for range 5 {
		tell(1, 1, failed)
		tell(2, 1, failed)
		if s := b.Status(now).State; s != breaker.Closed {
			t.Fatalf("two failures that are told again and again: %s", s)
		}
	}

	if _, changed := tell(1, 2, failed); !changed || b.Status(now).State != breaker.Open {
		t.Fatalf("after the third failure it is %s", b.Status(now).State)
	}
	now = now.Add(2 * time.Minute)
	ask := breaker.ToOwner{Ask: true}
	first, changed := tell(1, 3, ask)
	if first.Probe == 0 || !changed {
		t.Fatalf("the probe is %+v, changed %v", first, changed)
	}

	if again, changed := tell(1, 3, ask); again != first || changed {
		t.Errorf("asked again, the probe is %+v and not %+v, changed %v", again, first, changed)
	}
	if other, _ := tell(2, 2, ask); other.Probe == 0 || other == first {
		t.Errorf("the probe of another place is %+v", other)
	}
	if third, _ := tell(1, 4, ask); third.Probe != 0 {
		t.Errorf("a third probe of two: %+v", third)
	}
	if again, _ := tell(1, 4, ask); again.Probe != 0 {
		t.Errorf("what was refused is given when it is asked for again: %+v", again)
	}
	for place := range int64(200) {
		tell(100+place, 1, ask)
	}
	if row, err := b.Encode(); err != nil || len(row) > 4000 {
		t.Errorf("%d bytes after 200 places, %v", len(row), err)
	}
}

// A place has got a probe and has not used it yet. It cannot use the probe if the breaker has
// changed its state since, or if an operator has paused it.
func TestProbeThatIsOutOfDate(t *testing.T) {
	t.Parallel()
	half := func() (b *breaker.Breaker, probe breaker.Permit) {
		b = breaker.New(breaker.Config{Failures: 1, Reset: time.Minute, Probes: 2, Lease: time.Hour}, t0)
		b.Trip(t0, "")
		probe, _ = b.Receive(at(2*time.Minute), &breaker.ToOwner{Ask: true})
		if probe.Probe == 0 {
			t.Fatal("no probe")
		}
		return b, probe
	}
	heard := func(v *breaker.View, b *breaker.Breaker, now model.Time, probe breaker.Permit) {
		n := b.News(now)
		n.Probe, n.Answer = probe, true
		v.Receive(now, n)
	}

	// The place has seen another probe fail before the message with this probe arrives.
	b, probe := half()
	other, _ := b.Receive(at(2*time.Minute), &breaker.ToOwner{Ask: true})
	b.Done(at(3*time.Minute), other, breaker.Failed)
	v := breaker.NewView()
	heard(v, b, at(3*time.Minute), probe)
	if a := v.Allow(at(3*time.Minute), 0); a.OK || a.Until != at(4*time.Minute) {
		t.Errorf("open again: %+v", a)
	}

	b, probe = half()
	v = breaker.NewView()
	heard(v, b, at(2*time.Minute), probe)
	b.PauseUntil(at(3*time.Minute), at(10*time.Minute), "they migrate")
	v.Receive(at(3*time.Minute), b.News(at(3*time.Minute)))
	if until, _ := v.Until(at(9 * time.Minute)); until != at(10*time.Minute) {
		t.Errorf("paused, and nothing passes before %s", until)
	}
	if a := v.Allow(at(9*time.Minute), 0); a.OK || a.Until != at(10*time.Minute) {
		t.Errorf("paused: %+v", a)
	}
	if a := v.Allow(at(10*time.Minute), 0); !a.OK || a.Permit != probe {
		t.Errorf("after the pause: %+v", a)
	}
}

// A new config allows fewer probes than are in flight. When the lease of the first probe ends, as
// many others as allowed are still in flight, so there is no free slot. The breaker tells places to
// ask again when the lease of the next probe ends, because it would refuse an earlier request.
func TestFewerProbesThanAreUnderWay(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Config{Failures: 1, Reset: time.Second, Probes: 2, Lease: time.Minute}, t0)
	b.Trip(t0, "")

	for _, lease := range []time.Duration{time.Minute, time.Hour} {
		if a := b.Allow(at(time.Second), lease); !a.OK {
			t.Fatalf("%+v", a)
		}
	}

	b.Configure(at(2*time.Second), breaker.Config{Failures: 1, Reset: time.Second, Probes: 1, Lease: time.Minute})
	now, long := at(2*time.Minute), at(time.Second+time.Hour)
	n := b.News(now)
	if n.Until != long || n.Why == "" {
		t.Errorf("a call may ask at %s although a probe is under way until %s: %q", n.Until, long, n.Why)
	}
	v := breaker.NewView()
	v.Receive(now, n)
	if a := v.Allow(now, 0); a.OK || a.Until != long {
		t.Errorf("%+v", a)
	}
	if a := b.Allow(now, 0); a.OK || a.Until != long {
		t.Errorf("%+v", a)
	}
	if n := b.News(long); n.Until != 0 {
		t.Errorf("nothing passes until %s when all have lapsed", n.Until)
	}
}
