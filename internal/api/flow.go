package api

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

// Flow is how operators control tasks: limits, circuit breakers, paused queues. Each change is
// durable. The node that gets the call applies the change immediately, the other nodes soon after.
type Flow interface {
	// Limits returns the limits of a tenant, sorted by name, with the tasks that hold their permits
	// or wait for them.
	Limits(ctx context.Context, tenant string) ([]LimitStatus, error)
	// SetLimit creates a limit, or changes the limit of that name. It returns Invalid if the limit
	// makes no sense, and Conflict if the limit contradicts another limit. It returns NotFound if
	// no worker serves the queue and no task waits in it; anyQueue skips that check. A refused call
	// changes nothing. After an Unavailable error, the limit may be set. A disabled limit stays
	// disabled.
	SetLimit(ctx context.Context, tenant string, l Limit, anyQueue bool) error
	// TryLimit returns what a limit would do to the open tasks of a tenant, and sets nothing. It
	// refuses the same limits as SetLimit, but accepts any queue.
	TryLimit(ctx context.Context, tenant string, l Limit) (LimitTrial, error)
	// DeleteLimit removes a limit. Tasks that name the limit wait until a limit of that name exists
	// again.
	DeleteLimit(ctx context.Context, tenant, name string) error
	// DisableLimit turns a limit off until EnableLimit, and keeps its numbers. Tasks that name the
	// limit start as if they did not name it. DisableLimit returns NotFound if there is no such
	// limit. Disabling a disabled limit changes the reason.
	DisableLimit(ctx context.Context, tenant, name, why string) error
	// EnableLimit undoes DisableLimit. Tasks that have started in between count as holders.
	// EnableLimit returns Conflict if the limit contradicts another limit that was set in between.
	// Enabling an enabled limit does nothing.
	EnableLimit(ctx context.Context, tenant, name string) error
	// Breakers returns the circuit breakers of a tenant that have a state or that tasks of this
	// process have used, sorted by name.
	Breakers(ctx context.Context, tenant string) ([]BreakerStatus, error)
	// BreakerRules lists the rules that say when breakers open and close.
	BreakerRules(ctx context.Context, tenant string) ([]Breaker, error)
	// SetBreaker creates a rule, or changes the rule with the same name.
	SetBreaker(ctx context.Context, tenant string, b Breaker) error
	// DeleteBreaker removes a rule.
	DeleteBreaker(ctx context.Context, tenant, name string) error
	// TripBreaker opens a breaker, even if no task has used the breaker yet. It returns NotFound if
	// no breaker with this name is known. A breaker is known if it has a state, if a rule applies
	// to its name, or if an activity of a live worker names it.
	TripBreaker(ctx context.Context, tenant, name, why string) error
	// ResetBreaker closes a breaker and ends its pause. It returns NotFound if there is no such
	// breaker.
	ResetBreaker(ctx context.Context, tenant, name string) error
	// PauseBreaker stops all tasks at a breaker until a given time. A time in the past ends the
	// pause. Like TripBreaker, it returns NotFound for an unknown name.
	PauseBreaker(ctx context.Context, tenant, name string, until model.Time, why string) error
	// Allowance returns how much of the system a tenant may use.
	Allowance(ctx context.Context, tenant string) (Allowance, error)
	// SetAllowance changes how much of the system a tenant may use. A zero allowance removes all
	// bounds. If a client wants to start an execution, and the allowance has no room for it, the
	// client gets Exhausted.
	SetAllowance(ctx context.Context, tenant string, a Allowance) error
	// Queues lists the paused queues, the queues that this process serves, and the queues of its
	// tasks.
	Queues(ctx context.Context, tenant string) ([]QueueStatus, error)
	// PauseQueue stops all processes from starting tasks of a queue until ResumeQueue. Pausing a
	// paused queue only changes the reason. Resuming a running queue does nothing.
	PauseQueue(ctx context.Context, tenant, name, why string) error
	// ResumeQueue undoes PauseQueue.
	ResumeQueue(ctx context.Context, tenant, name string) error
}

// Scopes of limits say which of the selected tasks share one budget.
const (
	PerQueue = rule.PerQueue // each queue has its own budget
	PerKind  = rule.PerKind  // each activity has its own budget
	PerKey   = rule.PerKey   // each value of Key in the input has its own budget
	// Tasks name the limit themselves, with or without a key. Each key has its own budget.
	PerName = rule.PerName
)

