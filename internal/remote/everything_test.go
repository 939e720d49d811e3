package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
)

var (
	item  = perdure.NewSignal[string]("item")
	visa  = perdure.NewPromise[string]("visa")
	total = perdure.NewQuery[string, string]("total")
	raise = perdure.NewUpdate[int, int]("raise")
	stage = perdure.NewState[string]("stage")
)

// program returns definitions that use everything that a client can ask about.
func program() perdure.Group {
	shop := perdure.NewWorkflow("shop", func(ctx perdure.WorkflowCtx, name string) (string, error) {
		sum := 1
		total.Handle(ctx, func(unit string) (string, error) { return fmt.Sprint(sum, " ", unit), nil })
		raise.Handle(ctx, func(_ perdure.WorkflowCtx, n int) (int, error) {
			if n < 0 {
				return 0, errors.New("it only goes up")
			}
			sum += n
			return sum, nil
		})

		if err := stage.Set(ctx, "open"); err != nil {
			return "", err
		}
		got, err := item.Receive(ctx)
		if err != nil {
			return "", err
		}

		if got == "burn" {
			return "", errors.New("it burns")
		}
		stamp, err := visa.Await(ctx)
		return name + " " + got + " " + stamp, err
	})

	mail := perdure.NewActivity("mail", func(ctx context.Context, to string) (string, error) {
		perdure.Log(ctx).Info("hello", "to", to)
		if err := errors.Join(stage.Save(ctx, "sent"), perdure.StreamToken(ctx, "a"), perdure.StreamData(ctx, 7)); err != nil {
			return "", err
		}
		if to == "nobody" {
			return "", perdure.Permanent(errors.New("there is no such person"))
		}
		return to, nil
	}, perdure.OnQueue("post"))

	shelves := perdure.NewEntity[int]("shelf")
	perdure.NewOperation(shelves, "put", func(_ perdure.EntityCtx, pieces *int, n int) (int, error) {
		*pieces += n
		return *pieces, nil
	})
	perdure.NewView(shelves, "look", func(pieces int, _ int) (int, error) { return pieces, nil })
	holder := perdure.NewWorkflow("holder", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
		return 0, ctx.Lock(perdure.LockSet{shelves.Ref("held")}, func(ctx perdure.WorkflowCtx) error {
			_, err := item.Receive(ctx)
			return err
		})
	})
	return perdure.Group{shop, mail, shelves, holder}
}

// Every method of api.Client works over the wire as it does in process. The test gets all methods
// of the interface by reflection, and checks that the server's log has a call of each method.
func TestEveryMethodOverTheWire(t *testing.T) {
	t.Parallel()
	t.Run("in bundles", func(t *testing.T) {
		t.Parallel()
		everyMethod(newWorld(t, program()))
	})
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, program())
		w.far = w.dial(remote.Config{Token: key, NoBundles: true})
		everyMethod(w)
	})
}

// everyMethod calls every method of a client, and checks that none is missing.
func everyMethod(w *world) {
	t := w.t
	for _, part := range []struct {
		name string
		run  func(*world)
	}{
		{"executions", executions}, {"histories", histories}, {"tasks", tasks}, {"entities", entities}, {"settings", settings}, {"batches", batches}, {"console", console}, {"watch", watches},
	} {
		if part.run(w); t.Failed() {
			t.Fatalf("part %s has failed", part.name)
		}
	}

	for m := range reflect.TypeFor[api.Client]().Methods() {
		code := "OK"
		if m.Name == "Watch" { // the client ends the watch
			code = "Canceled"
		}
		if w.calls.served(m.Name, code) == 0 {
			t.Errorf("no call of %s has succeeded over the wire: add one to the scenario", m.Name)
		}
	}
}

func (w *world) start(key, input string) api.StartReply {
	w.t.Helper()
	return ok[api.StartReply](w)(w.far.Start(w.ctx, api.StartRequest{Address: address("shop", key), Input: text(input)}))
}

