package tenanttest

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

// IDs has the names, ids and cursors with which a caller can ask for the things that Fill has
// created in a tenant.
type IDs struct {
	Workflow, Key string // an open execution
	Run           model.RunID
	Closed        string // the key of a closed execution of the same workflow
	ClosedRun     model.RunID
	Activity      string // of a task that failed permanently, under the key Key
	TaskRun       model.RunID
	Dead          api.DeadID
	Entity        string // type of an entity, with its prefix; its key is Key
	Epoch         int64  // of its lock
	Stream        string // a stream of the entity; it has an item
	Limit         string
	Breaker       string
	Queue         string // paused
	Schedule      string
	Batch         string // a batch job
	Report        model.ReportID
	History       model.History // of the open execution
	// Cursors come from pages of the tenant.
	ListCursor, DeadCursor, EntityCursor, WatchCursor, ReportCursor string
	// Secret is part of the payloads, the errors and the texts that Fill stores, and of no name.
	// Marker is part of every key.
	Secret, Marker string
}

// Verb is one call of a method of api.Client in a tenant, with ids of another tenant.
type Verb struct {
	Name string // of the method
	// Own says that the call may succeed, because it works only on data of the caller's own tenant.
	// For example, it lists that data, or changes a thing that has the same name in both tenants.
	// If Own is false, the call must be refused.
	Own bool
	// Lists says that neither the answer nor the error may contain Marker, which is part of every
	// key of the other tenant. Other verbs may repeat a key of the request in their answers.
	Lists bool
	Ask   func(ctx context.Context, c api.Client, tenant string, of *IDs) (answer any, err error)
}

func (of *IDs) at(tenant string) model.Address {
	return model.Address{Tenant: tenant, Type: of.Workflow, Key: of.Key}
}

func (of *IDs) target(tenant string) api.Target {
	return api.Target{Address: of.at(tenant), Run: of.Run}
}

// report is the replay report of the tenant. All tenants use the same request id.
func (of *IDs) report(tenant string) api.ReplayReportRequest {
	return api.ReplayReportRequest{Tenant: tenant, Build: "v1", RequestID: "same", Results: []api.ReplayResult{
		{Workflow: of.Workflow, Key: of.Key, Run: of.Run, Outcome: api.ReplayMismatch, Event: 1, Text: of.Secret},
	}}
}

func (of *IDs) closedTarget(tenant string) api.Target {
	return api.Target{Address: model.Address{Tenant: tenant, Type: of.Workflow, Key: of.Closed}, Run: of.ClosedRun}
}

func (of *IDs) entity(tenant string) model.Address {
	return model.Address{Tenant: tenant, Type: of.Entity, Key: of.Key}
}

func (of *IDs) task(tenant string) api.TaskTarget {
	return api.TaskTarget{Target: api.Target{Address: model.Address{Tenant: tenant, Type: model.TaskPrefix + of.Activity, Key: of.Key}, Run: of.TaskRun}}
}

// other is the key of another entity, and of another task that failed permanently.
func (of *IDs) other() string { return "other-" + of.Marker }

func (of *IDs) dead(tenant string) api.DeadID {
	id := of.Dead
	id.Tenant = tenant
	return id
}

// none returns the result of a method that returns only an error.
func none(err error) (any, error) { return nil, err }

// Verbs returns a verb for each method of api.Client. Verbs with Lists come first, because other
// verbs create things in the caller's own tenant whose keys contain Marker.
func Verbs() []Verb {
	verbs := slices.Concat(executionVerbs(), historyVerbs(), batchVerbs(), entityVerbs(), taskVerbs(), flowVerbs())
	slices.SortStableFunc(verbs, func(a, b Verb) int {
		if a.Lists == b.Lists {
			return 0
		} else if a.Lists {
			return -1
		}
		return 1
	})
	return verbs
}

