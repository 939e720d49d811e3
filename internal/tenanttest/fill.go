package tenanttest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
)

// Fill creates one execution, one entity, one schedule and so on in a tenant, and returns their
// names. The names are the same in every tenant, except for the keys, which contain Marker. An app
// serves the tenant until the test ends.
func Fill(t *testing.T, b api.Backend, tenant string) *IDs {
	t.Helper()
	ids := &IDs{
		Workflow: "order", Activity: "pay", Entity: model.EntityPrefix + "account", Limit: "bank", Breaker: "mail", Queue: "payments", Schedule: "nightly",
		Secret: "secret-of-" + tenant, Marker: "key-of-" + tenant,
	}
	ids.Key, ids.Closed, ids.Batch = ids.Marker, "closed-"+ids.Marker, "batch-"+ids.Marker
	d := define(ids)
	app, err := attach.Open(t.Context(), attach.Config{Backend: b, Tenant: tenant}, d.order, d.pay, d.account, d.schedule)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})

	d.run(t, app, ids)
	ids.lookUp(t, b, tenant)
	ids.steer(t, app)
	ids.startBatch(t, b, tenant)
	ids.addReport(t, b, tenant)
	ids.openStream(t, b, tenant)
	return ids
}

// definitions has the workflows, activities and entities of a tenant.
type definitions struct {
	order    *perdure.Workflow[string, string]
	pay      *perdure.Activity[string, string]
	account  *perdure.Entity[string]
	set      *perdure.Operation[string, string]
	schedule *perdure.Schedule
	locked   *perdure.Signal[string]
}

func define(ids *IDs) *definitions {
	d := &definitions{account: perdure.NewEntity[string]("account"), locked: perdure.NewSignal[string]("go")}
	d.set = perdure.NewOperation(d.account, "set", func(_ perdure.EntityCtx, s *string, in string) (string, error) {
		*s = in
		return in, nil
	})
	d.pay = perdure.NewActivity("pay", func(context.Context, string) (string, error) {
		return "", perdure.Permanent(errors.New(ids.Secret))
	}, perdure.OnQueue("pay"))

	state := perdure.NewState[string]("state")
	query := perdure.NewQuery[perdure.Void, string]("query")
	d.order = perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, in string) (string, error) {
		query.Handle(ctx, func(perdure.Void) (string, error) { return ids.Secret, nil })
		if err := state.Set(ctx, ids.Secret); err != nil {
			return "", err
		}
		if ctx.Self().Key != ids.Key {
			return in, nil
		}
		return in, ctx.Lock(perdure.LockSet{d.account.Ref(ids.Key)}, func(ctx perdure.WorkflowCtx) error {
			_, err := d.locked.Receive(ctx)
			return err
		})
	})
	d.schedule = perdure.NewSchedule("nightly", perdure.Cron("0 3 * * *", "UTC"), d.order.Job(ids.Secret))
	return d
}

// run creates the things that only code can create: executions, a dead task, a locked entity.
func (d *definitions) run(t *testing.T, app *perdure.App, ids *IDs) {
	t.Helper()
	c := app.With(t.Context())
	// There are two of each, so that lists have a second page.
	for _, key := range []string{ids.Key, ids.other()} {
		if _, err := d.set.Call(c, key, ids.Secret); err != nil {
			t.Fatal(err)
		}
		if _, err := d.pay.Submit(c, ids.Secret, perdure.RawKey(key)); err != nil {
			t.Fatal(err)
		}
		if _, err := d.pay.Execution(perdure.RawKey(key)).Result(c); err == nil {
			t.Fatal("the payment has not failed")
		}
	}
	if _, err := d.order.Run(c, ids.Secret, perdure.RawKey(ids.Closed)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.order.Start(c, ids.Secret, perdure.RawKey(ids.Key)); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the order has its lock", func() bool {
		info, err := app.Entities().Describe(t.Context(), d.account.Ref(ids.Key))
		ids.Epoch = info.Epoch
		return err == nil && info.LockedBy.Key == ids.Key
	})
}

