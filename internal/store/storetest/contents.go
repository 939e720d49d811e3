package storetest

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Scope names the things that Read cannot find itself, because the port cannot list them: tenants,
// remembered requests, and the rows of runs that do not exist.
type Scope struct {
	Tenants  []string
	Runs     []store.RunKey
	Tasks    []store.RunKey // runs whose tasks have reported or logged something
	Requests []store.RequestKey
}

// Note adds all runs, requests and tenants that a batch names.
func (s *Scope) Note(b *store.Batch) {
	tenant := func(name string) {
		if !slices.Contains(s.Tenants, name) {
			s.Tenants = append(s.Tenants, name)
		}
	}
	for i := range b.Starts {
		tenant(b.Starts[i].Start.Address.Tenant)
		s.Runs = append(s.Runs, store.RunKey{Shard: b.Starts[i].Shard, Run: b.Starts[i].Start.Run})
	}

	for i := range b.Events {
		s.Runs = append(s.Runs, b.Events[i].RunKey)
	}
	for i := range b.Dead {
		tenant(b.Dead[i].Body.Address.Tenant)
	}
	for i := range b.TaskData {
		s.Tasks = append(s.Tasks, b.TaskData[i].RunKey)
	}
	for i := range b.Logs {
		s.Tasks = append(s.Tasks, b.Logs[i].RunKey)
	}
	for i := range b.Entities {
		tenant(b.Entities[i].Entity.Address.Tenant)
	}

	for i := range b.Requests {
		tenant(b.Requests[i].Address.Tenant)
		s.Requests = append(s.Requests, b.Requests[i].RequestKey)
	}

	s.Runs, s.Tasks, s.Requests = unique(s.Runs, compareKeys), unique(s.Tasks, compareKeys), unique(s.Requests, compareRequests)
}

// unique sorts a slice and drops duplicates.
func unique[T comparable](in []T, compare func(a, b T) int) []T {
	slices.SortFunc(in, compare)
	return slices.Compact(in)
}

func compareKeys(a, b store.RunKey) int {
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), a.Run.Compare(b.Run))
}

func compareRequests(a, b store.RequestKey) int {
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Address.Tenant, b.Address.Tenant),
		cmp.Compare(a.Address.Type, b.Address.Type), cmp.Compare(a.Address.Key, b.Address.Key), cmp.Compare(a.ID, b.ID))
}

func compareTimers(a, b store.Timer) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), a.Run.Compare(b.Run), cmp.Compare(a.ID, b.ID))
}

func compareMessages(a, b store.MessageRow) int {
	return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From), cmp.Compare(a.Seq, b.Seq))
}

// Contents is everything that can be read from a store within a scope, in an order that does not
// depend on the adapter. It leaves out lease times.
type Contents struct {
	Executions []store.Execution
	Runnable   []store.RunHead
	Expired    []store.RunHead // every closed run
	Events     []History
	Labels     []store.LabelRow
	Dead       []store.DeadRow
	TaskData   []store.TaskDatum
	Logs       []store.LogRow
	Timers     []store.Timer
	Entities   []model.Entity
	Mailbox    []store.MailboxRow
	Messages   []store.MessageRow
	Inbox      []store.InboxRow
	Replies    []store.Reply
	// Owners are the shards that are not free.
	Owners  []store.ShardOwner
	Members []model.NodeID
}

// History is the stored events of a run.
type History struct {
	Run    store.RunKey
	Events []model.Event
}

