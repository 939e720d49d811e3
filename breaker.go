package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Breakers lists, trips, resets and pauses circuit breakers, and sets the rules by which they open
// and close. Their state and their rules are stored and hold for all processes.
type Breakers struct{ app *App }

// Breakers operates the circuit breakers of the app's tenant.
func (a *App) Breakers() Breakers { return Breakers{a} }

// List returns the circuit breakers that have a stored state, and the ones that tasks of this node
// have used, sorted by name. The node is this process or, for an app of Dial, the server.
func (b Breakers) List(ctx context.Context) ([]BreakerInfo, error) {
	found, err := b.app.cfg.Backend.Breakers(ctx, b.app.host.tenant)
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

// Trip opens a circuit breaker as if enough tasks had failed. The breaker closes again according to
// its rule. Trip returns ErrNotFound for an unknown name. A name is known if a rule, a stored state
// or an activity of a running program has it.
func (b Breakers) Trip(ctx context.Context, name, reason string) error {
	return public(b.app.cfg.Backend.TripBreaker(ctx, b.app.host.tenant, name, reason))
}

// Reset closes a circuit breaker. If it is paused, Reset ends the pause.
func (b Breakers) Reset(ctx context.Context, name string) error {
	return public(b.app.cfg.Backend.ResetBreaker(ctx, b.app.host.tenant, name))
}

// Pause stops all tasks at a circuit breaker until the given time. The zero time, or a time in the
// past, ends the pause. Pause returns ErrInvalid for a time after 9999, and for a time before 1970
// that is not zero. Like Trip, Pause returns ErrNotFound for an unknown name.
func (b Breakers) Pause(ctx context.Context, name string, until time.Time, reason string) error {
	if y := until.UTC().Year(); !until.IsZero() && (y < 1970 || y > 9999) {
		return fault.New(fault.Invalid, "pause breaker %s until the year %d: must be from 1970 to 9999", name, y)
	}
	return public(b.app.cfg.Backend.PauseBreaker(ctx, b.app.host.tenant, name, model.TimeOf(until), reason))
}

// Rules returns the rules by which circuit breakers open and close. A breaker without a rule has
// the defaults of BreakerRule.
func (b Breakers) Rules(ctx context.Context) ([]BreakerRule, error) {
	found, err := b.app.cfg.Backend.BreakerRules(ctx, b.app.host.tenant)
	rules := make([]BreakerRule, len(found))
	for i := range found {
		rules[i] = BreakerRule(found[i])
	}
	return rules, public(err)
}

// SetRule creates a rule for circuit breakers, or changes the rule of that name.
func (b Breakers) SetRule(ctx context.Context, r BreakerRule) error {
	return public(b.app.cfg.Backend.SetBreaker(ctx, b.app.host.tenant, api.Breaker(r)))
}

// DeleteRule removes a rule. After that, each breaker of the rule uses the most specific of the
// remaining rules that match it, or the defaults. An activity that had a breaker only because of
// this rule no longer has one.
func (b Breakers) DeleteRule(ctx context.Context, name string) error {
	return public(b.app.cfg.Backend.DeleteBreaker(ctx, b.app.host.tenant, name))
}

// BreakerRule says when a circuit breaker opens and how it closes again. A zero field means its
// default, which is in parentheses in the comments.
type BreakerRule struct {
	// Name is the name of a breaker, as activities give it with the option Breaker. A rule named
	// "activity:mail" gives the activity mail a breaker, even if it has no Breaker option. A * at
	// the end matches every name that starts with the text before it.
	Name string
	// Failures is how many failures within Window (1 min) open the breaker. If Failures and Ratio
	// are both zero, Failures is 5. Ratio, from 0 to 1, is the share of failures that opens the
	// breaker. It applies once Window has at least Calls (20) outcomes.
	Failures int
	Ratio    float64
	Calls    int
	Window   time.Duration
	// Reset is how long the breaker stays open (30 s). After that time it lets Probes (1) tasks
	// through at a time. One failed probe opens the breaker again. Successes (2) is how many
	// successful probes close it.
	Reset     time.Duration
	Probes    int
	Successes int
	// Lease is how long a probe may take to report (1 min) before another task may take its place.
	// A probe whose task has a longer AttemptTimeout may take that long. MaxRetryAfter (24 h)
	// limits how long one task that returns RetryAfter can keep the other tasks waiting.
	Lease         time.Duration
	MaxRetryAfter time.Duration
}

// BreakerInfo is the state of a circuit breaker.
type BreakerInfo struct {
	Name string
	// State is closed, open or half_open.
	State string
	Since time.Time
	// Until is the time before which no task passes. It is zero while tasks, or only probes, may
	// pass. Reason says why the breaker is not closed, or why it is paused. Paused means that an
	// operator paused the breaker or that a task returned RetryAfter.
	Until  time.Time
	Reason string
	Paused bool
	// Failures counts failures within the window. Probes counts the probes that run now.
	Failures, Probes int
	Rule             BreakerRule
}

// Breaker makes the outcomes of a task count for the circuit breaker of that name. While the
// breaker is open or paused, no process starts an attempt of the task, so the task uses up no
// attempts. While the breaker is half-open, only probes start. [Breakers.SetRule] says when the
// breaker opens.
func Breaker(name string) TaskOption {
	return taskOption{"Breaker", func(s *taskSettings) { s.breaker = name }}
}