// ScopeOf returns the scope for a word that users write: queue, activity, key or name. It does not
// check the word: SetLimit and TryLimit refuse a scope that does not exist.
func ScopeOf(word string) rule.Scope { return rule.ScopeOf(word) }

// Limit says how many tasks may run at a time, and how many may start per period. The engine stores
// the rule in this form. The calls of Flow ignore the field Tenant and use the tenant in their
// arguments. Per may be empty. Then a limit with a Key has the scope PerKey. A limit with neither
// Key, Queue nor Kind has the scope PerName. For any other limit, all selected tasks share one
// budget. SetLimit and TryLimit ignore Disabled and Why.
type Limit = rule.Limit

// Allowance is how much of the system a tenant may use.
type Allowance = rule.Allowance

// Numbers are the capacity of a limit.
type Numbers = limit.Numbers

// LimitStatus is a limit with the tasks that hold its permits or wait for them.
type LimitStatus struct {
	Rule Limit
	// Known is false if no process has said which tasks hold permits or wait for them. In that case
	// Uses is empty.
	Known bool
	// Uses has one entry for each key of the limit that is in use: tasks hold its permits or wait
	// for them. It adds up the answers of all processes that answered. If there are very many keys,
	// Uses has the keys with the most waiting tasks.
	Uses []LimitUse
	// Others counts the keys that Uses leaves out.
	Others OtherKeys
}

// OtherKeys counts several keys of a limit together. A key that several processes use may count
// once for each of them.
type OtherKeys struct{ Keys, Held, Waiting int }

// Bounds of a trial of a limit.
const (
	MaxTrialUses = 100  // keys of one answer
	MaxTrialRuns = 2000 // open executions whose tasks a trial reads
)

// LimitTrial is what a limit would do to tasks that are open now.
type LimitTrial struct {
	// Uses are the keys of the limit. Keys with the most tasks come first.
	Uses []TrialUse
	// Others counts the keys that Uses leaves out. Its field Waiting includes the delayed tasks.
	Others OtherKeys
	// Partial says that not all open tasks were counted, because there are too many.
	Partial bool
}

// TrialUse are the tasks that would share one budget of a limit.
type TrialUse struct {
	Key string
	// Held counts the running tasks, Waiting the tasks that could start now, and Delayed the tasks
	// that may not start yet.
	Held, Waiting, Delayed int
	// Excess is how many of the running and waiting tasks are more than the concurrency allows.
	// They would have to wait.
	Excess int
	// Clears is how long it would take to start all waiting tasks at the rate; 0 without a rate.
	Clears time.Duration
}

// LimitUse is the state of a limit, or of one of its keys.
type LimitUse struct {
	Key           string
	Held, Waiting int
	// Holders and Waiters list some of the tasks. Of the waiters, the tasks that have waited
	// longest come first.
	Holders, Waiters []model.TaskRef
}

// Breaker says when circuit breakers open and how they close again. It has the same fields as
// BreakerRule of package perdure, which documents them. The compiler checks that both types have
// equal fields.
type Breaker struct {
	Name                 string
	Failures             int
	Ratio                float64 // from 0 to 1
	Calls                int
	Window, Reset        time.Duration
	Probes, Successes    int
	Lease, MaxRetryAfter time.Duration
}

// BreakerStatus is the state of a breaker.
type BreakerStatus struct {
	Name string
	// State is closed, open or half_open. The breaker has had this state since Since. Until is when
	// the breaker lets tasks or probes start again, and Why says what holds them back; Until is
	// zero if tasks may start now. Held is true if a pause or a Retry-After holds tasks back.
	State        string
	Since, Until model.Time
	Why          string
	Held         bool
	// Failures and Calls count the outcomes that this process has seen within the window. Probes
	// counts the probes that run now, and Successes counts the probes that succeeded.
	Failures, Calls   int64
	Probes, Successes int
	// Rule is the rule that applies to the breaker, with its defaults filled in.
	Rule Breaker
}

// QueueStatus is the state of a queue, with the counts of this process.
type QueueStatus struct {
	Name                      string
	Paused                    bool
	Why                       string
	Here                      bool // this process has counts
	Waiting, Delayed, Claimed int
	// Oldest is the time at which the longest waiting task could have started; zero if no task
	// waits.
	Oldest         model.Time
	Workers, Slots int
}
