package perdure

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Limits lists, sets and deletes limits on tasks. They are stored and hold for all processes.
type Limits struct{ app *App }

// Limits operates the limits of the store.
func (a *App) Limits() Limits { return Limits{a} }

// List lists the limits by name.
func (l Limits) List(ctx context.Context) ([]LimitInfo, error) {
	found, err := l.app.cfg.Backend.Limits(ctx, model.DefaultTenant)
	if err != nil {
		return nil, public(err)
	}
	list := make([]LimitInfo, len(found))
	for i := range found {
		l := &found[i]
		list[i].LimitRule = limitRule(&l.Rule)
		list[i].Others = OtherKeys(l.Others)
		for _, u := range l.Uses {
			list[i].Uses = append(list[i].Uses, LimitUse{Key: u.Key, Held: u.Held, Waiting: u.Waiting, Holders: taskRefs(u.Holders), Waiters: taskRefs(u.Waiters)})
		}
	}
	return list, nil
}

// Set makes a limit, or changes the one of that name; tasks that run go on. A rule that makes no sense or contradicts another one is refused, and so is one for a queue
// that this process does not know: it serves none of that name, and no task waits in one. Nothing is changed then.
func (l Limits) Set(ctx context.Context, r LimitRule) error {
	limit := api.Limit{
		Name: r.Name, Queue: r.Queue, Kind: r.Activity, Key: r.Key,
		Numbers: api.Numbers{Concurrency: r.Concurrency, Rate: int64(r.Rate), Per: r.Period, Burst: int64(r.Burst)},
	}
	switch r.Per {
	case "":
	case perQueue:
		limit.Per = api.PerQueue
	case perActivity:
		limit.Per = api.PerKind
	default:
		return fault.New(fault.Invalid, "limit %s: Per is %q, must be empty, queue or activity", r.Name, r.Per)
	}
	if r.Per != "" && r.Key != "" {
		return fault.New(fault.Invalid, "limit %s is per %s and has a Key: one of both", r.Name, r.Per)
	}
	return public(l.app.cfg.Backend.SetLimit(ctx, model.DefaultTenant, limit, false))
}

// Delete removes a limit. Tasks of activities that name it wait until there is one again.
func (l Limits) Delete(ctx context.Context, name string) error {
	return public(l.app.cfg.Backend.DeleteLimit(ctx, model.DefaultTenant, name))
}

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

// LimitUse is how one key of a limit stands.
type LimitUse struct {
	Key           string
	Held, Waiting int
	// Holders and Waiters are the executions that some of the tasks belong to.
	Holders, Waiters []Ref
}

// OtherKeys are how many keys of a limit together stand how. A key that several processes use may be counted for each.
type OtherKeys struct{ Keys, Held, Waiting int }

// Limit has a task hold a permit of each of the named limits while it is executed, such as connections to a service. A limit is one for all
// processes of a store; [Limits.Set] says how much of it there is.
func Limit(names ...string) TaskOption {
	return taskOption{"Limit", func(s *taskSettings) {
		s.limits = slices.Clone(names)
		slices.Sort(s.limits)
		s.limits = slices.Compact(s.limits)
	}}
}

// What LimitRule.Per may say.
const (
	perQueue    = "queue"
	perActivity = "activity"
)

// limitRule is a stored limit as users see it. Its Per is empty where Key, or the lack of a Queue and an
// Activity, says it.
func limitRule(l *api.Limit) LimitRule {
	r := LimitRule{
		Name: l.Name, Queue: l.Queue, Activity: l.Kind, Key: l.Key, Concurrency: l.Numbers.Concurrency,
		Rate: int(l.Numbers.Rate), Period: l.Numbers.Per, Burst: int(l.Numbers.Burst),
	}
	switch l.Per {
	case api.PerKind:
		r.Per = perActivity
	case api.PerKey, api.PerName:
	default:
		r.Per = string(l.Per)
	}
	return r
}

func taskRefs(tasks []model.TaskRef) []Ref {
	refs := make([]Ref, len(tasks))
	for i := range tasks {
		refs[i] = Ref{Workflow: tasks[i].Address.Type, Key: tasks[i].Address.Key, Run: tasks[i].Run.String()}
	}
	return refs
}
