package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/audit"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// world is a log on a memory store, with a service that only reads. Calls that change something
// fail, and the log records the failures.
type world struct {
	t       *testing.T
	store   *brittle
	log     *audit.Log
	backend api.Backend
	admin   api.Admin
	now     time.Time
}

// brittle is a store that can refuse entries.
type brittle struct {
	store.Store

	mu   sync.Mutex
	left int // how many more entries it accepts; negative for any number
}

func (b *brittle) PutAudit(ctx context.Context, rows []store.AuditRow) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 {
		return store.Errorf(store.Refused, "put audit", "the disk is full")
	}
	if b.left > 0 {
		b.left--
	}
	return b.Store.PutAudit(ctx, rows)
}

// take sets how many more entries the store accepts.
func (b *brittle) take(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = n
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, store: &brittle{Store: memory.New(memory.Options{}), left: -1}, now: time.Now()}
	w.log = audit.New(audit.Config{Store: w.store, Now: func() time.Time { return w.now }})
	s := service.New(nil, w.store, service.Limits{})
	w.backend, w.admin = w.log.Backend(s), w.log.Admin(s.Admin(model.DefaultTenant))
	t.Cleanup(w.log.Close)
	return w
}

// live is a world with a node, whose calls succeed.
func live(t *testing.T) *world {
	t.Helper()
	w := &world{t: t}
	n, err := node.Open(t.Context(), node.Config{URL: "memory:", Shards: 2, Wrap: func(s store.Store) store.Store {
		w.store = &brittle{Store: s, left: -1}
		return w.store
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	w.log = n.Audit()
	w.backend, w.admin = w.log.Backend(n.Backend()), w.log.Admin(n.Admin(model.DefaultTenant))
	return w
}

// as returns the context of a call.
func (w *world) as(who authn.Identity) context.Context {
	return authn.WithCall(w.t.Context(), authn.Call{Identity: who, Door: authn.DoorGRPC, From: "10.0.0.1:5"})
}

func (w *world) list(r api.AuditRequest) []api.AuditEntry {
	w.t.Helper()
	page, err := w.admin.Audit(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return page.Entries
}

var ann = authn.Identity{Name: "key ann", Tenant: "acme"}

// The table has exactly one row for every action of package authz. Every recorded call is a method
// of that action, and every method of a recorded action is a recorded call.
func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	rows := map[authz.Action]audit.Row{}
	for _, r := range audit.Rows() {
		if _, twice := rows[r.Action]; twice || authz.ByAction(r.Action) == nil {
			t.Errorf("%s has two rows, or is no action", r.Action)
		}
		rows[r.Action] = r
	}

	for _, rule := range authz.Table() {
		r, ok := rows[rule.Action]
		if !ok {
			t.Errorf("%s has no row: is it recorded?", rule.Action)
			continue
		}
		if len(r.Calls) == 0 && r.Why == "" {
			t.Errorf("%s is not recorded, and no reason is given", rule.Action)
		}
		if changes := rule.Group == authz.Operate || rule.Group == authz.Administer; changes && len(r.Calls) == 0 &&
			!strings.HasSuffix(string(rule.Action), ":read") && rule.Action != "token:create" {
			t.Errorf("%s is in group %s and is not recorded", rule.Action, rule.Group)
		}
		for _, m := range rule.Methods {
			name, native := strings.CutPrefix(m, "/perdure.v1.ClientService/")
			if !native {
				name, native = strings.CutPrefix(m, "/perdure.v1.AdminService/")
			}
			if native && len(r.Calls) > 0 && !slices.Contains(r.Calls, name) {
				t.Errorf("%s: %s is not recorded", rule.Action, m)
			}
		}
		for _, call := range r.Calls {
			restOnly := len(rule.Methods) == 0 && len(rule.Operations) > 0
			if !restOnly && !slices.ContainsFunc(rule.Methods, func(m string) bool { return strings.HasSuffix(m, "/"+call) }) {
				t.Errorf("%s: %s is no method of it", rule.Action, call)
			}
		}
	}
}

// Every call that the table names leaves exactly one entry, even if the call fails, as it does in
// this test.
func TestEveryCallIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := w.as(ann)
	for _, r := range audit.Rows() {
		for _, call := range r.Calls {
			m := reflect.ValueOf(w.backend).MethodByName(call)
			if !m.IsValid() {
				m = reflect.ValueOf(w.admin).MethodByName(call)
			}
			before := len(w.list(api.AuditRequest{}))
			m.Call(arguments(ctx, m.Type()))
			all := w.list(api.AuditRequest{})
			if len(all) != before+1 {
				t.Errorf("%s leaves %d entries, want 1", call, len(all)-before)
				continue
			}
			if e := all[0]; e.Call != call || e.Action != string(r.Action) || e.Caller != "key ann" || e.CallerTenant != "acme" || e.Door != "grpc" || e.From != "10.0.0.1:5" ||
				e.Resource == "" || e.At.IsZero() || e.Outcome != api.AuditFailed && e.Outcome != api.AuditDenied || e.Error == "" {
				t.Errorf("%s: %+v", call, e)
			}
		}
	}
}

// arguments returns arguments for a call. The log records some calls only for certain arguments,
// such as a call of a schedule or of a mailbox.
func arguments(ctx context.Context, m reflect.Type) []reflect.Value {
	in := []reflect.Value{reflect.ValueOf(ctx)}
	for i := 1; i < m.NumIn(); i++ {
		v := reflect.New(m.In(i)).Elem()
		if m.In(i).Kind() == reflect.Slice {
			v.Set(reflect.MakeSlice(m.In(i), 1, 1))
			fill(v.Index(0))
		}
		fill(v)
		in = append(in, v)
	}
	return in
}

func fill(v reflect.Value) {
	if v.Kind() != reflect.Struct {
		return
	}
	if f := v.FieldByName("Do"); f.IsValid() {
		f.SetString(model.MailboxDrop)
	}
	schedule := model.Address{Tenant: "acme", Type: "perdure.schedule", Key: "nightly"}
	if f := v.FieldByName("Address"); f.IsValid() && f.Type() == reflect.TypeFor[model.Address]() {
		f.Set(reflect.ValueOf(schedule))
	}
	if f := v.FieldByName("Target"); f.IsValid() && f.Type() == reflect.TypeFor[api.Target]() {
		f.Set(reflect.ValueOf(api.Target{Address: schedule}))
	}
}

// Calls of programs, reads and dry runs leave no entry, and neither does a call without a caller.
func TestWhatIsNotRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := w.as(ann)
	order := api.Target{Address: model.Address{Tenant: "acme", Type: "order", Key: "1"}}
	_, _ = w.backend.Start(ctx, api.StartRequest{Address: order.Address})
	_, _ = w.backend.StartMany(ctx, []api.StartRequest{{Address: order.Address}})
	_ = w.backend.Signal(ctx, api.SignalRequest{Target: order})
	_, _ = w.backend.Mailbox(ctx, api.MailboxRequest{Do: model.MailboxList})
	_, _ = w.backend.Signals(ctx, api.SignalsRequest{Do: model.MailboxShow})
	_, _ = w.backend.Delete(ctx, api.DeleteRequest{Target: order, DryRun: true})
	_, _ = w.backend.Fork(ctx, api.PastRequest{Source: order, DryRun: true})
	_, _ = w.backend.Requeue(ctx, api.RequeueRequest{DryRun: true})
	_, _ = w.admin.Tenants(ctx)
	_ = w.backend.Terminate(t.Context(), api.CancelRequest{Target: order})
	if all := w.list(api.AuditRequest{}); len(all) != 0 {
		t.Errorf("recorded: %+v", all)
	}
}

// reads is an api.Admin that notes what is read from it.
type reads struct {
	api.Admin

	all []string
}

func (r *reads) Tenant(ctx context.Context, name string) (api.TenantInfo, error) {
	r.all = append(r.all, "Tenant")
	return r.Admin.Tenant(ctx, name)
}

func (r *reads) Keys(ctx context.Context, tenant string) ([]api.KeyInfo, error) {
	r.all = append(r.all, "Keys")
	return r.Admin.Keys(ctx, tenant)
}

func (r *reads) Logins(ctx context.Context, tenant string) ([]api.LoginInfo, error) {
	r.all = append(r.all, "Logins")
	return r.Admin.Logins(ctx, tenant)
}

func (r *reads) Settings(ctx context.Context, tenant, kind string) ([]api.Setting, error) {
	r.all = append(r.all, "Settings")
	return r.Admin.Settings(ctx, tenant, kind)
}

func (r *reads) WorkerSessions(ctx context.Context, tenant string) ([]api.WorkerSession, error) {
	r.all = append(r.all, "WorkerSessions")
	return r.Admin.WorkerSessions(ctx, tenant)
}

// The log reads the state before a call only if it records the call.
func TestStateBeforeUnrecordedCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := &reads{Admin: service.New(nil, w.store, service.Limits{}).Admin(model.DefaultTenant)}
	admin := w.log.Admin(r)
	for _, row := range audit.Rows() {
		for _, call := range row.Calls {
			if m := reflect.ValueOf(admin).MethodByName(call); m.IsValid() {
				r.all = nil
				m.Call(arguments(t.Context(), m.Type()))
				if len(r.all) > 0 {
					t.Errorf("%s reads %s, although the call is not recorded", call, r.all)
				}
			}
		}
	}

	r.all = nil
	_ = admin.EndLogin(w.as(ann), "x")
	_, _ = admin.SetSetting(w.as(ann), api.SettingChange{})
	_ = admin.DrainWorker(w.as(ann), api.DrainRequest{})
	if want := []string{"Logins", "Settings", "WorkerSessions"}; !slices.Equal(r.all, want) {
		t.Errorf("recorded calls read %s, want %s", r.all, want)
	}
}

