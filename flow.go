package perdure

import (
	"context"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// LimitRule is how many tasks may run at a time, and how many may begin in a time. Rules are stored, and may be changed while tasks run; see docs/flow.md.
type LimitRule struct {
	Name string
	// Queue and Activity select tasks: exactly, or by a beginning with * behind it; * alone selects all. When both are empty, activities name the limit themselves, by
	// the option Limit("name") or Limit("name/key"); each key has permits of its own.
	Queue, Activity string
	// Per says what the tasks that Queue and Activity select share: nothing for one limit for all of them, "queue" for one per queue, "activity" for one per activity.
	Per string
	// Key has tasks share a limit that have the same value there in their input: input.customer.id.
	Key string
	// Concurrency is how many may run at a time; 0 for any number.
	Concurrency int
	// Rate is how many may begin per Period; 0 for any number. Burst is how many of them may do so at once when none has for long; 1 when 0, which spreads them evenly.
	Rate   int
	Period time.Duration
	Burst  int
}

// LimitInfo is a limit, and who holds it.
type LimitInfo struct {
	LimitRule
	// Uses are the keys of the limit that tasks hold or wait for, in all processes; one without a key for a limit that has none. A process that does not answer within seconds is left out.
	Uses []LimitUse
	// Others are the keys beyond a thousand together: those that most tasks wait for are in Uses.
	Others OtherKeys
}

// OtherKeys are how many keys of a limit together stand how. A key that several processes use may be counted for each.
type OtherKeys struct{ Keys, Held, Waiting int }

// LimitUse is how one key of a limit stands.
type LimitUse struct {
	Key           string
	Held, Waiting int
	// Holders and Waiters are the executions that some of the tasks belong to.
	Holders, Waiters []Ref
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

// QueueInfo is how a queue stands. The numbers are those of this process: of tasks whose runs it owns, whoever executes them, and of its own workers.
type QueueInfo struct {
	Name    string
	Paused  bool
	Reason  string // why it is paused
	Waiting int    // could begin
	Delayed int    // will be able to, later
	Running int
	Workers int
	Slots   int
}

// Limits lists the limits by name.
func (a *App) Limits(ctx context.Context) ([]LimitInfo, error) {
	found, err := a.cfg.Backend.Limits(ctx, model.DefaultTenant)
	if err != nil {
		return nil, public(err)
	}
	list := make([]LimitInfo, len(found))
	for i := range found {
		l := &found[i]
		list[i].LimitRule = LimitRule{
			Name: l.Name, Queue: l.Queue, Activity: l.Kind, Per: l.Per, Key: l.Key, Concurrency: l.Concurrency, Rate: int(l.Rate), Period: l.Period, Burst: int(l.Burst),
		}
		switch l.Per {
		case api.PerKind:
			list[i].Per = perActivity
		case api.PerKey, api.PerName:
			list[i].Per = "" // follows from the rest
		}
		list[i].Others = OtherKeys(l.Others)
		for _, u := range l.Uses {
			list[i].Uses = append(list[i].Uses, LimitUse{Key: u.Key, Held: u.Held, Waiting: u.Waiting, Holders: taskRefs(u.Holders), Waiters: taskRefs(u.Waiters)})
		}
	}
	return list, nil
}

const perActivity = "activity"

func taskRefs(tasks []model.TaskRef) []Ref {
	refs := make([]Ref, len(tasks))
	for i := range tasks {
		refs[i] = Ref{Workflow: tasks[i].Address.Type, Key: tasks[i].Address.Key, Run: tasks[i].Run.String()}
	}
	return refs
}

// SetLimit makes a limit, or changes the one of that name; tasks that run go on. A rule that makes no sense or contradicts another one is refused, and so is one for a queue
// that this process does not know: it serves none of that name, and no task waits in one. Nothing is changed then.
func (a *App) SetLimit(ctx context.Context, r LimitRule) error {
	l := api.Limit{
		Name: r.Name, Queue: r.Queue, Kind: r.Activity, Key: r.Key, Concurrency: r.Concurrency, Rate: int64(r.Rate), Period: r.Period, Burst: int64(r.Burst),
	}
	switch r.Per {
	case "":
	case api.PerQueue:
		l.Per = api.PerQueue
	case perActivity:
		l.Per = api.PerKind
	default:
		return public(fault.New(fault.Invalid, "limit %s: Per is %q: nothing, queue or activity", r.Name, r.Per))
	}
	if r.Per != "" && r.Key != "" {
		return public(fault.New(fault.Invalid, "limit %s is per %s and has a Key: one of both", r.Name, r.Per))
	}
	return public(a.cfg.Backend.SetLimit(ctx, model.DefaultTenant, l, false))
}

// DeleteLimit removes a limit. Tasks of activities that name it wait until there is one again.
func (a *App) DeleteLimit(ctx context.Context, name string) error {
	return public(a.cfg.Backend.DeleteLimit(ctx, model.DefaultTenant, name))
}

// Breakers lists the circuit breakers that tasks have used, or that somebody has operated, by name.
func (a *App) Breakers(ctx context.Context) ([]BreakerInfo, error) {
	found, err := a.cfg.Backend.Breakers(ctx, model.DefaultTenant)
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

// BreakerRules lists the rules by which circuit breakers open and close. Those without a rule have the defaults.
func (a *App) BreakerRules(ctx context.Context) ([]BreakerRule, error) {
	found, err := a.cfg.Backend.BreakerRules(ctx, model.DefaultTenant)
	rules := make([]BreakerRule, len(found))
	for i := range found {
		rules[i] = BreakerRule(found[i])
	}
	return rules, public(err)
}

// SetBreaker makes a rule for circuit breakers, or changes the one of that name.
func (a *App) SetBreaker(ctx context.Context, r BreakerRule) error {
	return public(a.cfg.Backend.SetBreaker(ctx, model.DefaultTenant, api.Breaker(r)))
}

// DeleteBreaker removes a rule: the breakers have the defaults then, and activities that name none have none.
func (a *App) DeleteBreaker(ctx context.Context, name string) error {
	return public(a.cfg.Backend.DeleteBreaker(ctx, model.DefaultTenant, name))
}

// TripBreaker opens a circuit breaker as if enough tasks had failed.
func (a *App) TripBreaker(ctx context.Context, name, reason string) error {
	return public(a.cfg.Backend.TripBreaker(ctx, model.DefaultTenant, name, reason))
}

// ResetBreaker closes a circuit breaker and ends its pause.
func (a *App) ResetBreaker(ctx context.Context, name string) error {
	return public(a.cfg.Backend.ResetBreaker(ctx, model.DefaultTenant, name))
}

// PauseBreaker lets nothing through a circuit breaker before a time; one in the past ends the pause.
func (a *App) PauseBreaker(ctx context.Context, name string, until time.Time, reason string) error {
	if y := until.UTC().Year(); !until.IsZero() && (y < 1970 || y > 9999) {
		return public(fault.New(fault.Invalid, "pause breaker %s until the year %d: it lies between 1970 and 9999", name, y))
	}
	return public(a.cfg.Backend.PauseBreaker(ctx, model.DefaultTenant, name, model.TimeOf(until), reason))
}

// Queues lists the queues that this process serves, that tasks of it wait in, and that are paused.
func (a *App) Queues(ctx context.Context) ([]QueueInfo, error) {
	found, err := a.cfg.Backend.Queues(ctx, model.DefaultTenant)
	list := make([]QueueInfo, len(found))
	for i, q := range found {
		list[i] = QueueInfo{
			Name: q.Name, Paused: q.Paused, Reason: q.Why, Waiting: q.Waiting, Delayed: q.Delayed, Running: q.Claimed, Workers: q.Workers, Slots: q.Slots,
		}
	}
	return list, public(err)
}

// PauseQueue has no task of a queue begin, in any process, until ResumeQueue; those that run go on.
func (a *App) PauseQueue(ctx context.Context, name, reason string) error {
	return public(a.cfg.Backend.PauseQueue(ctx, model.DefaultTenant, name, strings.TrimSpace(reason)))
}

// ResumeQueue undoes PauseQueue. It is no mistake when the queue is not paused.
func (a *App) ResumeQueue(ctx context.Context, name string) error {
	return public(a.cfg.Backend.ResumeQueue(ctx, model.DefaultTenant, name))
}
