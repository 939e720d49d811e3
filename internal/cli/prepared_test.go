package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/bench"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/store"
)

// prepared answers commands with fixed data: ids and times are always the same.
type prepared struct {
	api.Backend

	empty bool // the store is empty
	twins bool // the store has keys that people chose and that look like the beginning of a hash
}

func (p *prepared) Store() store.Store   { return nil }
func (p *prepared) Close() error         { return nil }
func (p *prepared) backend() api.Backend { return p }

// preparedSession is a session of prepared answers.
type preparedSession struct{ *prepared }

func (s preparedSession) Backend() api.Backend { return s.backend() }
func (s preparedSession) Admin() api.Admin     { return preparedAdmin{empty: s.empty} }

// connectTo returns a function that opens a store of prepared answers.
func connectTo(p *prepared) func(context.Context, node.Config, scope) (session, error) {
	return func(context.Context, node.Config, scope) (session, error) { return preparedSession{p}, nil }
}

// noon is a time in all answers. The other times are before or after noon.
var noon = model.TimeOf(time.Date(2026, 11, 15, 12, 0, 0, 123_456_000, time.UTC))

func after(d time.Duration) model.Time { return noon.Add(d) }

func runOf(n byte) (id model.RunID) {
	id = model.RunID{0x01, 0x93, 0xf2, 0xc1, 0x77, 0xaa, 0x7b, 0x3c, 0x9d, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06}
	id[15] = n
	return id
}

func addressOf(typ, key string) model.Address {
	return model.Address{Tenant: model.DefaultTenant, Type: typ, Key: key}
}

func jsonOf(v any) model.Payload {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return model.Payload{Data: data}
}

const (
	hashA = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	hashB = "44136fb0c1d2e3f405162738495a6b7c8d9eafb0c1d2e3f405162738495a6b7c"
	uuidA = "0193f2c1-77aa-7b3c-9d01-020304050607"
	prose = "the card was declined by the bank: insufficient funds, and the customer has not answered any of the three letters that were sent"
)

var (
	longText = strings.Repeat("lorem ipsum ", 400)
	declined = &model.Failure{Kind: "unavailable", Type: "*bank.Declined", Message: prose, Stack: "goroutine 1 [running]:\nmain.pay(…)", Permanent: true}
	mailSpec = &model.TaskSpec{
		Kind: "mail", Queue: "mails", Priority: 7, Fair: "ann", Weight: 2, Delay: 5 * time.Second, Retry: model.NewRetry(4, time.Second, time.Minute, 2, 0.1),
		Limits: []string{"smtp"}, Breaker: "bank", ToStart: time.Hour, ToClose: time.Minute, Silence: 10 * time.Second, Total: 2 * time.Hour,
	}
)