func executionVerbs() []Verb {
	order := func(name string, do func(api.Client, context.Context, api.CancelRequest) error) Verb {
		return Verb{Name: name, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(do(c, ctx, api.CancelRequest{Target: of.target(tenant), Reason: "probe"}))
		}}
	}
	start := func(tenant string, of *IDs, key string) api.StartRequest {
		return api.StartRequest{Address: model.Address{Tenant: tenant, Type: of.Workflow, Key: key}, Input: model.Payload{Data: []byte(`"probe"`)}, RequestID: "same"}
	}

	return []Verb{
		{Name: "Start", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Start(ctx, start(tenant, of, "start-"+of.Key))
		}},
		{Name: "StartMany", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			all, err := c.StartMany(ctx, []api.StartRequest{start(tenant, of, "many-"+of.Key)})
			if err == nil && len(all) == 1 {
				err = all[0].Err
			}
			return all, err
		}},
		{Name: "Run", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Run(ctx, start(tenant, of, "run-"+of.Key))
		}},
		{Name: "Signal", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.Signal(ctx, api.SignalRequest{Target: of.target(tenant), Name: "go", RequestID: "same"}))
		}},
		{Name: "Settle", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.Settle(ctx, api.SettleRequest{Target: of.target(tenant), Name: "promise", Value: model.Payload{Data: []byte("1")}}))
		}},
		order("Cancel", api.Client.Cancel), order("Terminate", api.Client.Terminate), order("Pause", api.Client.Pause), order("Resume", api.Client.Resume),
		{Name: "Signals", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Signals(ctx, api.SignalsRequest{Target: of.target(tenant), Do: model.MailboxList})
		}},
		{Name: "Update", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Update(ctx, api.UpdateRequest{Target: of.target(tenant), Name: "update", RequestID: "same"})
		}},
		{Name: "Query", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Query(ctx, api.QueryRequest{Target: of.target(tenant), Name: "query"})
		}},
		{Name: "State", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			p, _, err := c.State(ctx, of.target(tenant), "state")
			return p, err
		}},
		{Name: "Await", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Await(ctx, of.closedTarget(tenant))
		}},
		{Name: "Describe", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Describe(ctx, of.target(tenant))
		}},
		{Name: "History", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.History(ctx, api.HistoryRequest{Target: of.target(tenant), After: -1})
		}},
		{Name: "List", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.List(ctx, api.ListRequest{Tenant: tenant, AllRuns: true, Explain: true, Cursor: of.ListCursor})
		}},
		{Name: "Count", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Count(ctx, api.ListRequest{Tenant: tenant, KeyPrefix: of.Key, AllRuns: true})
		}},
		{Name: "Explain", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Explain(ctx, api.ExplainRequest{Target: of.target(tenant)})
		}},
		{Name: "Series", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, _ *IDs) (any, error) {
			got, err := c.Series(ctx, api.SeriesRequest{Tenant: tenant})
			return got.Step, err
		}},
		{Name: "Tally", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Tally(ctx, api.TallyRequest{ListRequest: api.ListRequest{Tenant: tenant, KeyPrefix: of.Key, AllRuns: true}, ByWorkflow: true, ByReason: true})
		}},
		{Name: "Views", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, _ *IDs) (any, error) {
			return c.Views(ctx, tenant)
		}},
		{Name: "SetView", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.SetView(ctx, api.ViewChange{Tenant: tenant, View: api.View{Name: "probe", Page: "executions"}})
		}},
		{Name: "DeleteView", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.DeleteView(ctx, api.ViewTarget{Tenant: tenant, Name: of.Marker}))
		}},
		{Name: "ReplayReports", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.ReplayReports(ctx, api.ReplayReportListRequest{Tenant: tenant, Cursor: of.ReportCursor})
		}},
		{Name: "ReplayReport", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.ReplayReport(ctx, api.ReplayReportTarget{Tenant: tenant, ID: of.Report})
		}},
		{Name: "AddReplayReport", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			r := of.report(tenant)
			r.RequestID, r.Results[0].Key, r.Results[0].Text = "", "probe", ""
			return c.AddReplayReport(ctx, r)
		}},
		{Name: "Stranded", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Stranded(ctx, tenant, of.ListCursor)
		}},
		{Name: "Missing", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Missing(ctx, model.Address{Tenant: tenant, Type: of.Workflow, Key: "probe"}, nil)
		}},
	}
}

