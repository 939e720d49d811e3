package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

const flowTag = "Queues, limits and breakers"

// addFlow adds the operations on queues, limits and the allowance of the tenant.
func (s *Server) addFlow() {
	add(s, operation{id: "list-queues", method: http.MethodGet, path: "/queues", tag: flowTag, summary: "List queues with their tasks and workers"}, s.listQueues)
	add(s, operation{id: "pause-queue", method: http.MethodPost, path: "/queues/{name}/pause", tag: flowTag, summary: "Pause a queue: start no further tasks of it", status: http.StatusNoContent}, s.pauseQueue)
	add(s, operation{id: "resume-queue", method: http.MethodPost, path: "/queues/{name}/resume", tag: flowTag, summary: "Resume a paused queue", status: http.StatusNoContent}, s.resumeQueue)
	add(s, operation{id: "list-workers", method: http.MethodGet, path: "/workers", tag: flowTag, summary: "List workers of all live nodes"}, s.listWorkers)
	add(s, operation{id: "list-limits", method: http.MethodGet, path: "/limits", tag: flowTag, summary: "List limits with the tasks that hold them or wait for them"}, s.listLimits)
	add(s, operation{id: "set-limit", method: http.MethodPut, path: "/limits/{name}", tag: flowTag, summary: "Create or change a limit", status: http.StatusNoContent}, s.setLimit)
	add(s, operation{id: "try-limit", method: http.MethodPost, path: "/limits/{name}/trial", tag: flowTag, summary: "Say what a limit would do to tasks that are open now, and set nothing"}, s.tryLimit)
	add(s, operation{id: "delete-limit", method: http.MethodDelete, path: "/limits/{name}", tag: flowTag, summary: "Remove a limit", status: http.StatusNoContent}, s.deleteLimit)
	add(s, operation{id: "disable-limit", method: http.MethodPost, path: "/limits/{name}/disable", tag: flowTag, summary: "Disable a limit: it bounds nothing, and keeps its numbers", status: http.StatusNoContent}, s.disableLimit)
	add(s, operation{id: "enable-limit", method: http.MethodPost, path: "/limits/{name}/enable", tag: flowTag, summary: "Enable a disabled limit", status: http.StatusNoContent}, s.enableLimit)
	add(s, operation{id: "get-allowance", method: http.MethodGet, path: "/allowance", tag: flowTag, summary: "Read how much of the system the tenant may use"}, s.allowance)
	add(s, operation{id: "set-allowance", method: http.MethodPut, path: "/allowance", tag: flowTag, summary: "Change how much of the system the tenant may use", status: http.StatusNoContent}, s.setAllowance)
}

// nothing is a request without parameters.
type nothing struct{}

// queue is the state of a queue.
type queue struct {
	Name     string     `json:"name"`
	Open     int        `json:"open"`
	Waiting  int        `json:"waiting"`
	Delayed  int        `json:"delayed"`
	Claimed  int        `json:"claimed"`
	Oldest   *time.Time `json:"oldest,omitempty" doc:"Since when the oldest waiting task waits"`
	Workers  int        `json:"workers"`
	Slots    int        `json:"slots"`
	Paused   bool       `json:"paused"`
	Unserved []string   `json:"unserved,omitempty" doc:"Activities that no live process executes"`
}

// queueList is the queues of a tenant.
type queueList struct {
	Items   []queue `json:"items"`
	Counted bool    `json:"counted" doc:"Whether the owners of all shards have answered; if not, the counts come from the store"`
}