// executions are the executions of the store.
func (p *prepared) executions() []api.Description {
	if p.empty {
		return nil
	}
	reason := func(r ...model.Reason) []model.Reason { return r }
	running, labels := model.Outcome{Status: model.Running}, []model.Label{{Name: "region", Value: "eu"}, {Name: "tier", Value: "gold"}}

	var twins []api.Description
	if p.twins {
		for i, key := range []string{"44136fa355", "123456-eu"} {
			twins = append(twins, api.Description{Start: model.Start{Address: addressOf("order", key), Run: runOf(byte(20 + i)), At: noon}, Outcome: running, Current: true})
		}
	}

	return append(twins, []api.Description{
		{
			Shard: 7, Start: model.Start{Address: addressOf("order", "42"), Run: runOf(1), At: noon, Input: jsonOf(map[string]any{"cents": 4200, "text": longText})},
			Outcome: running, Current: true, Labels: labels, Owner: model.NodeID(runOf(9)), Events: 12,
			Reasons: reason(model.Reason{Code: model.WaitSignal, Name: "approved"}, model.Reason{Code: model.WaitRetry, Name: "charge", Attempt: 3, Until: after(time.Minute), Detail: prose}, model.Reason{Code: model.WaitPromise, Name: "receipt"}),
			Timers:  []api.Timer{{ID: "/1", Due: after(time.Hour)}},
			Chain:   []api.Link{{Subject: "order/" + hashA, Reason: model.Reason{Code: model.WaitSignal, Name: "paid"}}},
			Alive:   []string{"shop-1.example.com:4711 (node_069z5gbqn9xks781081g81861g) has order, " + prose},
			Tasks: []api.Task{
				{ID: "/2", Activity: "mail", Queue: "mails", Attempt: 2, Worker: "host-1", Since: after(time.Second), Failures: 1, Last: declined, Progress: jsonOf(0.5)},
				{ID: "/3", Activity: "charge", Queue: "default", Attempt: 1, Next: after(time.Minute)},
			},
		},
		{
			Shard: 3, Start: model.Start{
				Address: addressOf("order", hashA), Run: runOf(2), At: after(-time.Hour), Input: jsonOf("in"),
				Parent: model.Link{Address: addressOf("batch", "7"), ID: "/1"},
				Source: model.Source{Address: addressOf("order", "41"), Run: runOf(3), Position: 5},
			},
			Outcome: model.Outcome{Status: model.Failed, Failure: declined, At: noon}, Current: true, Events: 3,
		},
		{Shard: 3, Start: model.Start{Address: addressOf("order", hashB), Run: runOf(4), At: after(-2 * time.Hour), Begins: noon, Expires: noon, Attempt: 2}, Outcome: model.Outcome{Status: model.Completed, Output: jsonOf("done"), At: noon}, Current: true},
		{
			Start:   model.Start{Address: addressOf("task:mail", uuidA), Run: runOf(5), At: after(-3 * time.Hour), Task: mailSpec, Input: jsonOf("ann@example.com")},
			Outcome: model.Outcome{Status: model.Failed, Failure: declined, At: noon}, Current: true, Labels: labels,
		},
		{
			Start: model.Start{Address: addressOf(schedule.Type, "nightly"), Run: runOf(6), At: after(-4 * time.Hour)}, Outcome: running, Current: true,
			Reasons: reason(model.Reason{Code: model.WaitWorker, Name: schedule.Type}),
		},
		{Start: model.Start{Address: addressOf(schedule.Type, "weekly"), Run: runOf(7), At: after(-5 * time.Hour)}, Outcome: running, Current: true},
	}...)
}

func (p *prepared) List(_ context.Context, r api.ListRequest) (api.ListPage, error) {
	all := slices.DeleteFunc(p.executions(), func(d api.Description) bool {
		a := d.Start.Address
		return len(r.Workflows) > 0 && !slices.Contains(r.Workflows, a.Type) || r.Key != "" && a.Key != r.Key || !strings.HasPrefix(a.Key, r.KeyPrefix)
	})
	if r.Versions && len(all) > 1 {
		all[0].Version, all[1].Version = "v1.4.2", "v1.3.0"
	}
	return api.ListPage{Executions: all}, nil
}

func (p *prepared) Stranded(ctx context.Context, _, _ string) (api.ListPage, error) {
	return p.List(ctx, api.ListRequest{})
}

func (p *prepared) Missing(context.Context, model.Address, *model.TaskSpec) (*model.Reason, error) {
	return &model.Reason{Code: model.WaitWorker, Name: "report", Detail: "no live process has its code"}, nil
}

func (p *prepared) Count(context.Context, api.ListRequest) (int64, error) { return 4, nil }

func (p *prepared) Describe(_ context.Context, t api.Target) (api.Description, error) {
	for _, d := range p.executions() {
		if d.Start.Address == t.Address {
			return d, nil
		}
	}
	return api.Description{}, fault.New(fault.NotFound, "execution %s does not exist", t.Address)
}