func historyVerbs() []Verb {
	past := func(name string, do func(api.Client, context.Context, api.PastRequest) (api.PastReply, error)) Verb {
		return Verb{Name: name, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return do(c, ctx, api.PastRequest{Source: of.closedTarget(tenant), Key: "past-" + of.Key})
		}}
	}
	return []Verb{
		past("Fork", api.Client.Fork), past("Retry", api.Client.Retry), past("Reset", api.Client.Reset),
		{Name: "Import", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Import(ctx, api.ImportRequest{History: of.History, Tenant: tenant})
		}},
		{Name: "Delete", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Delete(ctx, api.DeleteRequest{Target: of.closedTarget(tenant), Force: true, Export: io.Discard})
		}},
	}
}

// batchVerbs returns verbs about batches. Only Batch and CancelBatch ask for a batch of the other
// tenant. StartBatch starts a batch of the caller's own tenant, whose query names an execution of
// the other tenant. That execution must not change.
func batchVerbs() []Verb {
	return []Verb{
		{Name: "StartBatch", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			b, err := c.StartBatch(ctx, api.BatchRequest{Tenant: tenant, Verb: api.BatchTerminate, Query: `workflow = "` + of.Workflow + `" and key = "` + of.Key + `"`})
			return b.Progress, err
		}},
		{Name: "Batch", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Batch(ctx, api.BatchTarget{Tenant: tenant, ID: of.Batch})
		}},
		{Name: "ListBatches", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			page, err := c.ListBatches(ctx, api.BatchListRequest{Tenant: tenant, Cursor: of.ListCursor})
			// The query of the caller's own batch contains the key of the other tenant, so clear
			// the query.
			for i := range page.Batches {
				page.Batches[i].Query, page.Batches[i].Selects = "", ""
			}
			return page, err
		}},
		{Name: "CancelBatch", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.CancelBatch(ctx, api.BatchTarget{Tenant: tenant, ID: of.Batch}))
		}},
	}
}

func entityVerbs() []Verb {
	return []Verb{
		// The call goes to the caller's own entity with that key. The state of the other tenant's
		// entity must not change.
		{Name: "Call", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Call(ctx, api.CallRequest{Address: of.entity(tenant), Name: "set", Input: model.Payload{Data: []byte(`"probe"`)}, RequestID: "same"})
		}},
		{Name: "Entity", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Entity(ctx, of.entity(tenant))
		}},
		{Name: "ListEntities", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.ListEntities(ctx, api.EntityListRequest{Tenant: tenant, Cursor: of.EntityCursor})
		}},
		// Unlocking an entity without a lock is not an error. The other tenant's entity must stay
		// locked.
		{Name: "Unlock", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.Unlock(ctx, api.UnlockRequest{Address: of.entity(tenant), Epoch: of.Epoch}))
		}},
		{Name: "EditEntity", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.EditEntity(ctx, api.EditRequest{Address: of.entity(tenant), Version: model.EntityVersion{Number: 1}, State: model.Payload{Data: []byte(`"probe"`)}})
		}},
		{Name: "TakeItems", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.TakeItems(ctx, model.ItemsTake{Entity: of.entity(tenant), ID: of.Stream, Do: model.TakeNext})
		}},
		{Name: "SendItems", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.SendItems(ctx, model.ItemsSend{Entity: of.entity(tenant), ID: of.Stream, First: 1, Items: []model.Payload{{Data: []byte(`"probe"`)}}})
		}},
		{Name: "Mailbox", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Mailbox(ctx, api.MailboxRequest{Address: of.entity(tenant), Do: model.MailboxList})
		}},
	}
}