func executions(w *world) {
	ctx, t := w.ctx, w.t
	first := w.start("a", `"a"`)
	if first.Existing || first.Run.IsZero() {
		t.Errorf("a new execution: %+v", first)
	}
	if again := w.start("a", `"a"`); !again.Existing || again.Run != first.Run {
		t.Errorf("the same execution again: %+v", again)
	}
	many := ok[[]api.StartedReply](w)(w.far.StartMany(ctx, []api.StartRequest{
		{Address: address("shop", "m1"), Input: text(`"m"`), Labels: []model.Label{{Name: "team", Value: "x"}}},
		{Address: address("shop", ""), Input: text(`"m"`)},
		{Address: address("shop", "m2"), Input: text(`"m"`), With: []api.Message{{Name: "item", Input: text(`"lamp"`)}}},
	}))
	if len(many) != 3 || many[0].Err != nil || many[1].Err == nil || many[2].Err != nil {
		t.Errorf("many starts: %+v", many)
	}

	a := target("shop", "a")
	w.until("the code runs", func() bool { _, found, err := w.local.State(ctx, a, "stage"); return found && err == nil })
	if value, found, err := w.far.State(ctx, a, "stage"); !found || err != nil || string(value.Data) != `"open"` {
		t.Errorf("state %s, %v, %v", value.Data, found, err)
	}
	if _, found, err := w.far.State(ctx, a, "other"); found || err != nil {
		t.Errorf("a state that is not set: %v, %v", found, err)
	}
	if got := same(w, func(c api.Client) (model.Payload, error) {
		return c.Query(ctx, api.QueryRequest{Target: a, Name: "total", Input: text(`"EUR"`)})
	}); string(got.Data) != `"1 EUR"` {
		t.Errorf("query: %s", got.Data)
	}
	if got := ok[model.Payload](w)(w.far.Update(ctx, api.UpdateRequest{Target: a, Name: "raise", Input: text("2")})); string(got.Data) != "3" {
		t.Errorf("update: %s", got.Data)
	}

	w.must(w.far.Pause(ctx, api.CancelRequest{Target: a, Reason: "wait"}))
	w.must(w.far.Signal(ctx, api.SignalRequest{Target: a, Name: "other", Input: text(`1`)}))
	if got := ok[model.Calls](w)(w.far.Signals(ctx, api.SignalsRequest{Target: a, Do: model.MailboxList})); got.Total != 1 || got.Calls[0].Operation != "other" {
		t.Errorf("signals: %+v", got)
	}
	if got := ok[model.Calls](w)(w.far.Signals(ctx, api.SignalsRequest{Target: a, Do: model.MailboxDropNamed, ID: "other", Reason: "noise"})); len(got.Calls) != 1 {
		t.Errorf("dropped signals: %+v", got)
	}
	if got := same(w, func(c api.Client) (api.Description, error) { return c.Describe(ctx, a) }); got.Reasons[0].Code != model.WaitPaused {
		t.Errorf("reasons: %+v", got.Reasons)
	}
	w.must(w.far.Resume(ctx, api.CancelRequest{Target: a}))
	w.must(w.far.Signal(ctx, api.SignalRequest{Target: a, Name: "item", Input: text(`"desk"`)}))
	w.must(w.far.Settle(ctx, api.SettleRequest{Target: a, Name: "visa", Value: text(`"ok"`)}))
	if got := ok[api.Result](w)(w.far.Await(ctx, a)); string(got.Outcome.Output.Data) != `"a desk ok"` {
		t.Errorf("result: %+v", got)
	}
	same(w, func(c api.Client) (api.Result, error) { return c.Await(ctx, a) })
	same(w, func(c api.Client) (api.Description, error) { return c.Describe(ctx, a) })

	w.must(w.far.Cancel(ctx, api.CancelRequest{Target: target("shop", "m1"), Reason: "enough"}))
	w.must(w.far.Terminate(ctx, api.CancelRequest{Target: target("shop", "m2"), Reason: "enough"}))
	for _, key := range []string{"m1", "m2"} {
		same(w, func(c api.Client) (api.Result, error) { return c.Await(ctx, target("shop", key)) })
	}
	failed := ok[api.Result](w)(w.far.Run(ctx, api.StartRequest{
		Address: address("shop", "b"), Input: text(`"b"`), With: []api.Message{{Name: "item", Input: text(`"burn"`)}},
	}))
	if failed.Outcome.Status != model.Failed || failed.Outcome.Failure.Message != "it burns" {
		t.Errorf("a failed execution: %+v", failed)
	}

	list := same(w, func(c api.Client) (api.ListPage, error) {
		return c.List(ctx, api.ListRequest{Tenant: tenant, Workflows: []string{"shop"}, Limit: 2, Explain: true})
	})
	if len(list.Executions) != 2 || list.Cursor == "" {
		t.Errorf("list: %+v", list)
	}
	same(w, func(c api.Client) (api.ListPage, error) {
		return c.List(ctx, api.ListRequest{Tenant: tenant, Statuses: []model.Status{model.Failed}, Labels: []model.LabelCondition{{Name: "team", Values: []string{"y"}, Not: true}}})
	})
	if n := same(w, func(c api.Client) (int64, error) { return c.Count(ctx, api.ListRequest{Tenant: tenant}) }); n != 4 {
		t.Errorf("%d executions", n)
	}
	w.must(second(w.local.Start(ctx, api.StartRequest{Address: address("unknown", "x")})))
	w.until("an execution is stranded", func() bool {
		page := same(w, func(c api.Client) (api.ListPage, error) { return c.Stranded(ctx, tenant, "") })
		return len(page.Executions) == 1
	})
	if got := same(w, func(c api.Client) (*model.Reason, error) { return c.Missing(ctx, address("unknown", "x"), nil) }); got == nil {
		t.Error("Missing returns no reason for a workflow without code")
	}
	if got := same(w, func(c api.Client) (*model.Reason, error) { return c.Missing(ctx, address("shop", "x"), nil) }); got != nil {
		t.Errorf("Missing returns %+v for a workflow with code", got)
	}
}