func (p *prepared) History(context.Context, api.HistoryRequest) (api.HistoryPage, error) {
	return api.HistoryPage{Run: runOf(1), Events: []model.Event{
		{Seq: 0, At: noon, Kind: model.EventStarted, Name: "order", Input: jsonOf(map[string]any{"cents": 4200, "text": longText})},
		{Seq: 1, At: after(time.Second), Kind: model.EventStepCompleted, ID: "/1", Name: "fetch", Output: jsonOf("a lamp")},
		{Seq: 2, At: after(2 * time.Second), Kind: model.EventAttemptFailed, ID: "/2", Name: "mail", Attempt: 1, Failure: declined, Due: after(time.Minute)},
		{Seq: 3, At: after(3 * time.Second), Kind: model.EventLockAsked, ID: "/3", Name: "lock", Locks: []model.Address{addressOf("entity:account", "a"), addressOf("entity:account", "b")}},
		{Seq: 4, At: after(4 * time.Second), Kind: model.EventLockGranted, ID: "/3", Target: addressOf("entity:account", "a"), Ref: 1763251200000000},
		{Seq: 5, At: after(5 * time.Second), Kind: model.EventSent, ID: "/4", Name: "deposit", Section: "/3", Target: addressOf("entity:account", "a")},
	}}, nil
}

func (p *prepared) Start(context.Context, api.StartRequest) (api.StartReply, error) {
	return api.StartReply{Run: runOf(1), Status: model.Running}, nil
}

func (p *prepared) StartMany(_ context.Context, rs []api.StartRequest) ([]api.StartedReply, error) {
	return make([]api.StartedReply, len(rs)), nil
}

func (p *prepared) Await(context.Context, api.Target) (api.Result, error) {
	return api.Result{Run: runOf(1), Outcome: model.Outcome{Status: model.Failed, Output: jsonOf("half"), Failure: declined}}, nil
}

func (p *prepared) Signal(context.Context, api.SignalRequest) error       { return nil }
func (p *prepared) Settle(context.Context, api.SettleRequest) error       { return nil }
func (p *prepared) Cancel(context.Context, api.CancelRequest) error       { return nil }
func (p *prepared) Terminate(context.Context, api.CancelRequest) error    { return nil }
func (p *prepared) Pause(context.Context, api.CancelRequest) error        { return nil }
func (p *prepared) Resume(context.Context, api.CancelRequest) error       { return nil }
func (p *prepared) Unlock(context.Context, api.UnlockRequest) error       { return nil }
func (p *prepared) UndoRequeue(context.Context, api.UndoRequest) error    { return nil }
func (p *prepared) PurgeDead(context.Context, api.DeadID) error           { return nil }
func (p *prepared) DeleteLimit(context.Context, string, string) error     { return nil }
func (p *prepared) EnableLimit(context.Context, string, string) error     { return nil }
func (p *prepared) DisableLimit(_ context.Context, _, _, _ string) error  { return nil }
func (p *prepared) DeleteBreaker(context.Context, string, string) error   { return nil }
func (p *prepared) ResetBreaker(context.Context, string, string) error    { return nil }
func (p *prepared) ResumeQueue(context.Context, string, string) error     { return nil }
func (p *prepared) PauseQueue(_ context.Context, _, _, _ string) error    { return nil }
func (p *prepared) TripBreaker(_ context.Context, _, _, _ string) error   { return nil }
func (p *prepared) SetBreaker(context.Context, string, api.Breaker) error { return nil }

func (p *prepared) TryLimit(context.Context, string, api.Limit) (api.LimitTrial, error) {
	return api.LimitTrial{}, nil
}

func (p *prepared) SetLimit(context.Context, string, api.Limit, bool) error { return nil }

func (p *prepared) PauseBreaker(context.Context, string, string, model.Time, string) error {
	return nil
}

func (p *prepared) Update(_ context.Context, r api.UpdateRequest) (model.Payload, error) {
	if r.Target.Address.Type == schedule.Type {
		return jsonOf(schedule.Answer{Change: "changed", Key: "nightly@2026-11-15T12:00:00Z", Ticks: 3}), nil
	}
	return jsonOf(map[string]int{"items": 3}), nil
}

func (p *prepared) Query(context.Context, api.QueryRequest) (model.Payload, error) {
	return model.Payload{Encoding: model.Text, Data: []byte("three items")}, nil
}

