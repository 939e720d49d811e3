package restapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/model"
)

// shop starts an app with the code that the examples of the document name.
func (w *world) shop() *perdure.App {
	w.t.Helper()
	var (
		paid     = perdure.NewSignal[int]("paid")
		approval = perdure.NewPromise[string]("approval")
		progress = perdure.NewState[string]("progress")
		add      = perdure.NewUpdate[int, int]("add")
		sum      = perdure.NewQuery[perdure.Void, int]("sum")
	)
	pay := perdure.NewActivity("pay", func(context.Context, int) (string, error) {
		return "", perdure.Permanent(errors.New("the card was declined"))
	}, perdure.OnQueue("mails"))
	order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, in int) (int, error) {
		total := in
		sum.Handle(ctx, func(perdure.Void) (int, error) { return total, nil })
		add.Handle(ctx, func(_ perdure.WorkflowCtx, n int) (int, error) {
			if n < 0 {
				return 0, errors.New("too little")
			}
			total += n
			return total, nil
		})

		if err := progress.Set(ctx, "waits for the money"); err != nil {
			return 0, err
		}
		n, err := paid.Receive(ctx)
		if err != nil {
			return 0, err
		}

		if _, err := approval.Await(ctx); err != nil {
			return 0, err
		}
		return total + n, nil
	})

	account := perdure.NewEntity[int]("account", perdure.OperationTimeout(time.Hour))
	deposit := perdure.NewOperation(account, "deposit", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		*s += n
		return *s, nil
	})
	_ = deposit
	nightly := perdure.NewSchedule("nightly", perdure.Cron("0 3 * * *", "UTC"), order.Job(1))
	app, err := attach.Open(w.ctx, attach.Config{Backend: w.server.Node().Backend(), Tenant: model.DefaultTenant}, order, pay, account, nightly)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = app.Close() })
	if _, err := pay.Submit(app.With(w.ctx), 5, perdure.RawKey("p-1")); err != nil {
		w.t.Fatal(err)
	}
	if _, err := pay.Execution(perdure.RawKey("p-1")).Result(app.With(w.ctx)); err == nil {
		w.t.Fatal("the payment has not failed")
	}
	return app
}

// eventually repeats a request until the body has the text.
func (w *world) eventually(text, path string) *answer {
	w.t.Helper()
	for pause := 10 * time.Millisecond; ; pause = min(pause*5/4, 100*time.Millisecond) {
		a := w.send(http.MethodGet, path, "")
		if a.status == http.StatusOK && strings.Contains(a.body, text) {
			return a
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("GET %s does not have %q: %d %s", path, text, a.status, a.body)
		case <-time.After(pause):
		}
	}
}