func taskVerbs() []Verb {
	dead := func(tenant string, of *IDs) api.DeadRequest {
		return api.DeadRequest{Tenant: tenant, Cursor: of.DeadCursor}
	}

	return []Verb{
		{Name: "ListDead", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.ListDead(ctx, dead(tenant, of))
		}},
		{Name: "CountDead", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.CountDead(ctx, dead(tenant, of))
		}},
		{Name: "GroupDead", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.GroupDead(ctx, dead(tenant, of))
		}},
		{Name: "ShowDead", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.ShowDead(ctx, of.dead(tenant))
		}},
		{Name: "Requeue", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.Requeue(ctx, api.RequeueRequest{ID: of.dead(tenant), RequestID: "same"})
		}},
		{Name: "UndoRequeue", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.UndoRequeue(ctx, api.UndoRequest{ID: of.dead(tenant)}))
		}},
		// Purging a dead task that does not exist is not an error.
		{Name: "PurgeDead", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.PurgeDead(ctx, of.dead(tenant)))
		}},
		{Name: "TaskStates", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.TaskStates(ctx, of.task(tenant))
		}},
		{Name: "TaskLogs", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.TaskLogs(ctx, api.TaskLogsRequest{TaskTarget: of.task(tenant)})
		}},
		{Name: "TaskStream", Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.TaskStream(ctx, api.TaskStreamRequest{TaskTarget: of.task(tenant)})
		}},
		{Name: "Watch", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return firstPage(ctx, c, api.WatchRequest{Tenant: tenant, Cursor: of.WatchCursor})
		}},
		{Name: "ListWorkers", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, _ *IDs) (any, error) {
			return c.ListWorkers(ctx, tenant)
		}},
		{Name: "ListQueues", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, _ *IDs) (any, error) {
			return c.ListQueues(ctx, tenant)
		}},
	}
}

// firstPage returns the first page of a watch.
func firstPage(ctx context.Context, c api.Client, r api.WatchRequest) (page api.ChangePage, err error) {
	enough := errors.New("one page is enough")
	err = c.Watch(ctx, r, func(p api.ChangePage) error {
		page = p
		return enough
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return page, err
}

func flowVerbs() []Verb {
	return []Verb{
		{Name: "Limits", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, _ *IDs) (any, error) {
			return c.Limits(ctx, tenant)
		}},
		{Name: "SetLimit", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.SetLimit(ctx, tenant, rule.Limit{Name: of.Limit, Numbers: api.Numbers{Concurrency: 1}}, true))
		}},
		{Name: "TryLimit", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return c.TryLimit(ctx, tenant, rule.Limit{Name: of.Limit + "-trial", Queue: "*", Per: api.PerKind, Numbers: api.Numbers{Concurrency: 1}})
		}},
		{Name: "DisableLimit", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.DisableLimit(ctx, tenant, of.Limit, "probe"))
		}},
		{Name: "EnableLimit", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.EnableLimit(ctx, tenant, of.Limit))
		}},
		{Name: "DeleteLimit", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.DeleteLimit(ctx, tenant, of.Limit))
		}},
		{Name: "Breakers", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, _ *IDs) (any, error) {
			return c.Breakers(ctx, tenant)
		}},
		{Name: "BreakerRules", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, _ *IDs) (any, error) {
			return c.BreakerRules(ctx, tenant)
		}},
		{Name: "SetBreaker", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.SetBreaker(ctx, tenant, api.Breaker{Name: of.Breaker, Failures: 1}))
		}},
		{Name: "ResetBreaker", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.ResetBreaker(ctx, tenant, of.Breaker))
		}},
		{Name: "PauseBreaker", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.PauseBreaker(ctx, tenant, "probe-"+of.Breaker, model.MaxTime, "probe"))
		}},
		{Name: "TripBreaker", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.TripBreaker(ctx, tenant, "trip-"+of.Breaker, "probe"))
		}},
		{Name: "DeleteBreaker", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.DeleteBreaker(ctx, tenant, of.Breaker))
		}},
		{Name: "Allowance", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, _ *IDs) (any, error) {
			return c.Allowance(ctx, tenant)
		}},
		{Name: "SetAllowance", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, _ *IDs) (any, error) {
			return none(c.SetAllowance(ctx, tenant, api.Allowance{Weight: 3}))
		}},
		{Name: "Queues", Own: true, Lists: true, Ask: func(ctx context.Context, c api.Client, tenant string, _ *IDs) (any, error) {
			return c.Queues(ctx, tenant)
		}},
		{Name: "PauseQueue", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.PauseQueue(ctx, tenant, of.Queue, "probe"))
		}},
		{Name: "ResumeQueue", Own: true, Ask: func(ctx context.Context, c api.Client, tenant string, of *IDs) (any, error) {
			return none(c.ResumeQueue(ctx, tenant, of.Queue))
		}},
	}
}