// State returns the state of a schedule or of a workflow.
func (p *prepared) State(_ context.Context, t api.Target, name string) (model.Payload, bool, error) {
	fire := schedule.Fire{Kind: "tick", Tick: noon.Std(), Workflow: "report", Key: "nightly@2026-11-15T12:00:00Z", At: noon.Std()}
	switch {
	case t.Address.Type == schedule.Type && name == "spec" && t.Address.Key == "weekly":
		return jsonOf(schedule.Spec{Cron: "@weekly", Zone: "Europe/Berlin", Overlap: "queue", CatchUp: schedule.Duration(time.Hour), Job: schedule.Job{Kind: schedule.KindWorkflow, Name: "report"}}), true, nil
	case t.Address.Type == schedule.Type && name == "spec":
		return jsonOf(schedule.Spec{
			Every: schedule.Duration(90 * time.Minute), Phase: schedule.Duration(5 * time.Minute), Overlap: "skip", CatchUp: schedule.Duration(24 * time.Hour), Jitter: schedule.Duration(30 * time.Second),
			StartAt: noon.Std(), EndAt: after(1000 * time.Hour).Std(), App: "ops",
			Job: schedule.Job{Kind: schedule.KindTask, Name: "mail", Input: schedule.Payload{Payload: jsonOf("ann")}, Labels: map[string]string{"team": "ops"}, Task: mailSpec},
		}), true, nil
	case t.Address.Type == schedule.Type:
		return jsonOf(schedule.Status{
			Created: noon.Std(), Changed: noon.Std(), Decided: noon.Std(), Tick: after(time.Hour).Std(), Wake: after(time.Hour).Std(), Why: "month end", Open: []schedule.Fire{fire}, Waiting: &fire,
			Backfills: []schedule.Range{{After: noon.Std(), Until: after(time.Hour).Std()}}, Recent: []schedule.Fire{fire}, Counts: schedule.Counts{Fired: 12, Triggered: 1, Skipped: 2}, LastError: prose,
		}), true, nil
	}

	return jsonOf(7), true, nil
}

func (p *prepared) Fork(_ context.Context, r api.PastRequest) (api.PastReply, error) {
	return api.PastReply{
		Address: r.Source.Address, Run: runOf(8), Status: model.Running, Position: 4, Total: 6,
		Blanks: []model.Event{{Seq: 2, Kind: model.EventAttemptFailed, Name: "mail"}}, Added: []model.Event{{Seq: 5, Kind: model.EventSent, Name: "deposit"}},
	}, nil
}

func (p *prepared) Retry(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	if r.Source.Address.Key == hashB {
		return api.PastReply{}, fault.New(fault.Conflict, "retry of %s: it is completed", r.Source.Address)
	}
	return p.Fork(ctx, r)
}

func (p *prepared) Reset(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	return p.Fork(ctx, r)
}

func (p *prepared) Import(ctx context.Context, r api.ImportRequest) (api.PastReply, error) {
	return p.Fork(ctx, api.PastRequest{Source: api.Target{Address: addressOf("order", "42")}})
}

func (p *prepared) Delete(context.Context, api.DeleteRequest) (api.DeleteReply, error) {
	return api.DeleteReply{Runs: []model.RunID{runOf(1), runOf(2)}}, nil
}

func (p *prepared) entities() []model.Entity {
	if p.empty {
		return nil
	}
	return []model.Entity{
		{
			Address: addressOf("entity:account", "eu-1"), Version: 3, Changed: noon, State: jsonOf(map[string]any{"cents": 100, "text": longText}), Exists: true, Created: after(-time.Hour),
			Holder: model.Link{Address: addressOf("order", hashA), Run: runOf(2), ID: "/lock:1"}, Held: noon, Epoch: 1763251200000000,
		},
		{Address: addressOf("entity:account", "us-1"), Version: 1, Changed: noon, State: jsonOf(5), Exists: true, Created: noon},
	}
}

