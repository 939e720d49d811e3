package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var handleTests = []test{
	{name: "info describes the store", run: testInfo},
	{name: "an empty store answers with nothing", run: testEmpty},
	{name: "after close every call fails", run: testClose},
	{name: "a cancelled context applies nothing", run: testCancelled},
}

func testInfo(x *suite) {
	i := x.Store.Info()
	if i.Shards < 16 || i.Shards > model.MaxShards {
		x.Errorf("%d shards, want 16 to %d", i.Shards, model.MaxShards)
	}
	if i.Cluster == "" || i.URL == "" {
		x.Errorf("info without a name: %+v", i)
	}
	if i.Shared != (x.o.Second != nil) {
		x.Errorf("shared is %v, but Options.Second says otherwise", i.Shared)
	}
	x.Want("info, asked again", i, x.Store.Info())
}

func testEmpty(x *suite) {
	got := x.Contents()
	x.Want("contents", Contents{}, got)
	v := try(x.Store.Members(x.Context())).or(x)
	if len(v.Owners) != x.Store.Info().Shards {
		x.Fatalf("%d owners, want one per shard", len(v.Owners))
	}
	for i, o := range v.Owners {
		x.Want("owner", store.ShardOwner{Shard: model.ShardID(i)}, o)
	}
	if e := try(x.Store.LoadExecution(x.Context(), 0, x.Address(), model.RunID{})).or(x); e != nil {
		x.Errorf("an execution out of nothing: %+v", e)
	}
	if e := try(x.Store.LoadExecution(x.Context(), 0, x.Address(), x.RunID())).or(x); e != nil {
		x.Errorf("a run out of nothing: %+v", e)
	}
	if n := try(x.Store.Count(x.Context(), store.Query{Tenant: model.DefaultTenant})).or(x); n != 0 {
		x.Errorf("count is %d", n)
	}

	// An empty list of shards selects no rows. It does not mean all shards.
	l := x.Join(1).Lanes[0]
	a := x.Subject()

	l.Write(func(b *store.Batch) {
		b.Starts = append(b.Starts, a.StartRow())
		b.Timers = append(b.Timers, a.Timer("t", Noon))
		b.Messages = append(b.Messages, Message(1, 2, 1))
	})

	if r := try(x.Store.LoadRunnable(x.Context(), nil, store.RunKey{}, 10)).or(x); len(r) != 0 {
		x.Errorf("runnable of no shards: %v", r)
	}
	if r := try(x.Store.LoadExpired(x.Context(), store.ExpiredRequest{ClosedBefore: model.MaxTime, Now: model.MaxTime, Limit: 10})).or(x); len(r.Runs) != 0 || r.Walked != 0 {
		x.Errorf("expired of no shards: %v", r)
	}
	if r := try(x.Store.LoadTimers(x.Context(), nil, store.TimerMark{}, model.MaxTime, 10)).or(x); len(r) != 0 {
		x.Errorf("timers of no shards: %v", r)
	}
	if r := try(messagesOf(x.Context(), x.Store, nil, 10)).or(x); len(r) != 0 {
		x.Errorf("messages of no shards: %v", r)
	}
	counter := x.Counter()
	l.Write(func(b *store.Batch) { b.Mailbox = append(b.Mailbox, counter.Mail(1)) })
	if r := try(x.Store.LoadMailboxes(x.Context(), nil, store.EntityKey{}, 10)).or(x); len(r) != 0 {
		x.Errorf("mailboxes of no shards: %v", r)
	}
	if err := x.Store.PutInbox(x.Context(), nil); err != nil {
		x.Errorf("no requests: %v", err)
	}
}