func second[T any](_ T, err error) error { return err }

func histories(w *world) {
	ctx, t := w.ctx, w.t
	whole := same(w, func(c api.Client) (api.HistoryPage, error) {
		return c.History(ctx, api.HistoryRequest{Target: target("shop", "b"), After: -1})
	})
	if len(whole.Events) < 4 {
		t.Errorf("history: %+v", whole)
	}
	if page := same(w, func(c api.Client) (api.HistoryPage, error) {
		return c.History(ctx, api.HistoryRequest{Target: target("shop", "b"), After: 0, Limit: 1})
	}); !page.More || len(page.Events) != 1 {
		t.Errorf("a page of one event: %+v", page)
	}

	dry := api.PastRequest{Source: target("shop", "b"), Key: "fork", After: 1, Placed: true, DryRun: true, RequestID: "dry"}
	same(w, func(c api.Client) (api.PastReply, error) { return c.Fork(ctx, dry) })
	dry.DryRun, dry.RequestID = false, ""
	if r := ok[api.PastReply](w)(w.far.Fork(ctx, dry)); r.Run.IsZero() || r.Address.Key != "fork" {
		t.Errorf("fork: %+v", r)
	}
	ok[api.PastReply](w)(w.far.Retry(ctx, api.PastRequest{Source: target("shop", "b")}))
	ok[api.PastReply](w)(w.far.Reset(ctx, api.PastRequest{Source: target("shop", "fork"), After: 0, Placed: true}))

	d := ok[api.Description](w)(w.far.Describe(ctx, target("shop", "a")))
	h := ok[api.HistoryPage](w)(w.far.History(ctx, api.HistoryRequest{Target: target("shop", "a"), After: -1}))
	history := model.History{Start: d.Start, Outcome: d.Outcome, Events: h.Events[1 : len(h.Events)-1]}
	r := ok[api.PastReply](w)(w.far.Import(ctx, api.ImportRequest{History: history, Tenant: tenant, Key: "imported"}))
	if r.Status != model.Completed {
		t.Errorf("import: %+v", r)
	}
	if got := same(w, func(c api.Client) (api.Result, error) { return c.Await(ctx, target("shop", "imported")) }); string(got.Outcome.Output.Data) != `"a desk ok"` {
		t.Errorf("the imported execution: %+v", got)
	}

	gone := ok[api.DeleteReply](w)(w.far.Delete(ctx, api.DeleteRequest{Target: target("shop", "imported")}))
	if len(gone.Runs) != 1 {
		t.Errorf("deleted: %+v", gone)
	}
	var near, rows bytes.Buffer
	same(w, func(c api.Client) (api.DeleteReply, error) {
		to := &rows
		if c == w.local {
			to = &near
		}
		return c.Delete(ctx, api.DeleteRequest{Target: target("shop", "m1"), Force: true, DryRun: true, Export: to})
	})
	if rows.Len() == 0 || !bytes.Equal(near.Bytes(), rows.Bytes()) {
		t.Errorf("the rows differ:\n%s\n%s", near.Bytes(), rows.Bytes())
	}
	rows.Reset()
	ok[api.DeleteReply](w)(w.far.Delete(ctx, api.DeleteRequest{Target: target("shop", "m1"), Force: true, Export: &rows}))
	if !bytes.Equal(near.Bytes(), rows.Bytes()) {
		t.Errorf("the rows differ:\n%s\n%s", near.Bytes(), rows.Bytes())
	}
	// Describe returns the same error for an execution that no longer exists.
	same(w, func(c api.Client) (api.Description, error) { return c.Describe(ctx, target("shop", "m1")) })
}