func (p *prepared) ListEntities(_ context.Context, r api.EntityListRequest) (api.EntityListPage, error) {
	return api.EntityListPage{Entities: slices.DeleteFunc(p.entities(), func(n model.Entity) bool {
		return r.Locked && !n.Locked() || !strings.HasPrefix(n.Address.Key, r.KeyPrefix)
	})}, nil
}

func (p *prepared) Entity(_ context.Context, a model.Address) (api.EntityInfo, error) {
	for _, n := range p.entities() {
		if n.Address == a && !n.Locked() {
			return api.EntityInfo{Entity: n}, nil
		}
		if n.Address == a {
			from := model.Link{Address: addressOf("saving", "s-1"), Run: runOf(7), ID: "/lock:2"}
			n.Log = []model.OperationRecord{
				{Name: "deposit", At: noon, RequestID: "r-1", Bytes: 1, Input: jsonOf(5)},
				{Name: "withdraw", At: noon, From: from, Bytes: 1, Failure: &model.Failure{Kind: "timeout", Message: "too late"}},
			}
			return api.EntityInfo{
				Entity: n, More: true,
				Waiting: []model.MailboxItem{
					{Seq: 1, At: noon, Message: model.Message{Kind: model.MessageLock, From: from}},
					{Seq: 2, At: noon, Message: model.Message{Kind: model.MessageCall, Name: "deposit", From: from, Section: "/lock:1"}},
				},
				Reasons: []model.Reason{{Code: model.WaitLock, Name: "account/eu-1", Detail: "order/" + hashA}},
			}, nil
		}
	}

	return api.EntityInfo{Entity: model.Entity{Address: a}}, nil
}

func (p *prepared) EditEntity(_ context.Context, r api.EditRequest) (model.EntityVersion, error) {
	return model.EntityVersion{Number: r.Version.Number + 1, Changed: noon}, nil
}

func (p *prepared) TakeItems(context.Context, model.ItemsTake) (model.ItemsPage, error) {
	return model.ItemsPage{Items: []model.Payload{jsonOf(5)}, Ended: true}, nil
}

func (p *prepared) SendItems(_ context.Context, r model.ItemsSend) (int64, error) {
	return r.First + int64(len(r.Items)) - 1, nil
}

func (p *prepared) Mailbox(_ context.Context, r api.MailboxRequest) (model.Calls, error) {
	if p.empty {
		return model.Calls{}, nil
	}
	calls := []model.Call{
		{ID: "7-3f9a0c41d2e7", Position: 1, Kind: "call", Operation: "deposit", At: noon, Bytes: 120, RequestID: "r-1", Stored: true, Running: true},
		{ID: "8-0c41d2e73f9a", Position: 2, Kind: "call", Operation: "withdraw", At: noon, Bytes: 12000, From: model.Link{Address: addressOf("order", hashA)}, OneWay: true},
	}
	if r.Do != model.MailboxList {
		calls = calls[:1]
		calls[0].Input = jsonOf(5)
	}
	return model.Calls{Calls: calls, Total: len(calls) + 1}, nil
}

func (p *prepared) Signals(_ context.Context, r api.SignalsRequest) (model.Calls, error) {
	if p.empty {
		return model.Calls{}, nil
	}
	calls := []model.Call{
		{ID: "7-3f9a0c41d2e7", Position: 1, Kind: "signal", Operation: "approved", At: noon, Bytes: 120, RequestID: "r-1", Stored: true},
		{ID: "8-0c41d2e73f9a", Position: 2, Kind: "signal", Operation: "address-changed", At: noon, Bytes: 12000, RequestID: uuidA, Stored: true},
	}
	if r.Do != model.MailboxList {
		calls = calls[:1]
	}
	if r.Do == model.MailboxShow {
		calls[0].Input = jsonOf(5)
	}
	return model.Calls{Calls: calls, Total: len(calls) + 1}, nil
}

func (p *prepared) Call(context.Context, api.CallRequest) (model.Payload, error) {
	return jsonOf(100), nil
}