// Read reads the contents of a store.
func Read(ctx context.Context, s store.Store, scope Scope) (Contents, error) {
	r := reader{ctx: ctx, s: s}
	for i := range s.Info().Shards {
		r.shards = append(r.shards, model.ShardID(i))
	}

	var c Contents
	for _, tenant := range scope.Tenants {
		c.Executions = append(c.Executions, r.executions(tenant)...)
		c.Dead = append(c.Dead, r.dead(tenant)...)
		c.Entities = append(c.Entities, r.entities(tenant)...)
	}

	runs := slices.Clone(scope.Runs)
	for i := range c.Executions {
		runs = append(runs, store.RunKey{Shard: c.Executions[i].Shard, Run: c.Executions[i].Start.Run})
	}

	for _, key := range unique(runs, compareKeys) {
		if events := r.events(key); len(events) > 0 {
			c.Events = append(c.Events, History{key, events})
		}
	}

	for _, key := range scope.Tasks {
		c.TaskData = append(c.TaskData, call(&r, func() ([]store.TaskDatum, error) { return s.LoadTaskData(ctx, key, store.DataRange{}) })...)
		c.Logs = append(c.Logs, r.logs(key)...)
	}

	c.Labels = call(&r, func() ([]store.LabelRow, error) { return s.LoadLabels(ctx, unique(runs, compareKeys)) })
	c.Runnable, c.Expired, c.Timers, c.Mailbox = r.runnable(), r.expiredRuns(), r.timers(), r.mailbox()
	const all = 1 << 20
	c.Messages = call(&r, func() ([]store.MessageRow, error) { return messagesOf(ctx, s, r.shards, all) })
	slices.SortStableFunc(c.Messages, compareMessages)
	c.Inbox = call(&r, func() ([]store.InboxRow, error) { return inboxOf(ctx, s, r.shards, model.MaxTime, all) })
	c.Replies = call(&r, func() ([]store.Reply, error) { return s.LoadReplies(ctx, scope.Requests) })
	slices.SortFunc(c.Replies, func(a, b store.Reply) int { return compareRequests(a.RequestKey, b.RequestKey) })

	view := call(&r, func() (store.View, error) { return s.Members(ctx) })
	for _, o := range view.Owners {
		if !o.Node.IsZero() {
			c.Owners = append(c.Owners, o)
		}
	}

	for i := range view.Members {
		c.Members = append(c.Members, view.Members[i].ID)
	}
	slices.SortFunc(c.Members, func(a, b model.NodeID) int { return cmp.Compare(string(a[:]), string(b[:])) })
	return c, r.err
}

// reader reads page after page and keeps the first error.
type reader struct {
	ctx    context.Context // lives as long as one call of Read
	s      store.Store
	shards []model.ShardID
	calls  int
	err    error
}

// page is small, so that reading the contents is also a test of paging.
const page = 7

// call calls f unless an earlier call has failed. Pages that do not end are an error too, so that a
// broken store does not hang its test.
func call[T any](r *reader, f func() (T, error)) (out T) {
	const most = 100_000
	if r.calls++; r.calls > most && r.err == nil {
		r.err = fmt.Errorf("%d calls to read everything: pages do not end", most)
	}
	if r.err != nil {
		return out
	}
	out, r.err = f()
	return out
}

func (r *reader) executions(tenant string) (out []store.Execution) {
	q := store.Query{Tenant: tenant, AllRuns: true, Limit: page}
	for {
		p := call(r, func() (store.Page, error) { return r.s.List(r.ctx, q) })
		out = append(out, p.Executions...)
		if !p.More || len(p.Executions) == 0 {
			return out
		}
		last := p.Executions[len(p.Executions)-1].Start
		q.After = store.PageMark{Started: last.At, Run: last.Run}
	}
}

func (r *reader) events(key store.RunKey) (out []model.Event) {
	after := int64(0)
	for {
		p := call(r, func() ([]model.Event, error) { return r.s.LoadEvents(r.ctx, key, after, page, 1<<20) })
		if len(p) == 0 {
			return out
		}
		out, after = append(out, p...), p[len(p)-1].Seq
	}
}

func (r *reader) dead(tenant string) (out []store.DeadRow) {
	q := store.DeadQuery{Tenant: tenant, Limit: page}
	for {
		p := call(r, func() (store.DeadPage, error) { return r.s.ListDead(r.ctx, q) })
		out = append(out, p.Rows...)
		if !p.More || len(p.Rows) == 0 {
			return out
		}
		q.After = p.Rows[len(p.Rows)-1].Place()
	}
}

func (r *reader) logs(key store.RunKey) (out []store.LogRow) {
	var after store.LogPlace
	for {
		p := call(r, func() ([]store.LogRow, error) { return r.s.LoadLogs(r.ctx, key, "", after, page) })
		if len(p) == 0 {
			return out
		}
		out, after = append(out, p...), p[len(p)-1].Place()
	}
}

func (r *reader) runnable() (out []store.RunHead) {
	var after store.RunKey
	for {
		p := call(r, func() ([]store.RunHead, error) { return r.s.LoadRunnable(r.ctx, r.shards, after, page) })
		if len(p) == 0 {
			return out
		}
		out, after = append(out, p...), p[len(p)-1].RunKey
	}
}

func (r *reader) expiredRuns() []store.RunHead {
	q := store.ExpiredRequest{Shards: r.shards, ClosedBefore: model.MaxTime, Now: model.MaxTime, Limit: 1 << 20}
	out := call(r, func() (store.Expired, error) { return r.s.LoadExpired(r.ctx, q) }).Runs
	for q.Limit = page; ; { // every page has the runs with their own removal time
		p := call(r, func() (store.Expired, error) { return r.s.LoadExpired(r.ctx, q) })
		out = append(out, p.Runs...)
		if q.After = p.Next; q.After == (store.RunKey{}) {
			return unique(out, func(a, b store.RunHead) int { return a.Compare(b.RunKey) })
		}
	}
}