// task returns the request that runs a task.
func task(key, input string) api.StartRequest {
	return api.StartRequest{
		Address: address("task:mail", key), Input: text(input), Task: &model.TaskSpec{Kind: "mail", Queue: "post", Retry: model.Retry{MaxAttempts: 1}},
	}
}

func tasks(w *world) {
	ctx, t := w.ctx, w.t
	if got := ok[api.Result](w)(w.far.Run(ctx, task("good", `"ann"`))); string(got.Outcome.Output.Data) != `"ann"` {
		t.Errorf("a task: %+v", got)
	}
	good := api.TaskTarget{Target: target("task:mail", "good")}
	same(w, func(c api.Client) (api.TaskStatesReply, error) { return c.TaskStates(ctx, good) })
	if got := same(w, func(c api.Client) (api.TaskLogsPage, error) {
		return c.TaskLogs(ctx, api.TaskLogsRequest{TaskTarget: good, Wait: true})
	}); len(got.Lines) != 1 {
		t.Errorf("logs: %+v", got)
	}
	if got := same(w, func(c api.Client) (api.TaskStreamPage, error) {
		return c.TaskStream(ctx, api.TaskStreamRequest{TaskTarget: good, Wait: true})
	}); len(got.Items) != 2 {
		t.Errorf("streamed: %+v", got)
	}

	ok[api.Result](w)(w.far.Run(ctx, task("bad", `"nobody"`)))
	all := api.DeadRequest{Tenant: tenant, Activities: []string{"mail"}}
	w.until("a task is dead", func() bool { n, err := w.local.CountDead(ctx, all); return n == 1 && err == nil })
	dead := same(w, func(c api.Client) (api.DeadPage, error) { return c.ListDead(ctx, all) }).Tasks[0]
	same(w, func(c api.Client) (int64, error) { return c.CountDead(ctx, all) })
	same(w, func(c api.Client) ([]api.DeadGroup, error) { return c.GroupDead(ctx, all) })
	same(w, func(c api.Client) (api.DeadTask, error) { return c.ShowDead(ctx, dead.ID) })

	w.must(w.far.PauseQueue(ctx, tenant, "post", "stocktaking"))
	same(w, func(c api.Client) (api.RequeueReply, error) {
		return c.Requeue(ctx, api.RequeueRequest{ID: dead.ID, DryRun: true, RequestID: "dry"})
	})
	input := text(`"bob"`)
	requeued := ok[api.RequeueReply](w)(w.far.Requeue(ctx, api.RequeueRequest{ID: dead.ID, Input: &input}))
	w.until("the list of queues has the open task", func() bool {
		l, err := w.local.ListQueues(ctx, tenant)
		return err == nil && slices.ContainsFunc(l.Queues, func(q api.QueueInfo) bool { return q.Name == "post" && q.Open == 1 })
	})
	same(w, func(c api.Client) (api.QueueList, error) { return c.ListQueues(ctx, tenant) })
	same(w, func(c api.Client) ([]api.QueueStatus, error) { return c.Queues(ctx, tenant) })
	same(w, func(c api.Client) (api.Description, error) {
		return c.Describe(ctx, api.Target{Address: requeued.Address, Run: requeued.Run})
	})
	w.must(w.far.UndoRequeue(ctx, api.UndoRequest{ID: dead.ID}))
	w.must(w.far.PurgeDead(ctx, dead.ID))
	w.must(w.far.ResumeQueue(ctx, tenant, "post"))
	if got := same(w, func(c api.Client) ([]api.WorkerInfo, error) { return c.ListWorkers(ctx, tenant) }); len(got) == 0 {
		t.Error("there are no workers")
	}
}