// everyCall calls every method of the port that can fail, each with arguments that would succeed.
func everyCall(ctx context.Context, s store.Store, n *Node, a Subject) map[string]error {
	errs := make(map[string]error)
	b := n.Lanes[0].Batch()
	b.Starts = append(b.Starts, a.StartRow())
	shards := []model.ShardID{a.Shard}
	_, errs["Register"] = s.Register(ctx, store.NodeInfo{ID: n.f.NodeID()}, 1, time.Hour)
	_, errs["Commit"] = s.Commit(ctx, b)
	_, errs["Renew"] = s.Renew(ctx, store.RenewRequest{Node: n.ID, Epoch: n.Epoch, TTL: time.Hour})
	_, errs["Acquire"] = s.Acquire(ctx, n.ID, n.Epoch, []model.ShardID{3})
	if s.Info().Shared {
		_, errs["SetDrained"] = s.SetDrained(ctx, n.ID, true)
	}
	_, _, errs["Refence"] = s.Refence(ctx, n.Lanes[1].Ref)
	_, errs["LoadRunnable"] = s.LoadRunnable(ctx, shards, store.RunKey{}, 1)
	_, errs["LoadExpired"] = s.LoadExpired(ctx, store.ExpiredRequest{Shards: shards, ClosedBefore: Noon, Now: Noon, Limit: 1})
	_, errs["LoadExecution"] = s.LoadExecution(ctx, a.Shard, a.Start.Address, model.RunID{})
	_, errs["LoadEvents"] = s.LoadEvents(ctx, a.RunKey, 0, 1, 1)
	_, errs["LoadTimers"] = s.LoadTimers(ctx, shards, store.TimerMark{}, Noon, 1)
	_, errs["LoadRun"] = s.LoadRun(ctx, a.Shard, a.Start.Address, model.RunID{}, 1, 1)
	_, errs["LoadRuns"] = s.LoadRuns(ctx, []store.AddressKey{{Shard: a.Shard, Address: a.Start.Address}}, 1, 1)
	_, errs["LoadRunTimers"] = s.LoadRunTimers(ctx, a.RunKey)
	_, _, errs["LoadMessages"] = s.LoadMessages(ctx, shards, 1, 1)
	_, _, errs["LoadInbox"] = s.LoadInbox(ctx, shards, Noon, 1, 1)
	errs["PutInbox"] = s.PutInbox(ctx, []store.InboxRow{a.Request(n.f.RunID(), "r")})
	_, errs["LoadReplies"] = s.LoadReplies(ctx, []store.RequestKey{a.RequestKey("r")})
	_, errs["List"] = s.List(ctx, store.Query{Tenant: model.DefaultTenant, Limit: 1})
	_, errs["Count"] = s.Count(ctx, store.Query{Tenant: model.DefaultTenant})
	_, errs["Tally"] = s.Tally(ctx, store.Query{Tenant: model.DefaultTenant, Limit: 1}, store.TallyBy{Status: true})
	_, errs["LoadEventsOf"] = s.LoadEventsOf(ctx, a.RunKey, model.EventStateSet, 10, 10)
	_, errs["LastEvent"] = s.LastEvent(ctx, a.RunKey)
	_, errs["LoadLabels"] = s.LoadLabels(ctx, []store.RunKey{a.RunKey})
	_, errs["LoadDetails"] = s.LoadDetails(ctx, a.Shard, a.Start.Address, model.RunID{})
	_, errs["LoadAnswers"] = s.LoadAnswers(ctx, store.Awaited{Runs: []store.RunKey{a.RunKey}})
	_, errs["Members"] = s.Members(ctx)
	_, errs["Sweep"] = s.Sweep(ctx, store.SweepRequest{Shards: shards, RequestsBefore: model.MaxTime, Limit: 100})
	_, errs["LoadDead"] = s.LoadDead(ctx, store.DeadKey{RunKey: a.RunKey, Task: "t"})
	_, errs["ListDead"] = s.ListDead(ctx, store.DeadQuery{Tenant: model.DefaultTenant, Limit: 1})
	_, errs["Tenants"] = s.Tenants(ctx)
	_, errs["CountDead"] = s.CountDead(ctx, store.DeadQuery{Tenant: model.DefaultTenant})
	_, errs["GroupDead"] = s.GroupDead(ctx, store.DeadQuery{Tenant: model.DefaultTenant}, 1)
	_, errs["LoadDeadBefore"] = s.LoadDeadBefore(ctx, shards, Noon, store.DeadPlace{}, 1)
	_, errs["LoadTaskData"] = s.LoadTaskData(ctx, a.RunKey, store.DataRange{Task: "t"})
	_, errs["LoadLogs"] = s.LoadLogs(ctx, a.RunKey, "t", store.LogPlace{}, 1)
	version, err := s.PutSetting(ctx, setting("limit", "a", "1"), 0)
	errs["PutSetting"] = err
	_, errs["DeleteSetting"] = s.DeleteSetting(ctx, setting("limit", "a", "").SettingKey, version)
	_, errs["ListSettings"] = s.ListSettings(ctx, model.DefaultTenant, "limit")
	_, errs["LoadSettings"] = s.LoadSettings(ctx, 0)
	errs["PutPeerMail"] = s.PutPeerMail(ctx, []store.PeerMail{{To: n.ID, From: n.ID, ID: n.f.RunID()}})
	_, errs["TakePeerMail"] = s.TakePeerMail(ctx, n.ID, 1, 1)
	errs["NameWorkers"] = s.NameWorkers(ctx, store.WorkerNames{Add: []store.WorkerName{{Name: "w", Home: n.ID}}})
	_, errs["WorkerHomes"] = s.WorkerHomes(ctx)
	counter := n.f.Counter()
	_, errs["LoadEntity"] = s.LoadEntity(ctx, counter.EntityKey, 1, 1)
	_, errs["LoadMailbox"] = s.LoadMailbox(ctx, counter.EntityKey, 0, 1, 1)
	_, errs["LoadMailboxes"] = s.LoadMailboxes(ctx, shards, store.EntityKey{}, 1)
	_, errs["ListEntities"] = s.ListEntities(ctx, store.EntityQuery{Tenant: model.DefaultTenant, Limit: 1})
	_, errs["FenceNode"] = s.FenceNode(ctx, store.FenceRequest{Node: n.ID, Epoch: n.Epoch, Proven: true})
	errs["Unregister"] = s.Unregister(ctx, n.ID, n.Epoch)

	return errs
}

func testClose(x *suite) {
	n, a := x.Join(2), x.Subject()
	if err := x.Store.Close(); err != nil {
		x.Fatalf("close: %v", err)
	}
	for method, err := range everyCall(x.Context(), x.Store, n, a) {
		if err == nil {
			x.Errorf("%s succeeded after close", method)
		}
	}
	_ = x.Store.Close() // a second Close does no harm
}

func testCancelled(x *suite) {
	n, a := x.Join(2), x.Subject()
	ran := x.Subject()
	n.Lanes[0].Write(func(b *store.Batch) {
		b.Starts = append(b.Starts, ran.StartRow())
		b.Requests = append(b.Requests, ran.Reply("old", 1))
	})

	before := x.Contents()
	x.Note(&store.Batch{Starts: []store.StartRow{a.StartRow()}})
	cause := errors.New("the caller gave up")
	ctx, cancel := context.WithCancelCause(x.Context())
	cancel(cause)

	for method, err := range everyCall(ctx, x.Store, n, a) {
		if err == nil {
			x.Errorf("%s succeeded with a cancelled context", method)
		}
	}

	x.Want("contents after calls with a cancelled context", before, x.Contents())
	// Neither the fences nor the lease moved.
	n.Lanes[0].Write(func(b *store.Batch) { b.Starts = append(b.Starts, a.StartRow()) })
	n.Lanes[1].Write(func(*store.Batch) {})
	n.Renew(time.Hour)
}