func (r *reader) timers() (out []store.Timer) {
	var after store.TimerMark
	for {
		p := call(r, func() ([]store.Timer, error) {
			return r.s.LoadTimers(r.ctx, r.shards, after, model.MaxTime, page)
		})
		if len(p) == 0 {
			return out
		}
		last := p[len(p)-1]
		out, after = append(out, p...), store.TimerMark{Due: last.Due, Run: last.Run, ID: last.ID}
	}
}

// entities lists the entities of a tenant. It checks that loading each entity by its address
// returns the same row.
func (r *reader) entities(tenant string) (out []model.Entity) {
	q := store.EntityQuery{Tenant: tenant, Limit: page}
	for {
		p := call(r, func() (store.EntityPage, error) { return r.s.ListEntities(r.ctx, q) })
		for i := range p.Entities {
			key := store.EntityKey{Shard: p.Entities[i].Address.Shard(len(r.shards)), Address: p.Entities[i].Address}
			loaded := call(r, func() (store.LoadedEntity, error) { return r.s.LoadEntity(r.ctx, key, 1, 1) })
			if d := Diff(&p.Entities[i], loaded.Entity); d != "" && r.err == nil {
				r.err = fault.New(fault.Corrupt, "%s is not listed as it is loaded (-listed +loaded):\n%s", key.Address, d)
			}
		}
		out = append(out, p.Entities...)
		if !p.More || len(p.Entities) == 0 {
			return out
		}
		q.After = p.Entities[len(p.Entities)-1].Address
	}
}

// mailbox reads the mailboxes of all entities. It reads the first items of a mailbox together with
// the entity, and then the other items.
func (r *reader) mailbox() (out []store.MailboxRow) {
	var after store.EntityKey
	for {
		keys := call(r, func() ([]store.EntityKey, error) { return r.s.LoadMailboxes(r.ctx, r.shards, after, page) })
		if len(keys) == 0 {
			return out
		}

		for _, key := range keys {
			loaded := call(r, func() (store.LoadedEntity, error) { return r.s.LoadEntity(r.ctx, key, page, 1<<20) })
			items := loaded.Mailbox
			for more := loaded.More; more && len(items) > 0; {
				next := call(r, func() ([]model.MailboxItem, error) {
					return r.s.LoadMailbox(r.ctx, key, items[len(items)-1].Seq, page, 1<<20)
				})
				items, more = append(items, next...), len(next) > 0
			}
			for i := range items {
				out = append(out, store.MailboxRow{EntityKey: key, Item: items[i]})
			}
		}

		after = keys[len(keys)-1]
	}
}

// Note remembers what a batch names, so that Contents reads it.
func (f *Fixture) Note(b *store.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scope.Note(b)
}

// Contents reads everything that the fixture has written.
func (f *Fixture) Contents() Contents {
	f.Helper()
	f.mu.Lock()
	scope := Scope{slices.Clone(f.scope.Tenants), slices.Clone(f.scope.Runs), slices.Clone(f.scope.Tasks), slices.Clone(f.scope.Requests)}
	f.mu.Unlock()
	c, err := Read(f.Context(), f.Store, scope)
	if err != nil {
		f.Fatalf("read the contents: %v", err)
	}
	return c
}

// Diff compares written values with read values. It returns the difference, or "" if there is none.
// It treats nil and empty as equal. It ignores the parts of an event that the stored form of a
// message does not have.
func Diff(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return "" // the usual case; this check is a hundred times faster
	}
	return gocmp.Diff(want, got, cmpopts.EquateEmpty(), gocmp.FilterPath(inWith, gocmp.Ignore()))
}

// inWith selects position, time and kind of the events in Message.With. Package core sets these
// fields when the events become events of a run.
func inWith(p gocmp.Path) bool {
	const tail = 3 // .With, [i], .Kind
	if len(p) < tail {
		return false
	}
	switch p.Index(-1).String() {
	case ".Seq", ".At", ".Kind":
		return p.Index(-tail).String() == ".With"
	}
	return false
}

// Want reports an error, without ending the test, if the read value differs from the written value.
func (f *Fixture) Want(what string, want, got any) {
	f.Helper()
	if d := Diff(want, got); d != "" {
		f.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// result is the result of a call.
type result[T any] struct {
	value T
	err   error
}

// try wraps the result of a call.
func try[T any](v T, err error) result[T] { return result[T]{v, err} }

// or returns the value. An error ends the test.
func (r result[T]) or(t testing.TB) T {
	t.Helper()
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.value
}
