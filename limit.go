package perdure

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Limits lists, sets and deletes limits on tasks. The limits are stored and apply to all processes.
type Limits struct{ app *App }

// Limits returns the operations on the limits of the store.
func (a *App) Limits() Limits { return Limits{a} }

// List returns the limits, sorted by name. For each limit it returns the tasks, in all processes,
// that hold a permit of the limit or wait for one. It leaves out a process that does not answer
// within four seconds.
func (l Limits) List(ctx context.Context) ([]LimitInfo, error) {
	found, err := l.app.cfg.Backend.Limits(ctx, l.app.host.tenant)
	if err != nil {
		return nil, public(err)
	}
	list := make([]LimitInfo, len(found))
	for i := range found {
		l := &found[i]
		list[i].LimitRule = limitRule(&l.Rule)
		list[i].Disabled, list[i].Reason = l.Rule.Disabled, l.Rule.Why
		list[i].Others = OtherKeys(l.Others)
		for _, u := range l.Uses {
			list[i].Uses = append(list[i].Uses, LimitUse{Key: u.Key, Held: u.Held, Waiting: u.Waiting, Holders: taskRefs(u.Holders), Waiters: taskRefs(u.Waiters)})
		}
	}
	return list, nil
}

// Set creates a limit, or changes the limit of that name. Running tasks continue. Every process
// applies the change within seconds. A disabled limit stays disabled.
//
// Set returns ErrInvalid for a rule that makes no sense, ErrConflict for a rule that contradicts
// another rule, and ErrNotFound for a queue that has no workers and no waiting tasks. In these
// cases it changes nothing.
//
//	err := app.Limits().Set(ctx, perdure.LimitRule{Name: "smtp", Concurrency: 5})
func (l Limits) Set(ctx context.Context, r LimitRule) error {
	limit := api.Limit{
		Name: r.Name, Queue: r.Queue, Kind: r.Activity, Key: r.Key,
		Numbers: api.Numbers{Concurrency: r.Concurrency, Rate: int64(r.Rate), Per: r.Period, Burst: int64(r.Burst)},
	}

	switch limit.Per = api.ScopeOf(r.Per); r.Per {
	case "", api.PerQueue.Word(), api.PerKind.Word():
	default:
		return fault.New(fault.Invalid, "limit %s: Per is %q, must be empty, queue or activity", r.Name, r.Per)
	}

	if r.Per != "" && r.Key != "" {
		return fault.New(fault.Invalid, "limit %s is per %s and has a Key: give the rule Per or Key, not both", r.Name, r.Per)
	}
	return public(l.app.cfg.Backend.SetLimit(ctx, l.app.host.tenant, limit, false))
}

// Delete removes a limit. Tasks of activities that name the limit wait until an operator sets it
// again.
func (l Limits) Delete(ctx context.Context, name string) error {
	return public(l.app.cfg.Backend.DeleteLimit(ctx, l.app.host.tenant, name))
}

// Disable switches a limit off, and keeps its rule. Tasks that wait for the limit start, and so do
// later tasks that name the limit. Every process applies the change within seconds. Disable returns
// ErrNotFound if there is no such limit.
func (l Limits) Disable(ctx context.Context, name, reason string) error {
	return public(l.app.cfg.Backend.DisableLimit(ctx, l.app.host.tenant, name, reason))
}

// Enable undoes Disable. Tasks that have started in between continue, and the limit counts them. If
// a limit that was set in between contradicts this limit, Enable returns ErrConflict and changes
// nothing.
func (l Limits) Enable(ctx context.Context, name string) error {
	return public(l.app.cfg.Backend.EnableLimit(ctx, l.app.host.tenant, name))
}

// LimitRule says how many tasks may run at a time, and how many may start in a period. Rules are
// stored and may change while tasks run. All rules that select a task apply to it. See
// docs/flow.md.
type LimitRule struct {
	Name string
	// Queue and Activity select tasks: by the exact name, by a prefix followed by * ("mail*"), or
	// all of them with *. When both are empty, activities name the limit themselves with the option
	// Limit("name") or Limit("name/key"), and each key has permits of its own.
	Queue, Activity string
	// Per says which of the selected tasks share a limit. If it is empty, which is the default, all
	// of them share one limit. With "queue", the tasks of each queue share a limit. With
	// "activity", the tasks of each activity share a limit. A rule has Per or Key, not both.
	Per string
	// Key names a value in the input, such as input.customer.id. Tasks with the same value there
	// share a limit.
	Key string
	// Concurrency is how many tasks may run at a time. 0 means any number. A rule needs a
	// Concurrency, a Rate, or both.
	Concurrency int
	// Rate is how many tasks may start per Period. 0 means any number. Burst is how many tasks may
	// start at the same time after a pause. The default of Burst is 1, which spreads the tasks
	// evenly.
	Rate   int
	Period time.Duration
	Burst  int
}

// LimitInfo is a limit and its current use.
type LimitInfo struct {
	LimitRule
	// Disabled says that the limit is switched off. Reason is the reason that the operator gave, if
	// any.
	Disabled bool
	Reason   string
	// Uses has one entry for each key of the limit that is in use: in some process, a task holds a
	// permit of this key or waits for one. A limit without keys has one use without a key. A
	// process that does not answer within seconds is left out.
	Uses []LimitUse
	// Others counts the keys that Uses leaves out. Uses has at most a thousand keys: the keys with
	// the most waiting tasks.
	Others OtherKeys
}

// LimitUse says how tasks use one key of a limit.
type LimitUse struct {
	Key           string
	Held, Waiting int
	// Holders and Waiters are the executions of some of the tasks, up to 20 each.
	Holders, Waiters []Ref
}

// OtherKeys counts keys of a limit that LimitInfo does not name. A key that several processes use
// may be counted once per process.
type OtherKeys struct{ Keys, Held, Waiting int }

// Limit makes a task hold a permit of each named limit while it runs. All processes of a store
// share a limit; [Limits.Set] says how many permits it has. A task that names a limit without a
// rule waits until an operator sets the rule. With "name/key", the task holds a permit of that key
// of the limit.
//
//	perdure.NewActivity("mail", mail, perdure.OnQueue("mail"), perdure.Limit("smtp"))
func Limit(names ...string) TaskOption {
	return taskOption{"Limit", func(s *taskSettings) {
		s.limits = slices.Clone(names)
		slices.Sort(s.limits)
		s.limits = slices.Compact(s.limits)
	}}
}

// limitRule turns a stored limit into the form that users see. Per stays empty if the rule has a
// Key, or has neither a Queue nor an Activity.
func limitRule(l *api.Limit) LimitRule {
	r := LimitRule{
		Name: l.Name, Queue: l.Queue, Activity: l.Kind, Key: l.Key, Concurrency: l.Numbers.Concurrency,
		Rate: int(l.Numbers.Rate), Period: l.Numbers.Per, Burst: int(l.Numbers.Burst),
	}
	if l.Per != api.PerKey && l.Per != api.PerName {
		r.Per = l.Per.Word()
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