// lookUp finds the ids that the engine has generated.
func (ids *IDs) lookUp(t *testing.T, b api.Backend, tenant string) {
	t.Helper()
	ctx := t.Context()
	run := func(target api.Target) model.RunID {
		found, err := b.Describe(ctx, target)
		if err != nil {
			t.Fatal(err)
		}
		return found.Start.Run
	}
	ids.Run, ids.ClosedRun, ids.TaskRun = run(ids.target(tenant)), run(ids.closedTarget(tenant)), run(ids.task(tenant).Target)

	past, err := history.Load(ctx, b, ids.target(tenant), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	ids.History = *past
	eventually(t, "the payments are dead tasks", func() bool {
		dead, err := b.ListDead(ctx, api.DeadRequest{Tenant: tenant})
		if err != nil || len(dead.Tasks) != 2 {
			return false
		}
		for i := range dead.Tasks {
			if id := dead.Tasks[i].ID; id.Run == ids.TaskRun {
				ids.Dead = id
			}
		}
		return true
	})
	ids.turnPages(t, b, tenant)
	first, err := firstPage(ctx, b, api.WatchRequest{Tenant: tenant})
	if err != nil {
		t.Fatal(err)
	}
	ids.WatchCursor = first.Cursor
}

// turnPages finds the cursors of the second pages of lists.
func (ids *IDs) turnPages(t *testing.T, b api.Backend, tenant string) {
	t.Helper()
	runs, err := b.List(t.Context(), api.ListRequest{Tenant: tenant, AllRuns: true, Limit: 1})
	dead, deadErr := b.ListDead(t.Context(), api.DeadRequest{Tenant: tenant, Limit: 1})
	entities, entityErr := b.ListEntities(t.Context(), api.EntityListRequest{Tenant: tenant, Limit: 1})
	if err := errors.Join(err, deadErr, entityErr); err != nil || runs.Cursor == "" || dead.Cursor == "" || entities.Cursor == "" {
		t.Fatalf("%v; cursors %q, %q, %q", err, runs.Cursor, dead.Cursor, entities.Cursor)
	}
	ids.ListCursor, ids.DeadCursor, ids.EntityCursor = runs.Cursor, dead.Cursor, entities.Cursor
}

// addReport adds a replay report.
func (ids *IDs) addReport(t *testing.T, b api.Backend, tenant string) {
	t.Helper()
	added, err := b.AddReplayReport(t.Context(), ids.report(tenant))
	if err != nil {
		t.Fatal(err)
	}
	ids.Report = added.Report.ID
	if _, err := b.AddReplayReport(t.Context(), api.ReplayReportRequest{Tenant: tenant, Build: "v2", Results: []api.ReplayResult{{Workflow: ids.Workflow, Key: ids.Key, Outcome: api.ReplayFits}}}); err != nil {
		t.Fatal(err)
	}
	page, err := b.ReplayReports(t.Context(), api.ReplayReportListRequest{Tenant: tenant, Limit: 1})
	if err != nil || page.Cursor == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	ids.ReportCursor = page.Cursor
}

// steer changes the settings that an operator can change.
func (ids *IDs) steer(t *testing.T, app *perdure.App) {
	t.Helper()
	ctx := t.Context()
	for what, err := range map[string]error{
		"limit":   app.Limits().Set(ctx, perdure.LimitRule{Name: ids.Limit, Concurrency: 7777}),
		"rule":    app.Breakers().SetRule(ctx, perdure.BreakerRule{Name: ids.Breaker, Failures: 777}),
		"breaker": app.Breakers().Trip(ctx, ids.Breaker, ids.Secret),
		"queue":   app.Queues().Pause(ctx, ids.Queue, ids.Secret),
	} {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// startBatch starts a batch that selects no execution.
func (ids *IDs) startBatch(t *testing.T, b api.Client, tenant string) {
	t.Helper()
	r := api.BatchRequest{Tenant: tenant, ID: ids.Batch, Verb: api.BatchResume, Query: `workflow = "none"`, Reason: ids.Secret}
	if _, err := b.StartBatch(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the batch has ended", func() bool {
		got, err := b.Batch(t.Context(), api.BatchTarget{Tenant: tenant, ID: ids.Batch})
		return err != nil || got.Status.Closed()
	})
}

// openStream opens a stream that has an item.
func (ids *IDs) openStream(t *testing.T, b api.Client, tenant string) {
	t.Helper()
	ids.Stream = "stream"
	at := model.ItemsTake{Entity: ids.entity(tenant), ID: ids.Stream, Do: model.TakeOpen}
	if _, err := b.TakeItems(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	item := model.Payload{Data: []byte(`"` + ids.Secret + `"`)}
	if _, err := b.SendItems(t.Context(), model.ItemsSend{Entity: at.Entity, ID: at.ID, First: 1, Items: []model.Payload{item}}); err != nil {
		t.Fatal(err)
	}
}

// Snapshot describes everything that Fill has created in a tenant, without times and counters that
// change even if no caller changes anything.
func Snapshot(t *testing.T, c api.Client, tenant string, ids *IDs) string {
	t.Helper()
	ctx, text := t.Context(), ""
	for _, v := range Verbs() {
		switch v.Name {
		case "State", "Await", "History", "Count", "Entity", "CountDead", "ShowDead", "TaskStates", "BreakerRules", "Allowance":
			answer, err := v.Ask(ctx, c, tenant, ids)
			text += fmt.Sprintf("%s: %s %v\n", v.Name, render(answer), err)
		}
	}

	d, err := c.Describe(ctx, ids.target(tenant))
	text += fmt.Sprintf("Describe: %v %v %v\n", d.Outcome.Status, d.Reasons, err)
	breakers, err := c.Breakers(ctx, tenant)
	for _, b := range breakers {
		text += fmt.Sprintf("Breaker: %s %s %s\n", b.Name, b.State, b.Why)
	}
	limits, limitErr := c.Limits(ctx, tenant)
	for _, l := range limits {
		text += fmt.Sprintf("Limit: %s %d\n", l.Rule.Name, l.Rule.Numbers.Concurrency)
	}
	queues, queueErr := c.Queues(ctx, tenant)
	for _, q := range queues {
		text += fmt.Sprintf("Queue: %s %v %s\n", q.Name, q.Paused, q.Why)
	}
	if err := errors.Join(err, limitErr, queueErr); err != nil {
		t.Fatal(err)
	}
	return text
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for !done() {
		select {
		case <-t.Context().Done():
			t.Fatalf("still not: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}