// Every operation of the document works.
func TestEveryOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.shop()
	tried := map[string]bool{}
	do := func(id string, status int, text, method, path, body string, header ...string) *answer {
		t.Helper()
		tried[id] = true
		return w.want(status, text, method, "/v1"+path, body, header...)
	}
	const order = "/executions/order/42"
	const get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete

	do("get-series", 200, `"tasks_dead":[`, get, "/series?step=5m", "")
	w.want(400, "must be a multiple of 5s", get, "/v1/series?step=7m", "")
	do("get-server", 200, `"version":"test"`, get, "/server", "")
	do("get-me", 200, `"tenant:write"`, get, "/me", "")

	// Executions.
	made := do("start-execution", 201, `"existing":false`, post, "/executions", `{"workflow":"order","key":"42","input":10,"labels":{"region":"eu"}}`)
	if made.header.Get("Location") != "/v1"+order {
		t.Errorf("location %q", made.header.Get("Location"))
	}
	do("start-execution", 200, `"existing":true`, post, "/executions", `{"workflow":"order","key":"42","input":10}`)
	w.want(409, "", post, "/v1/executions", `{"workflow":"order","key":"42","input":11}`)
	w.eventually("waits for the money", "/v1"+order+"/states/progress")
	do("get-state", 200, `{"value":"waits for the money"}`, get, order+"/states/progress", "")
	w.want(404, "has no state", get, "/v1"+order+"/states/none", "")
	do("list-executions", 200, `"key":"42"`, get, "/executions?query="+url.QueryEscape(`workflow = "order" and label.region = "eu"`), "")
	w.want(400, "", get, "/v1/executions?query="+url.QueryEscape(`workflow ==`), "")
	do("count-executions", 200, `{"count":1}`, get, "/execution-count?query="+url.QueryEscape(`label.region = "eu"`), "")
	w.want(200, `{"count":1,"at_least":true}`, get, "/v1/execution-count?bound=1&query="+url.QueryEscape(`label.region = "eu"`), "")
	w.want(200, `{"count":1}`, get, "/v1/execution-count?bound=2&query="+url.QueryEscape(`label.region = "eu"`), "")
	do("tally-executions", 200, `"groups":[{"workflow":"order","status":"running","reason":"ready","count":1}]`, get, "/execution-tally?by=workflow,status,reason&query="+url.QueryEscape(`label.region = "eu"`), "")
	w.want(200, `{"count":1,"at_least":true,"groups":[{"status":"running","count":1}]}`, get, "/v1/execution-tally?bound=1&query="+url.QueryEscape(`label.region = "eu"`), "")
	w.want(400, "must have workflow, status or reason", get, "/v1/execution-tally?by=size", "")
	do("list-stranded", 200, `"items":[]`, get, "/stranded-executions", "")
	do("describe-execution", 200, `"input":10`, get, order, "")
	do("explain-execution", 200, `"code":"signal"`, get, order+"/explanation", "")
	do("get-relations", 200, `"children":[]`, get, order+"/relations?forks=true", "")
	do("explain-graph", 200, `"nodes":[{"of":{"kind":"execution","workflow":"order","key":"42"}`, get, order+"/explanation/graph?depth=2", "")
	w.want(200, `"refs":[{"kind":"signal","name":"paid"}]`, get, "/v1"+order+"/explanation/graph", "")
	w.want(422, "", get, "/v1"+order+"/explanation/graph?depth=33", "")
	do("await-execution", 202, `{"status":"running"}`, get, order+"/result?wait=1ms", "")
	do("query-execution", 200, `{"value":10}`, post, order+"/query", `{"name":"sum"}`)
	for range 2 { // the same request
		do("update-execution", 200, `{"value":15}`, post, order+"/update", `{"name":"add","input":5}`, "Idempotency-Key", "u-1")
	}
	if p := w.want(424, "too little", post, "/v1"+order+"/update", `{"name":"add","input":-1}`).problem(t); p.Kind != "failure" || p.Failure == nil || p.Failure.Message != "too little" {
		t.Errorf("%+v", p)
	}
	do("pause-execution", 204, "", post, order+"/pause", `{"reason":"stock"}`)
	do("resume-execution", 204, "", post, order+"/resume", "")
	do("get-history", 200, `"kind":"update_received"`, get, order+"/history?payloads=false", "")
	lines := do("list-events", 200, `"input":{"bytes":2,"text":"10"}`, get, order+"/events", "")
	if got, n := lines.header.Get("Perdure-Events"), strings.Count(lines.body, "\n"); got != fmt.Sprint(n) || n < 4 {
		t.Errorf("%d lines of %s events: %s", n, got, lines.body)
	}
	raw := do("get-event-bytes", 200, "10", get, order+"/events/0/input", "")
	if h := raw.header; raw.body != "10" || h.Get("Content-Type") != "application/json" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%q with %v", raw.body, h)
	}
	w.want(404, "no value output of event 0", get, "/v1"+order+"/events/0/output", "")
	w.want(404, "has no event 9999", get, "/v1"+order+"/events/9999/output", "")
	do("get-state-bytes", 200, `"waits for the money"`, get, order+"/states/progress/bytes", "")
	w.want(404, "there is no value of state none", get, "/v1"+order+"/states/none/bytes", "")
	exported := do("export-execution", 200, "order", get, order+"/export", "")
	if got := exported.header.Get("Content-Type"); got != "application/jsonl" {
		t.Errorf("exported as %s", got)
	}
	do("import-execution", 201, `"key":"43"`, post, "/imports?key=43", exported.body, "Content-Type", "application/jsonl")
	do("fork-execution", 200, `"key":"44"`, post, order+"/fork", `{"key":"44"}`)
	do("reset-execution", 200, `"dry_run":true`, post, order+"/reset", `{"after":0,"dry_run":true}`)
	do("signal-execution", 204, "", post, "/executions/order/44/signal", `{"name":"unknown","input":1}`)
	w.eventually(`"name":"unknown"`, "/v1/executions/order/44/unread-signals")
	unread := do("list-unread-signals", 200, `"total":1`, get, "/executions/order/44/unread-signals", "")
	id := between(unread.body, `"id":"`, `"`)
	do("skip-unread-signal", 200, "", post, "/executions/order/44/unread-signals/"+id+"/skip", "")
	id = between(w.send(get, "/v1/executions/order/44/unread-signals", "").body, `"id":"`, `"`)
	do("drop-unread-signal", 200, id, del, "/executions/order/44/unread-signals/"+id, "")
	do("terminate-execution", 204, "", post, "/executions/order/44/terminate", `{"reason":"wrong"}`)
	do("retry-execution", 200, `"status":"running"`, post, "/executions/order/44/retry", "")
	do("cancel-execution", 204, "", post, "/executions/order/44/cancel", "")
	w.eventually(`"status":"canceled"`, "/v1/executions/order/44/result?wait=10s")
	do("delete-execution", 200, `"dry_run":true`, del, "/executions/order/44?dry_run=true", "")
	do("delete-execution", 200, `"dry_run":false`, del, "/executions/order/44", "")
	w.want(404, "", get, "/v1/executions/order/44", "")
	for range 2 {
		w.want(204, "", post, "/v1"+order+"/signal", `{"name":"paid","input":100}`, "Idempotency-Key", "s-1")
	}
	do("resolve-promise", 204, "", post, order+"/promises/approval/resolve", `{"value":"yes"}`)
	do("await-execution", 200, `"output":115`, get, order+"/result?wait=30s", "")
	do("signal-with-start", 201, `"existing":false`, post, "/executions/order/45/signal-with-start", `{"signal":{"name":"paid","input":1},"input":1}`)
	do("reject-promise", 204, "", post, "/executions/order/45/promises/approval/reject", `{"message":"no"}`)
	w.eventually(`"message":"no"`, "/v1/executions/order/45/result?wait=10s")

	// Batches.
	do("start-execution", 201, "", post, "/executions", `{"workflow":"order","key":"50","input":1,"labels":{"lot":"a"}}`)
	const lot = `{"id":"lot-a","verb":"cancel","query":"label.lot = \"a\"","reason":"recalled"`
	do("start-batch", 200, `"matched":1`, post, "/batches", lot+`,"dry_run":true}`)
	w.want(404, "there is no batch", get, "/v1/batches/lot-a", "")
	made = do("start-batch", 201, `"id":"lot-a"`, post, "/batches", lot+"}")
	if made.header.Get("Location") != "/v1/batches/lot-a" {
		t.Errorf("location %q", made.header.Get("Location"))
	}
	w.eventually(`"status":"completed"`, "/v1/batches/lot-a")
	do("get-batch", 200, `"done":1`, get, "/batches/lot-a", "")
	w.want(201, `"done":1`, post, "/v1/batches", lot+"}")
	w.want(409, "", post, "/v1/batches", strings.Replace(lot, "cancel", "pause", 1)+"}")
	w.want(400, "status", post, "/v1/batches", `{"verb":"cancel","query":"status = \"failed\""}`)
	w.want(422, "", post, "/v1/batches", `{"verb":"explode","query":"status = \"failed\""}`)
	do("list-batches", 200, `"by":"admin"`, get, "/batches?limit=5", "")
	w.want(200, `{"items":[]}`, get, "/v1/batches?open=true", "")
	do("cancel-batch", 409, "", post, "/batches/lot-a/cancel", `{"reason":"late"}`)
	w.eventually("recalled", "/v1/executions/order/50/history")

	// Entities and locks.
	do("call-entity", 200, `{"value":7}`, post, "/entities/account/eu-1/call", `{"operation":"deposit","input":7}`, "Idempotency-Key", "d-1")
	do("send-entity", 202, "", post, "/entities/account/eu-1/send", `{"operation":"deposit","input":1}`)
	w.eventually(`"state":8`, "/v1/entities/account/eu-1")
	do("get-entity", 200, `"exists":true`, get, "/entities/account/eu-1", "")
	do("get-entity-bytes", 200, "8", get, "/entities/account/eu-1/bytes", "")
	w.want(404, "there is no value of the state", get, "/v1/entities/account/none/bytes", "")
	do("get-mailbox-bytes", 404, "", get, "/entities/account/eu-1/mailbox/1-000000000000/bytes", "")
	do("edit-entity", 428, "If-Match", put, "/entities/account/eu-1", `{"state":80}`)
	seen := w.want(200, `"state":8`, get, "/v1/entities/account/eu-1", "")
	w.want(412, "read it again", put, "/v1/entities/account/eu-1", `{"state":80}`, "If-Match", `"1"`)
	w.want(412, "read it again", put, "/v1/entities/account/eu-1", `{"state":80}`, "If-None-Match", "*")
	w.want(400, "must be the ETag", put, "/v1/entities/account/eu-1", `{"state":80}`, "If-Match", "*")
	made = do("edit-entity", 200, `{"version":3}`, put, "/entities/account/eu-1", `{"state":80}`, "If-Match", seen.header.Get("ETag"))
	if now := w.want(200, `"state":80`, get, "/v1/entities/account/eu-1", ""); now.header.Get("ETag") != made.header.Get("ETag") {
		t.Errorf("ETag %q after an edit that returned %q", now.header.Get("ETag"), made.header.Get("ETag"))
	}
	do("list-entities", 200, `"key":"eu-1"`, get, "/entities?entity=account&prefix=eu-", "")
	w.want(200, `"key":"eu-1"`, get, "/v1/entities?min_version=2&changed_from=2020-01-01T00:00:00Z", "")
	w.want(200, `{"items":[]}`, get, "/v1/entities?waiting=true", "")
	w.want(200, `{"items":[]}`, get, "/v1/entities?expired=true&changed_to=2020-01-01T00:00:00Z", "")
	do("list-mailbox", 200, `"total":0`, get, "/entities/account/eu-1/mailbox", "")
	do("list-locks", 200, `"items":[]`, get, "/locks", "")
	tried["skip-mailbox-item"], tried["drop-mailbox-item"], tried["release-lock"] = true, true, true
	do("interrupt-entity", 404, "runs", post, "/entities/account/eu-1/interrupt", "")
	w.want(404, "", post, "/v1/entities/account/eu-1/mailbox/1-000000000000/skip", "")
	w.want(404, "", del, "/v1/entities/account/eu-1/mailbox/1-000000000000", "")
	w.want(404, "is not locked", post, "/v1/locks/account/eu-1/release", "")

	// Tasks.
	do("submit-task", 201, `"workflow":"task:mail","key":"m-1"`, post, "/tasks", `{"activity":"mail","key":"m-1","queue":"mails","input":"ann","attempts":3,"delay":"1h","limits":["smtp"]}`)
	w.want(200, `"existing":true`, post, "/v1/tasks", `{"activity":"mail","key":"m-1","queue":"mails","input":"ann"}`)
	w.want(201, `"key":"r-1"`, post, "/v1/tasks", `{"activity":"mail","delay":"1h"}`, "Idempotency-Key", "r-1")
	w.want(200, `"key":"r-1"`, post, "/v1/tasks", `{"activity":"mail","delay":"1h"}`, "Idempotency-Key", "r-1")
	w.want(400, "delay is", post, "/v1/tasks", `{"activity":"mail","delay":"soon"}`)
	w.want(422, "expected required property activity", post, "/v1/tasks", `{"key":"x"}`)
	do("get-task-states", 200, `"states":{}`, get, "/executions/task:pay/p-1/task-states", "")
	do("get-task-logs", 200, `"lines":[]`, get, "/executions/task:pay/p-1/task-logs", "")
	do("get-task-stream", 200, `"items":[]`, get, "/executions/task:pay/p-1/task-stream", "")
	dead := w.eventually("the card was declined", "/v1/dead-tasks")
	do("list-dead-tasks", 200, "the card was declined", get, "/dead-tasks?activity=pay", "")
	do("count-dead-tasks", 200, `{"count":1}`, get, "/dead-task-count", "")
	do("group-dead-tasks", 200, `"count":1`, get, "/dead-task-groups", "")
	one := "/dead-tasks/" + between(dead.body, `"id":"`, `"`)
	do("get-dead-task", 200, `"input":5`, get, one, "")
	do("pause-queue", 204, "", post, "/queues/mails/pause", `{"reason":"bank is closed"}`)
	do("requeue-dead-task", 200, `"existing":false`, post, one+"/requeue", "")
	do("undo-requeue", 204, "", post, one+"/undo-requeue", "")
	do("purge-dead-task", 204, "", del, one, "")
	do("list-queues", 200, `"paused":true`, get, "/queues", "")
	do("resume-queue", 204, "", post, "/queues/mails/resume", "")
	do("list-workers", 200, `"order"`, get, "/workers", "")

	// Limits, breakers, schedules.
	do("set-limit", 204, "", put, "/limits/smtp", `{"concurrency":5,"rate":"100/1m","per":"name"}`)
	do("try-limit", 200, `"uses":[]`, post, "/limits/fax/trial", `{"queue":"fax","concurrency":1}`)
	do("list-limits", 200, `"rate":"100/1m"`, get, "/limits", "")
	do("disable-limit", 204, "", post, "/limits/smtp/disable", `{"reason":"a larger quota"}`)
	w.want(200, `"disabled":true,"reason":"a larger quota"`, get, "/v1/limits", "")
	do("enable-limit", 204, "", post, "/limits/smtp/enable", "")
	if a := w.want(200, `"rate":"100/1m"`, get, "/v1/limits", ""); strings.Contains(a.body, "disabled") {
		t.Error(a.body)
	}
	w.want(404, "no rule for limit fax", post, "/v1/limits/fax/disable", "")
	do("delete-limit", 204, "", del, "/limits/smtp", "")
	do("set-breaker-rule", 204, "", put, "/breaker-rules/bank", `{"failures":3,"reset":"30s"}`)
	do("list-breaker-rules", 200, `"reset":"30s"`, get, "/breaker-rules", "")
	do("trip-breaker", 204, "", post, "/breakers/bank/trip", `{"reason":"maintenance"}`)
	do("list-breakers", 200, `"state":"open"`, get, "/breakers", "")
	do("pause-breaker", 204, "", post, "/breakers/bank/pause", `{"until":"2099-01-01T00:00:00Z"}`)
	do("reset-breaker", 204, "", post, "/breakers/bank/reset", "")
	do("delete-breaker-rule", 204, "", del, "/breaker-rules/bank", "")
	w.eventually(`"starts":"order"`, "/v1/schedules")
	do("list-schedules", 200, `"errors":[]`, get, "/schedules", "")
	do("get-schedule", 200, `"cron":"0 3 * * *"`, get, "/schedules/nightly", "")
	do("list-ticks", 200, `{"items":[{"at":"2099-03-01T03:00:00Z","outcome":"due","workflow":"order","key":"nightly@2099-03-01T03:00:00Z"},{"at":"2099-03-02T03:00:00Z"`, get, "/schedules/nightly/ticks?from=2099-03-01T00:00:00Z&to=2099-03-03T03:00:00Z", "")
	w.want(200, `"more":true`, get, "/v1/schedules/nightly/ticks?from=2099-03-01T00:00:00Z&to=2099-03-03T03:00:00Z&limit=1", "")
	w.want(200, `"outcome":"unknown"`, get, "/v1/schedules/nightly/ticks?from=2020-03-01T00:00:00Z&to=2020-03-02T04:00:00Z", "")
	w.want(400, "from must be before to", get, "/v1/schedules/nightly/ticks?from=2099-03-01T00:00:00Z&to=2099-03-01T00:00:00Z", "")
	w.want(404, "there is no schedule", get, "/v1/schedules/none/ticks", "")
	do("set-schedule", 200, `"change":"created"`, put, "/schedules/mails", `{"every":"1h","activity":"mail","task":{"queue":"mails","attempts":2},"paused_at_first":"not yet"}`)
	w.want(200, `"change":"unchanged"`, put, "/v1/schedules/mails", `{"every":"1h","activity":"mail","task":{"queue":"mails","attempts":2}}`)
	w.want(200, `"change":"changed"`, put, "/v1/schedules/mails?dry_run=true", `{"cron":"0 4 * * *","workflow":"order"}`)
	w.want(200, `"every":"1h0m0s"`, get, "/v1/schedules/mails", "")
	w.want(200, `"change":"changed"`, put, "/v1/schedules/mails", `{"cron":"0 4 * * *","workflow":"order","input":{"a":1}}`)
	w.want(400, "either a workflow or an activity", put, "/v1/schedules/mails", `{"every":"1h","activity":"mail","workflow":"order"}`)
	w.want(400, "activity must be set too", put, "/v1/schedules/mails", `{"every":"1h","workflow":"order","task":{}}`)
	w.want(400, "every is", put, "/v1/schedules/mails", `{"every":"often","workflow":"order"}`)
	w.want(200, "", post, "/v1/schedules/mails/delete", "")
	do("change-schedule", 200, "", post, "/schedules/nightly/backfill", `{"from":"2024-01-01T00:00:00Z","to":"2024-01-02T00:00:00Z"}`)
	w.eventually(`"outcome":"started"`, "/v1/schedules/nightly/ticks?from=2024-01-01T00:00:00Z&to=2024-01-03T00:00:00Z")
	do("change-schedule", 200, "", post, "/schedules/nightly/pause", `{"reason":"stock-taking"}`)
	do("change-schedules", 200, `{"items":[{"name":"nightly"}],"failed":0}`, post, "/schedule-changes", `{"verb":"resume","all":true}`)
	w.want(200, `"paused":false`, get, "/v1/schedules/nightly", "")
	w.want(200, `"failed":1`, post, "/v1/schedule-changes", `{"verb":"pause","names":["nightly","none","nightly"],"reason":"stock-taking"}`)
	w.want(200, `"reason":"stock-taking"`, get, "/v1/schedules/nightly", "")
	w.want(200, `"items":[]`, post, "/v1/schedule-changes", `{"verb":"pause","app":"none"}`)
	w.want(400, "exactly one of these", post, "/v1/schedule-changes", `{"verb":"pause","app":"a","all":true}`)
	w.want(400, "exactly one of these", post, "/v1/schedule-changes", `{"verb":"pause"}`)
	w.want(422, "", post, "/v1/schedule-changes", `{"verb":"delete","all":true}`)
	w.want(200, `"outcome":"paused"`, get, "/v1/schedules/nightly/ticks?from=2099-03-01T00:00:00Z&to=2099-03-03T03:00:00Z", "")
	do("get-schedule", 200, "stock-taking", get, "/schedules/nightly", "")
	do("get-allowance", 200, "{}", get, "/allowance", "")
	do("set-allowance", 204, "", put, "/allowance", `{"open":1000,"retention":"720h"}`)
	do("get-allowance", 200, `"retention":"720h0m0s"`, get, "/allowance", "")

	// Administration.
	do("create-tenant", 201, `"open":7`, post, "/tenants", `{"name":"acme","open":7}`)
	do("change-tenant", 200, `"note":"the first"`, patch, "/tenants/acme", `{"note":"the first"}`)
	do("get-tenant", 200, `"open":7`, get, "/tenants/acme", "")
	do("list-tenants", 200, `"name":"acme"`, get, "/tenants", "")
	k := do("create-key", 201, `"secret":"perdure_`, post, "/keys", `{"tenant":"acme","roles":["worker"],"expires_in":"2160h"}`)
	if k.header.Get("Cache-Control") != "no-store" {
		t.Errorf("the secret of a key may be cached: %v", k.header)
	}
	fresh := do("rotate-key", 201, `"roles":["worker"]`, post, "/keys/"+k.field(t, "id")+"/rotate", `{"overlap":"1h"}`)
	do("revoke-key", 204, "", del, "/keys/"+fresh.field(t, "id"), "")
	if list := do("list-keys", 200, k.field(t, "id"), get, "/keys?tenant=acme", ""); strings.Contains(list.body, "secret") {
		t.Errorf("a list has secrets: %s", list.body)
	}
	const setting = "/tenants/acme/settings/limit/smtp"
	const body = `{"name":"smtp","per":"name","concurrency":5}`
	set := do("set-setting", 200, `"concurrency":5`, put, setting, body, "If-None-Match", "*")
	w.want(412, "", put, "/v1"+setting, body, "If-None-Match", "*")
	w.want(412, "", put, "/v1"+setting, body, "If-Match", `"1000000"`)
	if got := do("get-setting", 200, `"kind":"limit"`, get, setting, "").header.Get("ETag"); got == "" || got != set.header.Get("ETag") {
		t.Errorf("ETag %q, want %q", got, set.header.Get("ETag"))
	}
	do("list-settings", 200, `"name":"smtp"`, get, "/tenants/acme/settings?kind=limit", "")
	do("delete-setting", 204, "", del, setting, "", "If-Match", set.header.Get("ETag"))
	w.want(404, "", get, "/v1"+setting, "")
	do("list-nodes", 200, `"self":true`, get, "/nodes", "")
	self := w.want(200, "", get, "/v1/nodes", "")
	node := between(self.body, `"node":"`, `"`)
	do("list-shards", 200, `"owner":"`+node+`"`, get, "/shards", "")
	do("rebalance-shards", 202, "", post, "/shards/rebalance", "")
	tried["drain-node"] = true
	w.want(409, "it is the only node", post, "/v1/nodes/"+node+"/drain", "")
	w.want(404, "there is no node", post, "/v1/nodes/"+model.NodeID{1}.String()+"/drain", "")
	w.want(400, "", post, "/v1/nodes/nonsense/drain", "")
	do("undrain-node", 202, "", post, "/nodes/"+node+"/undrain", "")
	do("get-health", 200, `"ready":true`, get, "/health", "")
	do("list-worker-sessions", 200, `"items":[]`, get, "/worker-sessions", "")
	tried["drain-worker"] = true
	w.want(404, "is connected to this server", post, "/v1/worker-sessions/none/drain", "")

	do("list-audit", 200, `"call":"CreateTenant"`, get, "/audit?action=tenant&tenant=acme&outcome=done", "")
	do("list-audit", 200, `"resource":"execution order/44"`, get, "/audit?action=terminate&caller=admin", "")
	w.want(400, "the cursor", get, "/v1/audit?cursor=x", "")
	if all := w.want(200, "", get, "/v1/audit?limit=1000", ""); strings.Contains(all.body, "the card was declined") || strings.Contains(all.body, fresh.field(t, "secret")) {
		t.Errorf("the audit log has a payload or a secret: %s", all.body)
	}

	const view = `{"query":"status = \"failed\"","note":"for the morning","display":{"columns":["key"]}}`
	saved := do("set-view", 200, `"owner":"admin"`, put, "/views/failed%20orders", view, "If-None-Match", "*")
	w.want(412, "", put, "/v1/views/failed%20orders", view, "If-None-Match", "*")
	w.want(412, "", put, "/v1/views/failed%20orders", view, "If-Match", `"1"`)
	w.want(400, "the query", put, "/v1/views/wrong", `{"query":"status =="}`)
	w.want(400, "at most 8192", put, "/v1/views/wrong", `{"display":"`+strings.Repeat("x", 9000)+`"}`)
	if got := do("get-view", 200, `"display":{"columns":["key"]}`, get, "/views/failed%20orders", "").header.Get("ETag"); got == "" || got != saved.header.Get("ETag") {
		t.Errorf("ETag %q, want %q", got, saved.header.Get("ETag"))
	}
	do("list-views", 200, `"page":"executions"`, get, "/views", "")
	w.want(200, `{"items":[]}`, get, "/v1/views", "", "Perdure-Tenant", "acme")
	w.want(404, "there is no view", del, "/v1/views/failed%20orders", "", "Perdure-Tenant", "acme")
	do("delete-view", 204, "", del, "/views/failed%20orders", "", "If-Match", saved.header.Get("ETag"))
	w.want(404, "there is no view", get, "/v1/views/failed%20orders", "")
	w.want(200, `"call":"SetView"`, get, "/v1/audit?action=view", "")

	const report = `{"build":"v2","source":"https://ci.example/7","results":[
		{"workflow":"order","key":"42","outcome":"mismatch","event":1,"text":"event 1 records step charge"},
		{"workflow":"order","key":"43","outcome":"fits"},
		{"workflow":"bill","key":"1","outcome":"fits"}]}`
	added := do("add-replay-report", 201, `"outcome":"mismatch","fits":2,"mismatches":1,"errors":0,"absent":0,"skipped":0`, post, "/replay-reports", report, "Idempotency-Key", "ci-7")
	where := added.header.Get("Location")
	do("add-replay-report", 200, `"by":"admin","build":"v2","source":"https://ci.example/7"`, post, "/replay-reports", report, "Idempotency-Key", "ci-7")
	w.want(409, "was used for another report", post, "/v1/replay-reports", strings.Replace(report, "v2", "v3", 1), "Idempotency-Key", "ci-7")
	w.want(201, `"workflows":[{"workflow":"bill","outcome":"fits"`, post, "/v1/replay-reports", `{"build":"v3","results":[{"workflow":"bill","key":"1","outcome":"fits"}]}`)
	for body, text := range map[string]string{
		`{"build":"v2","results":[]}`: "", `{"results":[{"workflow":"order","key":"1","outcome":"fits"}]}`: "", `{"build":"v2","results":[{"workflow":"order","key":"1","outcome":"good"}]}`: "",
		`{"build":"v2","results":[{"workflow":"order","key":"1","outcome":"fits","more":1}]}`: "",
	} {
		w.want(422, text, post, "/v1/replay-reports", body)
	}
	for body, text := range map[string]string{
		`{"build":"v2","results":[{"workflow":"order","key":"1","outcome":"fits","event":3}]}`:                                                                                                                                         "may name an event; the outcome is fits",
		`{"build":"v2","results":[{"workflow":"order","key":"1","outcome":"fits","run":"run_1"}]}`:                                                                                                                                     "result 0: run",
		`{"build":"v2","results":[{"workflow":"order","key":"1","outcome":"error","text":"` + strings.Repeat("x", 5000) + `"}]}`:                                                                                                       "at most 4096",
		`{"build":"` + strings.Repeat("v", 201) + `","results":[{"workflow":"order","key":"1","outcome":"fits"}]}`:                                                                                                                     "at most 200",
		`{"build":"v2","results":[` + strings.Repeat(`{"workflow":"order","key":"`+strings.Repeat("k", 512)+`","outcome":"error","text":"`+strings.Repeat("x", 512)+`"},`, 1030) + `{"workflow":"order","key":"1","outcome":"fits"}]}`: "at most 1048576",
	} {
		w.want(400, text, post, "/v1/replay-reports", body)
	}

	list := do("list-replay-reports", 200, `"build":"v3"`, get, "/replay-reports", "")
	if strings.Contains(list.body, `"results"`) {
		t.Errorf("a list has results: %s", list.body)
	}
	for query, has := range map[string][2]bool{ // the report of v2, and that of v3
		"?workflow=order": {true, false}, "?workflow=bill": {true, true}, "?workflow=none": {}, "?build=v3": {false, true}, "?outcome=mismatch": {true, false}, "?outcome=fits": {false, true},
		"?workflow=bill&outcome=fits": {true, true}, "?workflow=bill&outcome=mismatch": {}, "?workflow=order&outcome=mismatch&build=v2": {true, false},
	} {
		got := w.want(200, "", get, "/v1/replay-reports"+query, "")
		if strings.Contains(got.body, `"build":"v2"`) != has[0] || strings.Contains(got.body, `"build":"v3"`) != has[1] {
			t.Errorf("%s: %s", query, got.body)
		}
	}
	first := w.want(200, `"build":"v3"`, get, "/v1/replay-reports?limit=1", "")
	w.want(200, `"build":"v2"`, get, "/v1/replay-reports?limit=1&cursor="+first.field(t, "cursor"), "")
	w.want(400, "the cursor", get, "/v1/replay-reports?cursor=x", "")
	w.want(422, "", get, "/v1/replay-reports?outcome=good", "")

	do("get-replay-report", 200, `"key":"42","outcome":"mismatch","event":1,"text":"event 1 records step charge"`, get, strings.TrimPrefix(where, "/v1"), "")
	w.want(404, "there is no replay report", get, where, "", "Perdure-Tenant", "acme")
	w.want(200, `{"items":[]}`, get, "/v1/replay-reports", "", "Perdure-Tenant", "acme")
	w.want(400, "is not an id", get, "/v1/replay-reports/none", "")
	w.want(200, `"resource":"replay report of build v2"`, get, "/v1/audit?action=replayreport", "")

	do("create-session", 201, `"guard":`, post, "/session", `{"lifetime":"1h"}`)
	do("list-sessions", 200, `"caller":"admin"`, get, "/sessions", "")
	do("get-session", 404, "no session", get, "/session", "") // TestSessions
	do("end-session", 404, "no session", del, "/session", "")
	do("revoke-session", 404, "no session", del, "/sessions/none", "")

	tried["stream-entity"] = true     // TestEntityStream
	tried["watch-changes"] = true     // TestChanges
	tried["watch-events"] = true      // TestEventStream
	tried["watch-task-stream"] = true // TestTaskStreamAsEvents
	for _, id := range w.rest.Operations() {
		if !tried[id] {
			t.Errorf("%s was not tried", id)
		}
	}
	for id := range tried {
		if !slices.Contains(w.rest.Operations(), id) {
			t.Errorf("%s does not exist", id)
		}
	}
}

// between returns the text between two others.
func between(text, before, after string) string {
	_, rest, _ := strings.Cut(text, before)
	found, _, _ := strings.Cut(rest, after)
	return found
}