func entities(w *world) {
	ctx, t := w.ctx, w.t
	free, held := address("entity:shelf", "free"), address("entity:shelf", "held")
	if got := ok[model.Payload](w)(w.far.Call(ctx, api.CallRequest{Address: free, Name: "put", Input: text("3")})); string(got.Data) != "3" {
		t.Errorf("an operation: %s", got.Data)
	}
	if got := same(w, func(c api.Client) (model.Payload, error) {
		return c.Call(ctx, api.CallRequest{Address: free, Name: "look", Input: text("0"), Brief: true, View: true})
	}); string(got.Data) != "3" {
		t.Errorf("a view: %s", got.Data)
	}

	w.must(second(w.far.Start(ctx, api.StartRequest{Address: address("holder", "h"), Input: text("1")})))
	w.until("the entity is locked", func() bool { i, err := w.local.Entity(ctx, held); return err == nil && i.Entity.Locked() })
	w.must(second(w.far.Call(ctx, api.CallRequest{Address: held, Name: "put", Input: text("5"), OneWay: true})))
	same(w, func(c api.Client) (api.EntityInfo, error) { return c.Entity(ctx, held) })
	same(w, func(c api.Client) (api.EntityListPage, error) {
		return c.ListEntities(ctx, api.EntityListRequest{Tenant: tenant, Type: "entity:shelf"})
	})
	box := same(w, func(c api.Client) (model.Calls, error) {
		return c.Mailbox(ctx, api.MailboxRequest{Address: held, Do: model.MailboxList})
	})
	if box.Total != 1 {
		t.Fatalf("mailbox: %+v", box)
	}
	same(w, func(c api.Client) (model.Calls, error) {
		return c.Mailbox(ctx, api.MailboxRequest{Address: held, Do: model.MailboxShow, ID: box.Calls[0].ID})
	})
	w.must(second(w.far.Mailbox(ctx, api.MailboxRequest{Address: held, Do: model.MailboxDrop, ID: box.Calls[0].ID})))
	w.must(w.far.Unlock(ctx, api.UnlockRequest{Address: held}))
	w.must(w.far.Terminate(ctx, api.CancelRequest{Target: target("holder", "h")}))

	at := model.ItemsTake{Entity: free, ID: "stream", Do: model.TakeOpen}
	w.must(second(w.far.TakeItems(ctx, at)))
	sent := model.ItemsSend{Entity: free, ID: at.ID, First: 1, Items: []model.Payload{text("7"), {}}, Ended: true, Failure: &model.Failure{Message: "no"}}
	if last := ok[int64](w)(w.far.SendItems(ctx, sent)); last != 2 {
		t.Errorf("the owner has %d items, want 2", last)
	}
	at.Do = model.TakeNext
	page := same(w, func(c api.Client) (model.ItemsPage, error) { return c.TakeItems(ctx, at) })
	if len(page.Items) != 2 || string(page.Items[0].Data) != "7" || !page.Ended || page.Failure.Message != "no" {
		t.Errorf("a page of a stream: %+v", page)
	}
	at.Do, at.After = model.TakeKeep, 2
	w.must(second(w.far.TakeItems(ctx, at)))
	at.Do = model.TakeLeave
	w.must(second(w.far.TakeItems(ctx, at)))
	if _, err := w.far.SendItems(ctx, sent); !fault.Is(err, fault.NotFound) {
		t.Errorf("an item for a caller that has left: %v", err)
	}
	at.Do = 9
	if _, err := w.far.TakeItems(ctx, at); !fault.Is(err, fault.Invalid) {
		t.Errorf("an unknown verb: %v", err)
	}

	seen := ok[api.EntityInfo](w)(w.far.Entity(ctx, held))
	was := seen.Entity.VersionNow()
	edit := api.EditRequest{Address: held, Version: was, State: text("77"), RequestID: "edit"}
	made := ok[model.EntityVersion](w)(w.far.EditEntity(ctx, edit))
	if again := ok[model.EntityVersion](w)(w.far.EditEntity(ctx, edit)); again != made || made == was {
		t.Errorf("the edit of version %s returns %s, and the repeated edit %s", was, made, again)
	}
	if got := same(w, func(c api.Client) (api.EntityInfo, error) { return c.Entity(ctx, held) }); string(got.Entity.State.Data) != "77" {
		t.Errorf("edited: %+v", got)
	}
	edit.RequestID = ""
	if _, err := w.far.EditEntity(ctx, edit); !fault.Is(err, fault.Conflict) {
		t.Errorf("an edit of an old version: %v", err)
	}
}