func (p *prepared) dead() []api.DeadTask {
	if p.empty {
		return nil
	}
	died := func(n byte, step string) api.DeadTask {
		return api.DeadTask{
			ID: api.DeadID{Tenant: model.DefaultTenant, Shard: 7, Run: runOf(n), Task: step}, Requeued: 1,
			Body: model.DeadTask{
				Address: addressOf("order", "42"), Spec: *mailSpec, Input: jsonOf("ann@example.com"), Scheduled: after(-time.Hour), At: noon, Attempts: 4, LeftOut: 1,
				Failed: []model.FailedAttempt{{Attempt: 1, At: noon, Worker: "host-1", Failure: *declined}}, Failure: declined, Fingerprint: "4687430c57e24563",
				Requeued: model.Requeue{At: noon, Address: addressOf("task:mail", uuidA), Run: runOf(5)},
			},
		}
	}
	return []api.DeadTask{died(1, "/charge:1"), died(2, model.TaskStep)}
}

func (p *prepared) ListDead(_ context.Context, r api.DeadRequest) (api.DeadPage, error) {
	list := slices.DeleteFunc(p.dead(), func(d api.DeadTask) bool { return r.Fingerprint != "" && d.Body.Fingerprint != r.Fingerprint })
	for i := range list {
		list[i].Body.Input, list[i].Body.Failed = model.Payload{}, nil
	}
	return api.DeadPage{Tasks: list}, nil
}

func (p *prepared) CountDead(context.Context, api.DeadRequest) (int64, error) { return 2, nil }

func (p *prepared) GroupDead(context.Context, api.DeadRequest) ([]api.DeadGroup, error) {
	if p.empty {
		return nil, nil
	}
	return []api.DeadGroup{{Activity: "mail", Fingerprint: "4687430c57e24563", Count: 12, First: after(-time.Hour), Last: noon, Message: prose}}, nil
}

func (p *prepared) ShowDead(_ context.Context, id api.DeadID) (api.DeadTask, error) {
	for _, d := range p.dead() {
		if d.ID == id {
			return d, nil
		}
	}
	if id.Run == runOf(5) {
		return api.DeadTask{ID: id}, nil
	}
	return api.DeadTask{}, fault.New(fault.NotFound, "dead task %s does not exist", id)
}

func (p *prepared) Requeue(_ context.Context, r api.RequeueRequest) (api.RequeueReply, error) {
	if r.ID.String() == deadStep {
		return api.RequeueReply{}, fault.New(fault.Conflict, "dead task %s was requeued, and that task is open", r.ID)
	}
	return api.RequeueReply{Address: addressOf("task:mail", uuidA), Run: runOf(5)}, nil
}

func (p *prepared) TaskStates(context.Context, api.TaskTarget) (api.TaskStatesReply, error) {
	if p.empty {
		return api.TaskStatesReply{}, nil
	}
	return api.TaskStatesReply{States: []api.TaskState{{Name: "cursor", Value: jsonOf(2)}, {Name: "text", Value: jsonOf(longText)}}}, nil
}

func (p *prepared) TaskLogs(context.Context, api.TaskLogsRequest) (api.TaskLogsPage, error) {
	if p.empty {
		return api.TaskLogsPage{Ended: true}, nil
	}
	return api.TaskLogsPage{Ended: true, Lines: []api.TaskLine{{Step: "/charge:1", At: noon, Level: 4, Text: "it is late"}}}, nil
}

func (p *prepared) TaskStream(context.Context, api.TaskStreamRequest) (api.TaskStreamPage, error) {
	if p.empty {
		return api.TaskStreamPage{Ended: true}, nil
	}
	return api.TaskStreamPage{Ended: true, Items: []model.StreamItem{{Position: 1, Kind: model.ItemToken, At: noon, Value: jsonOf("Hello")}}}, nil
}