// A message that a program delivers is recorded as the call that it stands for.
func TestDeliveredMessagesAreRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := w.as(ann)
	schedule, order := model.Address{Tenant: "acme", Type: "perdure.schedule", Key: "nightly"}, model.Address{Tenant: "acme", Type: "order", Key: "1"}
	for _, m := range []model.Message{
		{Kind: model.MessageStart, To: schedule},
		{Kind: model.MessageSignal, To: schedule, Name: "s"},
		{Kind: model.MessageCancel, To: order},
		{Kind: model.MessageStart, To: order},
		{Kind: model.MessageSignal, To: order, Name: "s"},
		{Kind: model.MessageCall, To: order},
	} {
		_ = w.backend.Deliver(ctx, &m)
	}

	var got []string
	for _, e := range w.list(api.AuditRequest{}) {
		got = append(got, e.Call+" "+e.Resource)
	}
	slices.Sort(got)
	if want := []string{"Cancel execution order/1", "Signal schedule nightly", "Start schedule nightly"}; !slices.Equal(got, want) {
		t.Errorf("recorded: %q, want %q", got, want)
	}
}

// If the log cannot record an action, the action does not happen. If it cannot record the outcome,
// the action has happened, and the outcome in its entry stays "unknown".
func TestActionsThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	w := live(t)
	ctx := w.as(authn.Identity{Name: "admin", Tenant: "default", Admin: true})
	w.store.take(0)
	_, err := w.admin.CreateTenant(ctx, api.TenantChange{Name: "acme"})
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "nothing was done") {
		t.Errorf("created: %v", err)
	}
	if _, err := w.admin.Tenant(ctx, "acme"); !fault.Is(err, fault.NotFound) {
		t.Errorf("the tenant: %v", err)
	}

	w.store.take(1)
	if _, err = w.admin.CreateTenant(ctx, api.TenantChange{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	w.store.take(-1)
	all := w.list(api.AuditRequest{Tenant: "acme"})
	if len(all) != 1 || all[0].Outcome != api.AuditUnknown {
		t.Errorf("entries: %+v", all)
	}
}

// An entry shows the old and the new value, and never a secret.
func TestBeforeAndAfter(t *testing.T) {
	t.Parallel()
	w := live(t)
	ctx := w.as(authn.Identity{Name: "admin", Tenant: "default", Admin: true})
	open := int64(7)
	try := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	try(w.admin.CreateTenant(ctx, api.TenantChange{Name: "acme", Note: new("first")}))
	try(w.admin.SetTenant(ctx, api.TenantChange{Name: "acme", Open: &open}))
	k, err := w.admin.CreateKey(ctx, api.KeyRequest{Tenant: "acme", Roles: []string{"worker"}})
	try(nil, err)
	try(nil, w.admin.RevokeKey(ctx, k.ID))
	try(nil, w.backend.SetLimit(ctx, "acme", api.Limit{Name: "smtp", Numbers: api.Numbers{Concurrency: 5}}, true))
	try(nil, w.backend.SetLimit(ctx, "acme", api.Limit{Name: "smtp", Numbers: api.Numbers{Concurrency: 6}}, true))
	try(nil, w.backend.DisableLimit(ctx, "acme", "smtp", "the quota is larger"))
	try(nil, w.backend.EnableLimit(ctx, "acme", "smtp"))

	var text strings.Builder
	all := w.list(api.AuditRequest{Tenant: "acme"})
	slices.Reverse(all)
	for _, e := range all {
		fmt.Fprintf(&text, "%s %s %s: %s -> %s\n", e.Call, e.Resource, e.Outcome, e.Before, e.After)
		for _, v := range [][]byte{e.Before, e.After} {
			if len(v) > 0 && !json.Valid(v) {
				t.Errorf("%s is not JSON", v)
			}
		}
	}
	got := strings.ReplaceAll(text.String(), k.ID, "ID")
	for _, want := range []string{
		`CreateTenant tenant acme done:  -> {"note":"first"`, `SetTenant tenant acme done: {"note":"first"`, `CreateKey key done:  -> {"id":"ID","roles":["worker"]}`,
		`RevokeKey key ID done: {"id":"ID","roles":["worker"]} -> ` + "\n", `SetLimit limit smtp done:  -> `, `"concurrency":5`, `"concurrency":6`,
		`DisableLimit limit smtp done: {"name":"smtp"`, `-> {"disabled":true}`, `EnableLimit limit smtp done: {"name":"smtp"`, `"reason":"the quota is larger"} -> {"disabled":false}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %s:\n%s", want, got)
		}
	}
	if strings.Contains(got, k.Secret) || strings.Contains(got, k.Secret[len(k.Secret)-20:]) {
		t.Error("the log has a secret")
	}
}

// Every text of an entry is bounded, and hostile bytes stay text.
func TestEntriesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := strings.Repeat("é\x00\xff\x1b[31m", 10_000)
	ctx := w.as(authn.Identity{Name: long, Tenant: "acme"})
	a := model.Address{Tenant: "acme", Type: "order", Key: long}
	_ = w.backend.Terminate(ctx, api.CancelRequest{Target: api.Target{Address: a}, Reason: long, RequestID: long})
	_ = w.backend.SetBreaker(ctx, "acme", api.Breaker{Name: long})

	for _, e := range w.list(api.AuditRequest{}) {
		if len(e.Caller) > audit.MaxName || len(e.Resource) > audit.MaxResource || len(e.Reason) > audit.MaxText || len(e.RequestID) > audit.MaxName ||
			len(e.Error) > audit.MaxText || len(e.After) > audit.MaxValue || len(e.Before) > audit.MaxValue {
			t.Errorf("%s is not bounded", e.Call)
		}
		if strings.ContainsAny(e.Caller+e.Resource+e.Reason, "\x00\x1b") {
			t.Errorf("%s has control characters", e.Call)
		}
	}
}

// The text of an error of user code may quote a payload, so the entry does not contain that text.
func TestErrorsOfCodeAreNotQuoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failing := &failing{Backend: w.backend, err: &model.Failure{Message: "the card 4111 was declined", Type: "declined"}}
	b := w.log.Backend(failing)
	_, err := b.Update(w.as(ann), api.UpdateRequest{Target: api.Target{Address: model.Address{Tenant: "acme", Type: "perdure.schedule", Key: "nightly"}}, Name: "pause"})
	if !errors.Is(err, failing.err) {
		t.Fatal(err)
	}
	e := w.list(api.AuditRequest{})[0]
	if strings.Contains(e.Error, "4111") || !strings.Contains(e.Error, "declined") || e.Resource != "schedule nightly" || string(e.After) != `{"verb":"pause"}` {
		t.Errorf("%+v", e)
	}
}

type failing struct {
	api.Backend

	err error
}

func (f *failing) Update(context.Context, api.UpdateRequest) (model.Payload, error) {
	return model.Payload{}, f.err
}

// The log records refused attempts once a minute per caller and action, with a count of the
// attempts in between. A caller that floods the log does not hide the attempts of another caller.
func TestRefusedAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.log.Authorizer(authz.Admins{}, authn.DoorREST)
	bob := authn.Identity{Name: "key bob", Tenant: "acme"}
	for range 1000 {
		if !fault.Is(a.Authorize(&ann, "tenant:write"), fault.Denied) {
			t.Fatal("admitted")
		}
	}
	_ = a.Authorize(&bob, "execution:terminate")
	_ = a.Authorize(&bob, "execution:read")  // not administrative
	_ = a.Authorize(&bob, "execution:start") // programs do this, so it is not administrative
	w.now = w.now.Add(time.Minute)
	_ = a.Authorize(&ann, "tenant:write")
	_ = authz.Quiet(a).Authorize(&bob, "key:write")
	w.log.Close()

	all := w.list(api.AuditRequest{Tenant: "acme", Outcome: api.AuditDenied})
	text := ""
	for _, e := range all {
		text += fmt.Sprintf("%s %s %s %d\n", e.Caller, e.Action, e.Door, e.Unrecorded)
	}
	if len(all) != 3 || !strings.Contains(text, "key ann tenant:write rest 999\n") || !strings.Contains(text, "key ann tenant:write rest 0\n") ||
		!strings.Contains(text, "key bob execution:terminate rest 0\n") {
		t.Errorf("refused:\n%s", text)
	}
}

// Callers of a tenant see the entries of their tenant only. Admins see all, page by page.
func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	boss := authn.Identity{Name: "admin", Tenant: "default", Admin: true}
	for i := range 25 {
		tenant := []string{"acme", "other"}[i%2]
		_ = w.backend.TripBreaker(w.as(authn.Identity{Name: fmt.Sprint("key ", i%5), Tenant: tenant}), tenant, fmt.Sprint("b", i), "why")
	}
	_ = w.admin.DrainWorker(w.as(boss), api.DrainRequest{Session: "s"})

	pages := func(ctx context.Context, r api.AuditRequest) (all []api.AuditEntry) {
		t.Helper()
		for {
			page, err := w.admin.Audit(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page.Entries...)
			if r.Cursor = page.Cursor; r.Cursor == "" {
				return all
			}
		}
	}
	for what, c := range map[string]struct {
		who  authn.Identity
		r    api.AuditRequest
		want int
	}{
		"all":             {boss, api.AuditRequest{Limit: 4}, 26},
		"of a tenant":     {boss, api.AuditRequest{Tenant: "acme", Limit: 3}, 13},
		"her own":         {ann, api.AuditRequest{Limit: 5}, 13},
		"by caller":       {boss, api.AuditRequest{Caller: "key 3"}, 5},
		"by action":       {boss, api.AuditRequest{Action: "session:drain"}, 1},
		"by group":        {boss, api.AuditRequest{Action: "breaker"}, 25},
		"by call":         {boss, api.AuditRequest{Action: "tripbreaker"}, 25},
		"by resource":     {ann, api.AuditRequest{Resource: "breaker b4"}, 1},
		"of another":      {ann, api.AuditRequest{Resource: "breaker b5"}, 0},
		"in the future":   {boss, api.AuditRequest{From: model.TimeOf(w.now.Add(time.Hour))}, 0},
		"before the test": {boss, api.AuditRequest{To: model.TimeOf(w.now.Add(-time.Hour))}, 0},
	} {
		got := pages(w.as(c.who), c.r)
		if len(got) != c.want {
			t.Errorf("%s: %d entries, want %d", what, len(got), c.want)
		}
		for i := 1; i < len(got); i++ {
			if got[i].ID.Compare(got[i-1].ID) >= 0 {
				t.Errorf("%s: entry %d is not older than the one before", what, i)
			}
		}
	}

	for what, r := range map[string]api.AuditRequest{"limit": {Limit: 1001}, "cursor": {Cursor: "x"}, "tenant": {Tenant: "a/b"}, "time": {From: -1}} {
		if _, err := w.admin.Audit(w.as(boss), r); !fault.Is(err, fault.Invalid) {
			t.Errorf("a bad %s: %v", what, err)
		}
	}
	if _, err := w.admin.Audit(w.as(ann), api.AuditRequest{Tenant: "other"}); !fault.Is(err, fault.Denied) {
		t.Errorf("another tenant: %v", err)
	}
}

// Concurrent actions share transactions, and each has its entry.
func TestConcurrentActions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() { _ = w.backend.DeleteLimit(w.as(ann), "acme", fmt.Sprint("l", i)) })
	}
	all.Wait()
	seen := map[string]bool{}
	for _, e := range w.list(api.AuditRequest{Limit: 1000}) {
		seen[e.Resource] = e.Outcome == api.AuditFailed
	}
	if len(seen) != 300 {
		t.Errorf("%d entries, want 300", len(seen))
	}
}

// stalled is a store that writes nothing before it is released.
type stalled struct {
	store.Audit

	released chan struct{}
}

func (s stalled) PutAudit(context.Context, []store.AuditRow) error {
	<-s.released
	return nil
}

// If a caller gives up while the store is away, its entry still waits to be written. The number of
// such entries is bounded.
func TestWaitingEntriesAreBounded(t *testing.T) {
	t.Parallel()
	s := stalled{released: make(chan struct{})}
	l := audit.New(audit.Config{Store: s})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var err error
	for n := 0; n < 20_000 && !fault.Is(err, fault.Exhausted); n++ {
		err = l.Note(ctx, api.AuditEntry{Caller: "server", Call: "test"})
	}
	if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "10000 entries") {
		t.Errorf("the last of 20,000 entries: %v", err)
	}
	close(s.released)
	l.Close()
}