func settings(w *world) {
	ctx, t := w.ctx, w.t
	w.must(w.far.SetLimit(ctx, tenant, api.Limit{Name: "post", Queue: "post", Numbers: api.Numbers{Concurrency: 2, Rate: 5, Per: time.Second, Burst: 2}}, false))
	if got := same(w, func(c api.Client) ([]api.LimitStatus, error) { return c.Limits(ctx, tenant) }); len(got) != 1 {
		t.Errorf("limits: %+v", got)
	}
	trial := api.Limit{Name: "post", Queue: "post", Numbers: api.Numbers{Concurrency: 1}}
	same(w, func(c api.Client) (api.LimitTrial, error) { return c.TryLimit(ctx, tenant, trial) })
	w.must(w.far.DisableLimit(ctx, tenant, "post", "stocktaking"))
	if got := same(w, func(c api.Client) ([]api.LimitStatus, error) { return c.Limits(ctx, tenant) }); !got[0].Rule.Disabled || got[0].Rule.Why != "stocktaking" {
		t.Errorf("a disabled limit: %+v", got)
	}
	w.must(w.far.EnableLimit(ctx, tenant, "post"))
	if got := same(w, func(c api.Client) ([]api.LimitStatus, error) { return c.Limits(ctx, tenant) }); got[0].Rule.Disabled || got[0].Rule.Why != "" {
		t.Errorf("an enabled limit: %+v", got)
	}
	w.must(w.far.DeleteLimit(ctx, tenant, "post"))

	w.must(w.far.SetAllowance(ctx, tenant, api.Allowance{Open: 1000, Starts: 1000, Weight: 2}))
	if got := same(w, func(c api.Client) (api.Allowance, error) { return c.Allowance(ctx, tenant) }); got.Open != 1000 {
		t.Errorf("allowance: %+v", got)
	}
	w.must(w.far.SetAllowance(ctx, tenant, api.Allowance{}))

	w.must(w.far.SetBreaker(ctx, tenant, api.Breaker{Name: "bank", Ratio: 0.5, Calls: 10}))
	same(w, func(c api.Client) ([]api.Breaker, error) { return c.BreakerRules(ctx, tenant) })
	w.must(w.far.TripBreaker(ctx, tenant, "bank", "robbed"))
	w.must(w.far.PauseBreaker(ctx, tenant, "bank", model.TimeOf(time.Now().Add(time.Hour)), "robbed"))
	if got := same(w, func(c api.Client) ([]api.BreakerStatus, error) { return c.Breakers(ctx, tenant) }); len(got) != 1 || got[0].State == "closed" {
		t.Errorf("breakers: %+v", got)
	}
	w.must(w.far.ResetBreaker(ctx, tenant, "bank"))
	w.must(w.far.DeleteBreaker(ctx, tenant, "bank"))
}

