package breaker

import (
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// State is the state of a breaker.
type State uint8

// States.
const (
	Closed State = iota
	Open
	HalfOpen
)

// String returns the name that operators and metrics show.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half_open"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Outcome is how a call ended.
type Outcome uint8

// Outcomes.
const (
	Neither Outcome = iota // cancelled, lost, or given back: says nothing about the called service
	Succeeded
	Failed
)

// Permit lets one call through. The breaker ignores the outcome of a call with a zero Permit.
type Permit struct {
	Generation int64 `cbor:"1,keyasint"`
	// Probe is the number of a slot of a half-open breaker. It is 0 for a call through a closed
	// breaker.
	Probe int64 `cbor:"2,keyasint,omitempty"`
	// Lease is when the breaker frees the slot, whatever happens to the call.
	Lease model.Time `cbor:"3,keyasint,omitempty"`
}

// Answer tells a caller whether its call may pass.
type Answer struct {
	// OK lets the call through with Permit.
	OK     bool
	Permit Permit
	// Until is when the caller should ask again. Why is the reason, for operators. Both are set
	// when the call is refused.
	Until model.Time
	Why   string
	// Changed says that the breaker must be stored before the permit is used.
	Changed bool
}

// Breaker is the state machine.
type Breaker struct {
	config     Config
	state      State
	generation int64
	// since is when the state began. until is when an open breaker lets probes through. why says
	// what opened it.
	since, until model.Time
	why          string
	// No call passes before the time held.
	held    model.Time
	heldWhy string

	window    window
	probes    []slot // in the order of their numbers, oldest first
	lastProbe int64
	successes int
	heard     []heard    // places that share the breaker; the place of the last message comes last
	now       model.Time // the latest time seen; it never goes back
}

// slot is a probe in flight.
type slot struct {
	ID    int64      `cbor:"1,keyasint"`
	Lease model.Time `cbor:"2,keyasint"`
}

// New returns a closed breaker. The config must be valid.
func New(c Config, now model.Time) *Breaker {
	b := &Breaker{config: c.WithDefaults(), generation: 1, since: now, now: max(now, 0)}
	b.window.clear(&b.config)
	return b
}

// changesPerVersion is a number that is larger than the number of state changes between two stored
// versions of a breaker.
const changesPerVersion = 1 << 20

// NewInPlaceOf returns a closed breaker in place of a breaker whose stored state, with this
// version, cannot be read. Its generations are above all generations that the lost breaker can have
// had. So it ignores late reports about calls that the lost breaker has allowed, and its probes
// cannot be confused with probes of the lost breaker.
func NewInPlaceOf(version int64, c Config, now model.Time) *Breaker {
	b := New(c, now)
	b.generation += version * changesPerVersion
	return b
}

// Allow asks to make one call. If the call becomes a probe, it gets the lease of the config, or the
// lease of the caller if that is longer.
func (b *Breaker) Allow(now model.Time, lease time.Duration) Answer {
	now = b.tick(now)
	if now < b.held {
		return Answer{Until: max(b.held, b.probeTime()), Why: b.heldWhy}
	}
	if b.state == Closed {
		return Answer{OK: true, Permit: Permit{Generation: b.generation}}
	}

	if b.state == Open {
		if now < b.until {
			return Answer{Until: b.until, Why: b.why}
		}
		b.become(now, HalfOpen, b.why)
	}

	// The breaker is half-open: the call needs a free slot.
	b.lapse(now)
	if until, all := b.allUnderWay(now); all {
		return Answer{Until: until, Why: fmt.Sprintf("half-open, %d of %d probes are under way", len(b.probes), b.config.Probes)}
	}
	b.lastProbe++
	p := slot{ID: b.lastProbe, Lease: now.Add(max(lease, b.config.Lease))}
	b.probes = append(b.probes, p)

	return Answer{OK: true, Permit: Permit{Generation: b.generation, Probe: p.ID, Lease: p.Lease}, Changed: true}
}

// Until returns the time before which no call passes, and why. The time is zero when a call may
// pass. Until does not change the breaker.
func (b *Breaker) Until(now model.Time) (until model.Time, why string) {
	n := b.news(max(now, b.now))
	return n.Until, n.Why
}

// Done reports how a call ended. It returns whether the breaker must be stored.
func (b *Breaker) Done(now model.Time, p Permit, how Outcome) (changed bool) {
	now = b.tick(now)
	if p.Generation != b.generation {
		return false
	}
	if b.state == Closed {
		return p.Probe == 0 && b.count(now, how)
	}

	i := slices.IndexFunc(b.probes, func(s slot) bool { return s.ID == p.Probe })
	if i < 0 {
		return false // the probe was reported before, or its slot was freed
	}
	late := b.probes[i].Lease <= now
	b.probes = slices.Delete(b.probes, i, i+1)

	switch {
	case late || how == Neither:
	case how == Failed:
		b.open(now, "a probe failed")
	default:
		if b.successes++; b.successes >= b.config.Successes {
			b.become(now, Closed, "")
		}
	}

	return true
}

// count adds an outcome to a closed breaker. It returns whether the breaker has opened.
func (b *Breaker) count(now model.Time, how Outcome) (changed bool) {
	if how == Neither {
		return false
	}
	b.window.add(now, how == Failed, &b.config)
	if how != Failed {
		return false // a success never opens the breaker
	}

	if n := b.window.failures(now, &b.config); b.config.Failures > 0 && n >= b.config.Failures {
		b.open(now, fmt.Sprintf("%d failures in %v", n, b.config.Window))
		return true
	}

	if b.config.Ratio == 0 {
		return false
	}
	calls, failed := b.window.sums(now)
	if calls < int64(b.config.Calls) || failed*1000 < calls*int64(b.config.Ratio) {
		return false
	}

	b.open(now, fmt.Sprintf("%d of %d calls failed in %v", failed, calls, b.config.Window))
	return true
}

// Trip opens the breaker as if it had seen enough failures: it lets probes through after the reset
// time-out. To block calls for longer, pause it.
func (b *Breaker) Trip(now model.Time, why string) {
	b.open(b.tick(now), orElse(why, "tripped"))
}

// Reset closes the breaker and ends a hold. Outcomes of earlier calls no longer count.
func (b *Breaker) Reset(now model.Time) {
	b.held, b.heldWhy = 0, ""
	b.become(b.tick(now), Closed, "")
}

// PauseUntil lets nothing through before the time. It replaces any other hold. A time in the past
// ends the hold.
func (b *Breaker) PauseUntil(now, until model.Time, why string) {
	now = b.tick(now)
	if until <= now {
		b.held, b.heldWhy = 0, ""
		return
	}
	b.held, b.heldWhy = min(until, model.MaxTime), orElse(why, "paused")
}

// RetryAfter applies a Retry-After that the called service has sent: no call passes before that
// time. It can only lengthen a hold, up to the bound in the config. It returns whether the breaker
// must be stored.
func (b *Breaker) RetryAfter(now, until model.Time) (changed bool) {
	until = min(until, now.Add(b.config.MaxRetryAfter))
	// The caller's clock may be behind the clock of the node that used the breaker last.
	behind := b.tick(now) - now
	if until += behind; until <= max(b.held, b.now) {
		return false
	}
	b.held, b.heldWhy = until, "the other side asked to be called later"
	return true
}

// Configure changes the config. Counting starts again. An open breaker stays open for as long as
// the new config says. Probes that are in flight may still finish.
func (b *Breaker) Configure(now model.Time, c Config) {
	b.tick(now)
	b.config = c.WithDefaults()
	b.window.clear(&b.config)
	if b.state == Open {
		b.until = b.since.Add(b.config.Reset)
	}
}

// Status describes a breaker for operators.
type Status struct {
	State State
	// At is the time of the status: the given time, or the latest time that the breaker has seen if
	// that is later.
	At model.Time
	// Since is when the state began. Until is when the breaker lets calls or probes through, if it
	// is open or held; otherwise it is zero. A half-open breaker has no Until, even if all its
	// probes are in flight. Why says what opened the breaker, or what holds it.
	Since, Until model.Time
	Why          string
	Held         bool // a pause or a Retry-After holds the breaker
	// Failures and Calls are the numbers in the window. Calls are counted only if the config has a
	// ratio.
	Failures, Calls int64
	Probes          int // probes in flight
	Successes       int // successful probes
	Config          Config
}

// Status returns the state of the breaker at a time.
func (b *Breaker) Status(now model.Time) Status {
	now = max(now, b.now)
	s := Status{State: b.state, At: now, Since: b.since, Why: b.why, Successes: b.successes, Config: b.config}
	s.Failures = int64(b.window.failures(now, &b.config))

	if b.config.Ratio > 0 {
		var failed int64
		s.Calls, failed = b.window.sums(now)
		s.Failures = max(s.Failures, failed)
	}

	for _, p := range b.probes {
		if p.Lease > now {
			s.Probes++
		}
	}

	if now < b.probeTime() {
		s.Until = b.probeTime()
	}
	if now < b.held {
		s.Held, s.Why, s.Until = true, b.heldWhy, max(b.held, s.Until)
	}

	return s
}

// probeTime returns when an open breaker lets probes through; zero if the breaker is not open.
func (b *Breaker) probeTime() model.Time {
	if b.state == Open {
		return b.until
	}
	return 0
}

// open opens the breaker for the reset time-out.
func (b *Breaker) open(now model.Time, why string) {
	b.become(now, Open, why)
	b.until = now.Add(b.config.Reset)
}

// become enters a state, which begins a new generation.
func (b *Breaker) become(now model.Time, s State, why string) {
	b.state, b.since, b.until, b.why = s, now, 0, why
	b.generation++
	b.probes, b.successes = b.probes[:0], 0
	b.window.clear(&b.config)
}

// lapse frees the slots of probes whose lease has ended.
func (b *Breaker) lapse(now model.Time) {
	b.probes = slices.DeleteFunc(b.probes, func(s slot) bool { return s.Lease <= now })
}

// tick returns the time, or the latest time seen if that is later.
func (b *Breaker) tick(now model.Time) model.Time {
	b.now = max(b.now, now)
	return b.now
}

// orElse returns text. If text is empty, it returns otherwise.
func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