func (s *Server) listQueues(ctx context.Context, who *authn.Identity, _ *nothing) (*reply[queueList], error) {
	got, err := s.config.Backend.ListQueues(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	shape := func(q *api.QueueInfo) queue {
		return queue{q.Name, q.Open, q.Waiting, q.Delayed, q.Claimed, at(q.Oldest), q.Workers, q.Slots, q.Paused, q.Unserved}
	}
	return ok(queueList{each(got.Queues, shape), got.Counted})
}

// NamePath names a setting.
type NamePath struct {
	Name string `path:"name" example:"mails"`
}

type namedReason struct {
	NamePath

	Body *reasonBody `required:"false"`
}

// why returns the reason of a request.
func (in *namedReason) why() string {
	if in.Body == nil {
		return ""
	}
	return in.Body.Reason
}

func (s *Server) pauseQueue(ctx context.Context, who *authn.Identity, in *namedReason) (*none, error) {
	return done(s.config.Backend.PauseQueue(ctx, who.Tenant, in.Name, in.why()))
}

func (s *Server) resumeQueue(ctx context.Context, who *authn.Identity, in *NamePath) (*none, error) {
	return done(s.config.Backend.ResumeQueue(ctx, who.Tenant, in.Name))
}

// worker is a worker of a node.
type worker struct {
	Node       string   `json:"node"`
	Host       string   `json:"host"`
	Name       string   `json:"name,omitempty"`
	Version    string   `json:"version,omitempty"`
	Workflows  []string `json:"workflows,omitempty"`
	Entities   []string `json:"entities,omitempty"`
	Queues     []string `json:"queues,omitempty"`
	Activities []string `json:"activities,omitempty"`
	Slots      int      `json:"slots,omitempty"`
	Limits     []string `json:"limits,omitempty"`
	Breakers   []string `json:"breakers,omitempty"`
	Draining   bool     `json:"draining,omitempty"`
	Alike      int      `json:"alike,omitempty" doc:"How many other remote workers offer the same"`
}

func (s *Server) listWorkers(ctx context.Context, who *authn.Identity, _ *nothing) (*reply[page[worker]], error) {
	got, err := s.config.Backend.ListWorkers(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	shape := func(w *api.WorkerInfo) worker {
		entities := each(w.Entities, func(t *string) string { return entityWord(*t) })
		return worker{w.Node.String(), w.Host, w.Name, w.Version, w.Workflows, entities, w.Queues, w.Activities, w.Slots, w.Limits, w.Breakers, w.Draining, w.Alike}
	}
	return ok(page[worker]{Items: each(got, shape)})
}

// LimitRule says which tasks a limit bounds, and how many of them may run or start.
type LimitRule struct {
	Queue       string `json:"queue,omitempty" doc:"Only tasks of this queue; a prefix ends with *"`
	Activity    string `json:"activity,omitempty" doc:"Only tasks of this activity; a prefix ends with *"`
	Per         string `json:"per,omitempty" enum:"queue,activity,key,name" doc:"Which of the selected tasks share one budget: tasks of the same queue, tasks of the same activity, tasks with the same value of key, or tasks that name this limit with the same key. If empty, all selected tasks share one budget; but with a key, empty means key, and with neither key, queue nor activity, it means name"`
	Key         string `json:"key,omitempty" doc:"An expression on the input; tasks with the same value share a budget"`
	Concurrency int    `json:"concurrency,omitempty" minimum:"0" doc:"How many tasks may run at a time"`
	Rate        string `json:"rate,omitempty" example:"100/1m" doc:"How many tasks may start in a period"`
	Burst       int64  `json:"burst,omitempty" minimum:"0"`
}

// limit is a limit with the tasks that use it.
type limit struct {
	LimitRule

	Name     string    `json:"name"`
	Disabled bool      `json:"disabled,omitempty" doc:"The limit bounds nothing"`
	Reason   string    `json:"reason,omitempty" doc:"Why it is disabled"`
	Uses     []use     `json:"uses,omitempty" doc:"The keys with the most waiting tasks"`
	Others   otherKeys `json:"others" doc:"The keys that are not listed"`
}

type use struct {
	Key     string   `json:"key,omitempty"`
	Held    int      `json:"held"`
	Waiting int      `json:"waiting"`
	Holders []string `json:"holders,omitempty"`
	Waiters []string `json:"waiters,omitempty"`
}

type otherKeys struct {
	Keys    int `json:"keys"`
	Held    int `json:"held"`
	Waiting int `json:"waiting"`
}

func (s *Server) listLimits(ctx context.Context, who *authn.Identity, _ *nothing) (*reply[page[limit]], error) {
	got, err := s.config.Backend.Limits(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	return ok(page[limit]{Items: each(got, limitOf)})
}

func limitOf(l *api.LimitStatus) limit {
	r, n := &l.Rule, &l.Rule.Numbers
	o := limit{Name: r.Name, Disabled: r.Disabled, Reason: r.Why, Others: otherKeys(l.Others)}
	o.LimitRule = LimitRule{r.Queue, r.Kind, r.Per.Word(), r.Key, n.Concurrency, rule.FormatRate(n.Rate, n.Per), n.Burst}
	name := func(t *model.TaskRef) string { return nameOf(t.Address) }
	for _, u := range l.Uses {
		o.Uses = append(o.Uses, use{u.Key, u.Held, u.Waiting, each(u.Holders, name), each(u.Waiters, name)})
	}
	return o
}

type setLimitInput struct {
	NamePath

	AnyQueue bool `query:"any_queue" doc:"Accept a queue that no worker serves"`
	Body     LimitRule
}

func (s *Server) setLimit(ctx context.Context, who *authn.Identity, in *setLimitInput) (*none, error) {
	l, err := in.Body.limit(in.Name)
	if err != nil {
		return nil, err
	}
	return done(s.config.Backend.SetLimit(ctx, who.Tenant, l, in.AnyQueue))
}

// limit returns the limit as the engine stores it.
func (b *LimitRule) limit(name string) (l api.Limit, err error) {
	l = api.Limit{Name: name, Queue: b.Queue, Kind: b.Activity, Per: api.ScopeOf(b.Per), Key: b.Key}
	l.Numbers.Concurrency, l.Numbers.Burst = b.Concurrency, b.Burst
	if b.Rate != "" {
		l.Numbers.Rate, l.Numbers.Per, err = rule.ParseRate(b.Rate)
	}
	return l, err
}

type tryLimitInput struct {
	NamePath

	Body LimitRule
}

// limitTrial is what a limit would do.
type limitTrial struct {
	Uses    []trialUse `json:"uses" doc:"The keys with the most tasks first; at most 100"`
	Others  otherKeys  `json:"others" doc:"The keys that are not listed"`
	Partial bool       `json:"partial" doc:"Not all open tasks were counted, because there are too many"`
}

type trialUse struct {
	Key     string `json:"key,omitempty"`
	Held    int    `json:"held" doc:"Tasks that run"`
	Waiting int    `json:"waiting" doc:"Tasks that could start now"`
	Delayed int    `json:"delayed" doc:"Tasks that may not start yet"`
	Excess  int    `json:"excess" doc:"How many of the tasks that run or could start now would have to wait, because of the concurrency"`
	Clears  string `json:"clears,omitempty" doc:"How long it would take until all tasks that could start now have started, because of the rate"`
}

func (s *Server) tryLimit(ctx context.Context, who *authn.Identity, in *tryLimitInput) (*reply[limitTrial], error) {
	l, err := in.Body.limit(in.Name)
	if err != nil {
		return nil, err
	}
	got, err := s.config.Backend.TryLimit(ctx, who.Tenant, l)
	if err != nil {
		return nil, err
	}
	return ok(limitTrial{Others: otherKeys(got.Others), Partial: got.Partial, Uses: each(got.Uses, func(u *api.TrialUse) trialUse {
		return trialUse{u.Key, u.Held, u.Waiting, u.Delayed, u.Excess, writeDuration(u.Clears)}
	})})
}

func (s *Server) deleteLimit(ctx context.Context, who *authn.Identity, in *NamePath) (*none, error) {
	return done(s.config.Backend.DeleteLimit(ctx, who.Tenant, in.Name))
}

func (s *Server) disableLimit(ctx context.Context, who *authn.Identity, in *namedReason) (*none, error) {
	return done(s.config.Backend.DisableLimit(ctx, who.Tenant, in.Name, in.why()))
}

func (s *Server) enableLimit(ctx context.Context, who *authn.Identity, in *NamePath) (*none, error) {
	return done(s.config.Backend.EnableLimit(ctx, who.Tenant, in.Name))
}

// Allowance is how much of the system a tenant may use.
type Allowance struct {
	Open      int64  `json:"open,omitempty" doc:"The maximum number of open executions"`
	Starts    int64  `json:"starts,omitempty" doc:"The maximum number of starts per second on each node"`
	Weight    int    `json:"weight,omitempty" doc:"The share of this tenant when tasks of several tenants wait for the same workers"`
	Retention string `json:"retention,omitempty" example:"720h" doc:"How long closed executions are kept"`
}

func allowanceOf(a *api.Allowance) Allowance {
	return Allowance{a.Open, a.Starts, a.Weight, writeDuration(a.Retention)}
}

func (s *Server) allowance(ctx context.Context, who *authn.Identity, _ *nothing) (*reply[Allowance], error) {
	a, err := s.config.Backend.Allowance(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	return ok(allowanceOf(&a))
}

type allowanceInput struct{ Body Allowance }

func (s *Server) setAllowance(ctx context.Context, who *authn.Identity, in *allowanceInput) (*none, error) {
	retention, err := readDuration("retention", in.Body.Retention)
	if err != nil {
		return nil, err
	}
	a := api.Allowance{Open: in.Body.Open, Starts: in.Body.Starts, Weight: in.Body.Weight, Retention: retention}
	return done(s.config.Backend.SetAllowance(ctx, who.Tenant, a))
}
