package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Breakers lists, trips, resets and pauses circuit breakers, and sets the rules by which they open and
// close. Their state and their rules are stored and hold for all processes.
type Breakers struct{ app *App }

// Breakers operates the circuit breakers of the store.
func (a *App) Breakers() Breakers { return Breakers{a} }

// List lists the circuit breakers that tasks have used, or that somebody has operated, by name.
func (b Breakers) List(ctx context.Context) ([]BreakerInfo, error) {
	found, err := b.app.cfg.Backend.Breakers(ctx, model.DefaultTenant)
	if err != nil {
		return nil, public(err)
	}
	list := make([]BreakerInfo, len(found))
	for i := range found {
		b := &found[i]
		list[i] = BreakerInfo{
			Name: b.Name, State: b.State, Since: b.Since.Std(), Reason: b.Why, Paused: b.Held, Failures: int(b.Failures), Probes: b.Probes, Rule: BreakerRule(b.Rule),
		}
		if !b.Until.IsZero() {
			list[i].Until = b.Until.Std()
		}
	}
	return list, nil
}

// Trip opens a circuit breaker as if enough tasks had failed.
func (b Breakers) Trip(ctx context.Context, name, reason string) error {
	return public(b.app.cfg.Backend.TripBreaker(ctx, model.DefaultTenant, name, reason))
}

// Reset closes a circuit breaker and ends its pause.
func (b Breakers) Reset(ctx context.Context, name string) error {
	return public(b.app.cfg.Backend.ResetBreaker(ctx, model.DefaultTenant, name))
}

// Pause lets nothing through a circuit breaker before a time; one in the past ends the pause.
func (b Breakers) Pause(ctx context.Context, name string, until time.Time, reason string) error {
	if y := until.UTC().Year(); !until.IsZero() && (y < 1970 || y > 9999) {
		return fault.New(fault.Invalid, "pause breaker %s until the year %d: it lies between 1970 and 9999", name, y)
	}
	return public(b.app.cfg.Backend.PauseBreaker(ctx, model.DefaultTenant, name, model.TimeOf(until), reason))
}

// Rules lists the rules by which circuit breakers open and close. Those without a rule have the defaults.
func (b Breakers) Rules(ctx context.Context) ([]BreakerRule, error) {
	found, err := b.app.cfg.Backend.BreakerRules(ctx, model.DefaultTenant)
	rules := make([]BreakerRule, len(found))
	for i := range found {
		rules[i] = BreakerRule(found[i])
	}
	return rules, public(err)
}

// SetRule makes a rule for circuit breakers, or changes the one of that name.
func (b Breakers) SetRule(ctx context.Context, r BreakerRule) error {
	return public(b.app.cfg.Backend.SetBreaker(ctx, model.DefaultTenant, api.Breaker(r)))
}

// DeleteRule removes a rule: the breakers have the defaults then, and activities that name none have none.
func (b Breakers) DeleteRule(ctx context.Context, name string) error {
	return public(b.app.cfg.Backend.DeleteBreaker(ctx, model.DefaultTenant, name))
}

// BreakerRule is when a circuit breaker opens, and how it closes again. What is zero has its default.
type BreakerRule struct {
	// Name is that of a breaker that activities name by the option Breaker. With "activity:" in front it is that of an activity, which then has a breaker without naming one. A * at the end stands
	// for whatever follows.
	Name string
	// Failures within Window (1 min) open it; 5 when neither this nor Ratio is given. Ratio of failures opens it, once there are Calls (20) outcomes.
	Failures int
	Ratio    float64
	Calls    int
	Window   time.Duration
	// Reset is how long it stays open (30 s). Then up to Probes (1) tasks at a time are let through: one failure opens it again, Successes (2) close it.
	Reset     time.Duration
	Probes    int
	Successes int
	// Lease is after which time a probe that nothing is heard of makes room for another one (1 min). MaxRetryAfter is how long RetryAfter of an activity may keep the others back (24 h).
	Lease         time.Duration
	MaxRetryAfter time.Duration
}

// BreakerInfo is how a circuit breaker stands.
type BreakerInfo struct {
	Name string
	// State is closed, open or half_open.
	State string
	Since time.Time
	// Until is before when nothing passes, Reason why; zero and empty when it lets tasks through. Paused tells that somebody has paused it, or an activity has said RetryAfter.
	Until  time.Time
	Reason string
	Paused bool
	// Failures are those in the window; Probes are under way.
	Failures, Probes int
	Rule             BreakerRule
}

// Breaker has the outcomes of a task count for a circuit breaker of that name: while it is open, no attempt begins in any process, and none is consumed.
func Breaker(name string) TaskOption {
	return taskOption{"Breaker", func(s *taskSettings) { s.breaker = name }}
}