func (p *prepared) ListWorkers(context.Context, string) ([]api.WorkerInfo, error) {
	if p.empty {
		return nil, nil
	}
	return []api.WorkerInfo{
		{Node: model.NodeID(runOf(9)), Host: "shop-1.example.com:4711", Version: "v1.4.2", Workflows: []string{"batch", "order", "perdure.schedule", "report", "saving"}, Entities: []string{"entity:account", "service:clock"}},
		{Node: model.NodeID(runOf(9)), Host: "shop-1.example.com:4711", Version: "v1.4.2", Name: "shop-1-4711", Queues: []string{"default", "mails"}, Activities: []string{"charge", "mail"}, Slots: 100, Limits: []string{"smtp"}, Breakers: []string{"bank", "carrier"}, Draining: true, Alike: 2},
	}, nil
}

func (p *prepared) ListQueues(context.Context, string) (api.QueueList, error) {
	if p.empty {
		return api.QueueList{}, nil
	}
	return api.QueueList{Counted: true, Queues: []api.QueueInfo{
		{Name: "default", Open: 3, Waiting: 2, Claimed: 1, Oldest: noon, Workers: 1, Slots: 100},
		{Name: "mails", Open: 12000, Waiting: 11000, Delayed: 900, Claimed: 100, Oldest: after(-time.Hour), Workers: 2, Slots: 200, Unserved: []string{"mail"}},
	}}, nil
}

func (p *prepared) Queues(context.Context, string) ([]api.QueueStatus, error) {
	return []api.QueueStatus{{Name: "mails", Paused: true, Why: "the mail server is being replaced, which takes until the evening"}}[:p.some()], nil
}

func (p *prepared) some() int {
	if p.empty {
		return 0
	}
	return 1
}

func (p *prepared) Limits(context.Context, string) ([]api.LimitStatus, error) {
	if p.empty {
		return nil, nil
	}
	refs := []model.TaskRef{{Address: addressOf("task:mail", uuidA)}, {Address: addressOf("order", hashA)}}
	return []api.LimitStatus{
		{
			Rule: api.Limit{
				Name: "customers", Queue: "mail*", Kind: "charge", Per: api.PerKey, Key: "input.customer.id",
				Numbers: api.Numbers{Concurrency: 2, Rate: 100, Per: time.Minute, Burst: 10},
			},
			Uses: []api.LimitUse{{Key: "c-1", Held: 2, Waiting: 5, Holders: refs, Waiters: refs}}, Others: api.OtherKeys{Keys: 3, Held: 4, Waiting: 5},
		},
		{Rule: api.Limit{Name: "smtp", Per: api.PerName, Numbers: api.Numbers{Concurrency: 5}, Disabled: true, Why: "the quota is larger this week"}},
	}, nil
}

func (p *prepared) rule() api.Breaker {
	return api.Breaker{Name: "bank", Failures: 10, Ratio: 0.5, Calls: 20, Window: time.Minute, Reset: 30 * time.Second, Probes: 1, Successes: 2}
}

func (p *prepared) Breakers(context.Context, string) ([]api.BreakerStatus, error) {
	return []api.BreakerStatus{{Name: "bank", State: "open", Since: noon, Until: after(time.Minute), Why: prose, Held: true, Probes: 1, Rule: p.rule()}}[:p.some()], nil
}

func (p *prepared) BreakerRules(context.Context, string) ([]api.Breaker, error) {
	return []api.Breaker{p.rule()}[:p.some()], nil
}

// benchReport is a report with data in every part.
func benchReport() *bench.Report {
	limit := bench.Limit{Commits: 1000, Rows: 1, P50: time.Millisecond, P99: 2 * time.Millisecond}
	return &bench.Report{
		Time: noon.Std(), Machine: "2 cores", Clients: 64, Sleepers: 10, Tasks: 10, Duration: 3 * time.Second, Rounds: 1,
		Stores: []*bench.Store{{
			Kind: "sqlite", Description: "a file", Sync: limit, Limits: bench.Limits{Single: limit, Fenced: limit, Batched: limit}, Errors: []string{"none"},
			Results: []bench.Round{{Round: 1, Result: bench.Result{System: bench.Perdure, Workload: bench.Throughput, Operations: 100, Elapsed: time.Second, Points: []bench.Point{{Size: 1}}}}},
		}},
	}
}