// console calls the methods that a console uses.
func console(w *world) {
	ctx, t := w.ctx, w.t
	tally := api.TallyRequest{ListRequest: api.ListRequest{Tenant: tenant}, ByWorkflow: true, ByStatus: true}
	if got := same(w, func(c api.Client) (api.Tally, error) { return c.Tally(ctx, tally) }); got.Count == 0 || len(got.Groups) == 0 {
		t.Errorf("the tally: %+v", got)
	}
	if me := ok[api.CallerInfo](w)(w.far.Me(ctx)); me.Tenant != tenant || me.Name == "" || len(me.Roles) == 0 || !slices.Contains(me.Actions, "execution:start") {
		t.Errorf("the caller: %+v", me)
	}
	explain := api.ExplainRequest{Target: target("shop", "a")}
	if got := same(w, func(c api.Client) (api.Explanation, error) { return c.Explain(ctx, explain) }); len(got.Nodes) == 0 {
		t.Errorf("the explanation: %+v", got)
	}
	if got := ok[api.Series](w)(w.far.Series(ctx, api.SeriesRequest{Tenant: tenant, Levels: true})); len(got.Lines) == 0 || len(got.Nodes) == 0 {
		t.Errorf("the series: %+v", got)
	}

	set := api.ViewChange{Tenant: tenant, View: api.View{Name: "open", Page: "executions", Query: `status = "running"`}}
	made := ok[api.View](w)(w.far.SetView(ctx, set))
	list := same(w, func(c api.Client) ([]api.View, error) { return c.Views(ctx, tenant) })
	if len(list) != 1 || !reflect.DeepEqual(list[0], made) {
		t.Errorf("views %+v, made %+v", list, made)
	}
	if err := w.far.DeleteView(ctx, api.ViewTarget{Tenant: tenant, Name: "open"}); err != nil {
		t.Error(err)
	}
	replayReports(w)
}

// replayReports adds and reads replay reports.
func replayReports(w *world) {
	ctx, t := w.ctx, w.t
	run := ok[api.Description](w)(w.far.Describe(ctx, target("shop", "a"))).Start.Run
	report := api.ReplayReportRequest{Tenant: tenant, Build: "v2", Source: "ci", RequestID: "report-1", Results: []api.ReplayResult{
		{Workflow: "shop", Key: "a", Run: run, Outcome: api.ReplayMismatch, Event: 1, Text: "event 1 records step fetch"},
		{Workflow: "idle", Key: "1", Outcome: api.ReplayFits},
	}}
	added := ok[api.ReplayReportReply](w)(w.far.AddReplayReport(ctx, report))
	if again := ok[api.ReplayReportReply](w)(w.far.AddReplayReport(ctx, report)); added.Existing || !again.Existing || !reflect.DeepEqual(again.Report, added.Report) {
		t.Errorf("added %+v, and again %+v", added, again)
	}
	page := same(w, func(c api.Client) (api.ReplayReportPage, error) {
		return c.ReplayReports(ctx, api.ReplayReportListRequest{Tenant: tenant, Workflow: "shop", Outcome: api.ReplayMismatch, Limit: 1})
	})
	if len(page.Reports) != 1 || !reflect.DeepEqual(page.Reports[0], added.Report) || page.Reports[0].Fits != 1 || page.Reports[0].Mismatches != 1 || len(page.Reports[0].Workflows) != 2 {
		t.Errorf("page %+v, added %+v", page, added)
	}
	at := api.ReplayReportTarget{Tenant: tenant, ID: added.Report.ID}
	whole := same(w, func(c api.Client) (api.ReplayReport, error) { return c.ReplayReport(ctx, at) })
	if !reflect.DeepEqual(whole.Results, report.Results) {
		t.Errorf("results %+v, want %+v", whole.Results, report.Results)
	}
}
