package batchjob_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// A batch applies its verb to all executions that the query selects, with the same effect as a
// single call on each of them. This holds on every store, in process and over a connection.
func TestEveryVerb(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"memory", "sqlite", "postgres"} {
		for _, face := range []string{"store", "server"} {
			t.Run(kind+"/"+face, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, kind)
				w.serve()
				if face == "server" {
					w.client = w.dial(tenant)
				}
				everyVerb(w)
			})
		}
	}
}

func everyVerb(w *world) {
	job := model.Address{Tenant: tenant, Type: "job", Key: "a"}
	const n = 5
	query := func(label string) string { return fmt.Sprintf("label.set = %q", label) }
	w.start(w.client, job, `"wait"`, "other", n)

	for _, verb := range []string{api.BatchCancel, api.BatchTerminate} {
		w.start(w.client, job, `"wait"`, verb, n)
		w.want(w.run(api.BatchRequest{Verb: verb, Query: query(verb), Reason: "it moves"}), n, n, 0, 0)
		end := map[string]model.Status{api.BatchCancel: model.Canceled, api.BatchTerminate: model.Terminated}[verb]
		w.until("the end of all", func() bool { return w.count(verb, end) == n })
	}

	w.start(w.client, job, `"wait"`, "talk", n)
	w.want(w.run(api.BatchRequest{Verb: api.BatchPause, Query: query("talk"), Reason: "stock"}), n, n, 0, 0)
	page, err := w.client.List(w.ctx, api.ListRequest{Tenant: tenant, Reasons: []model.ReasonCode{model.WaitPaused}})
	if err != nil || len(page.Executions) != n {
		w.t.Errorf("%d are paused, %v", len(page.Executions), err)
	}
	w.want(w.run(api.BatchRequest{ID: "resume", Verb: api.BatchResume, Query: query("talk")}), n, n, 0, 0)
	w.want(w.run(api.BatchRequest{ID: "talk", Verb: api.BatchSignal, Query: query("talk"), Signal: "go", Input: model.Payload{Data: []byte(`"gone"`)}}), n, n, 0, 0)
	w.until("all have got the signal", func() bool { return w.count("talk", model.Completed) == n })
	w.wantRequest("a-talk-2", "resume", model.EventResumed)
	w.wantRequest("a-talk-2", "talk", model.EventSignalReceived)
	r, err := w.client.Await(w.ctx, api.Target{Address: model.Address{Tenant: tenant, Type: "job", Key: "a-talk-3"}})
	if err != nil || string(r.Outcome.Output.Data) != `"gone"` {
		w.t.Errorf("%s, %v", r.Outcome.Output.Data, err)
	}

	w.start(w.client, job, `"fail"`, "bad", n)
	w.until("all have failed", func() bool { return w.count("bad", model.Failed) == n })
	w.want(w.run(api.BatchRequest{Verb: api.BatchRetry, Query: query("bad")}), n, n, 0, 0)
	w.until("all have failed again", func() bool { return w.count("bad", model.Failed) == n })
	w.want(w.run(api.BatchRequest{Verb: api.BatchReset, Query: query("bad"), Placed: true}), n, n, 0, 0)
	w.until("all have failed again", func() bool { return w.count("bad", model.Failed) == n })
	w.want(w.run(api.BatchRequest{Verb: api.BatchDelete, Query: query("bad")}), n, n, 0, 0)
	if left := w.count("bad"); left != 0 {
		w.t.Errorf("%d are left", left)
	}
	if others := w.count("other", model.Running); others != n {
		w.t.Errorf("%d of %d others run", others, n)
	}

	list, err := w.client.ListBatches(w.ctx, api.BatchListRequest{Tenant: tenant, Limit: 3})
	if err != nil || len(list.Batches) != 3 || list.Cursor == "" || list.Batches[0].Verb != api.BatchDelete || list.Batches[0].Progress.Done != n {
		w.t.Errorf("%+v, %v", list, err)
	}
	rest, err := w.client.ListBatches(w.ctx, api.BatchListRequest{Tenant: tenant, Cursor: list.Cursor})
	if err != nil || len(rest.Batches) != 5 || rest.Cursor != "" {
		w.t.Errorf("%+v, %v", rest, err)
	}
	if open, err := w.client.ListBatches(w.ctx, api.BatchListRequest{Tenant: tenant, Open: true}); err != nil || len(open.Batches) != 0 {
		w.t.Errorf("%+v, %v", open, err)
	}
}

// wantRequest checks that the history of a job has the request of a batch. A batch that was
// interrupted for a long time finds the request there.
func (w *world) wantRequest(key, batch string, kind model.EventKind) {
	w.t.Helper()
	page, err := w.client.History(w.ctx, api.HistoryRequest{Target: api.Target{Address: model.Address{Tenant: tenant, Type: "job", Key: key}}, After: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	id := "batch/" + batch + "/" + page.Run.String()
	if !slices.ContainsFunc(page.Events, func(e model.Event) bool { return e.Kind == kind && e.RequestID == id }) {
		w.t.Errorf("the history of %s has no event of %s: %+v", key, id, page.Events)
	}
}

// A dry run counts what a batch would change, and changes and starts nothing.
func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory")
	w.start(w.client, model.Address{Tenant: tenant, Type: "idle", Key: "a"}, "1", "x", 7)
	for _, verb := range []string{api.BatchCancel, api.BatchTerminate, api.BatchPause} {
		b, err := w.client.StartBatch(w.ctx, api.BatchRequest{Tenant: tenant, ID: verb, Verb: verb, Query: `label.set = "x"`, DryRun: true})
		if err != nil || b.Progress.Matched != 7 || b.Status != 0 {
			t.Errorf("%+v, %v", b, err)
		}
		if _, err := w.client.Batch(w.ctx, api.BatchTarget{Tenant: tenant, ID: verb}); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
	}

	if n, err := w.client.Count(w.ctx, api.ListRequest{Tenant: tenant}); err != nil || n != 7 {
		t.Errorf("%d executions, %v", n, err)
	}
	page, err := w.client.List(w.ctx, api.ListRequest{Tenant: tenant})
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Executions {
		d, err := w.client.Describe(w.ctx, api.Target{Address: page.Executions[i].Start.Address})
		if err != nil || d.Events != 1 || d.Outcome.Status != model.Running {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// The same request with the same id starts one batch. Another request with that id is refused.
func TestIDStartsOneBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory")
	w.start(w.client, model.Address{Tenant: tenant, Type: "idle", Key: "a"}, "1", "x", 3)
	r := api.BatchRequest{Tenant: tenant, ID: "one", Verb: api.BatchCancel, Query: `label.set = "x" and started < "2100-01-01T00:00:00Z" and started > -1h`}
	first, err := w.client.StartBatch(w.ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	w.want(w.ended("one"), 3, 3, 0, 0)
	again, err := w.client.StartBatch(w.ctx, r)
	if err != nil || again.Started != first.Started || again.Selects != first.Selects {
		t.Errorf("%+v, %v; first %+v", again, err, first)
	}
	r.Verb = api.BatchTerminate
	if _, err := w.client.StartBatch(w.ctx, r); !fault.Is(err, fault.Conflict) {
		t.Error(err)
	}

	r.ID, r.RequestID = "", "req-1"
	a, err := w.client.StartBatch(w.ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.client.StartBatch(w.ctx, r)
	if err != nil || a.ID != b.ID {
		t.Errorf("%s and %s, %v", a.ID, b.ID, err)
	}
	r.Verb = api.BatchCancel
	if _, err := w.client.StartBatch(w.ctx, r); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), `request id "req-1" was used for another batch, `+a.ID) {
		t.Error(err)
	}
	r.RequestID = ""
	if c, err := w.client.StartBatch(w.ctx, r); err != nil || c.ID == a.ID {
		t.Errorf("%s, %v", c.ID, err)
	}
}

// Requests that make no sense are refused. The error names all their problems.
func TestSenselessBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory")
	for want, r := range map[string]api.BatchRequest{
		"there is no verb":             {Verb: "explode", Query: `workflow = "a"`},
		"the query is empty":           {Verb: api.BatchCancel},
		"query, character":             {Verb: api.BatchCancel, Query: `workflow ==`},
		"no status is left":            {Verb: api.BatchCancel, Query: `status = "failed"`},
		"no latest run is":             {Verb: api.BatchDelete, Query: `status = "continued"`},
		"one of Perdure itself":        {Verb: api.BatchCancel, Query: `workflow = "perdure.schedule"`},
		"the name of the signal":       {Verb: api.BatchSignal, Query: `workflow = "a"`},
		"has a signal and an input":    {Verb: api.BatchCancel, Query: `workflow = "a"`, Signal: "go"},
		"has a place to start from":    {Verb: api.BatchRetry, Query: `workflow = "a"`, Before: "pay"},
		"set only one":                 {Verb: api.BatchReset, Query: `workflow = "a"`, Before: "pay", Placed: true},
		"the id has 101 bytes":         {Verb: api.BatchCancel, Query: `workflow = "a"`, ID: strings.Repeat("x", 101)},
		"the reason has 1001 bytes":    {Verb: api.BatchCancel, Query: `workflow = "a"`, Reason: strings.Repeat("x", 1001)},
		"the input has 300000 bytes":   {Verb: api.BatchSignal, Query: `workflow = "a"`, Signal: "go", Input: model.Payload{Data: []byte(strings.Repeat("1", 300_000))}},
		"the query has 20000 bytes":    {Verb: api.BatchCancel, Query: strings.Repeat(" ", 20_000)},
		"contains the control charact": {Verb: api.BatchCancel, Query: `workflow = "a"`, ID: "a\nb"},
	} {
		r.Tenant = tenant
		if _, err := w.client.StartBatch(w.ctx, r); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}

	if _, err := w.client.Batch(w.ctx, api.BatchTarget{Tenant: tenant, ID: "none"}); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "there is no batch none") {
		t.Error(err)
	}
	if err := w.client.CancelBatch(w.ctx, api.BatchTarget{Tenant: tenant, ID: "none"}); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// Only StartBatch starts batches. No other call and no code of users can start one, and no worker
// of another process gets one.
func TestNothingElseStartsBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory")
	w.start(w.client, model.Address{Tenant: tenant, Type: "idle", Key: "a"}, "1", "x", 1)
	w.want(w.run(api.BatchRequest{ID: "real", Verb: api.BatchPause, Query: `label.set = "x"`}), 1, 1, 0, 0)
	d, err := w.client.Describe(w.ctx, api.Target{Address: model.Address{Tenant: tenant, Type: model.BatchType, Key: "real"}})
	if err != nil {
		t.Fatal(err)
	}
	at := model.Address{Tenant: tenant, Type: model.BatchType, Key: "fake"}
	start := api.StartRequest{Address: at, Input: d.Start.Input}
	source := api.Target{Address: d.Start.Address}

	for what, try := range map[string]func() error{
		"start": func() error { _, err := w.client.Start(w.ctx, start); return err },
		"run":   func() error { _, err := w.client.Run(w.ctx, start); return err },
		"start many": func() error {
			got, err := w.client.StartMany(w.ctx, []api.StartRequest{start})
			if err != nil {
				return err
			}
			return got[0].Err
		},
		"compose": func() error { _, err := w.client.Compose(&start); return err },
		"deliver": func() error {
			return w.client.Deliver(w.ctx, &model.Message{Kind: model.MessageStart, To: at, Input: start.Input})
		},
		"fork":  func() error { _, err := w.client.Fork(w.ctx, api.PastRequest{Source: source, Key: "fake"}); return err },
		"retry": func() error { _, err := w.client.Retry(w.ctx, api.PastRequest{Source: source}); return err },
		"reset": func() error {
			_, err := w.client.Reset(w.ctx, api.PastRequest{Source: source, Placed: true})
			return err
		},
		"import": func() error {
			_, err := w.client.Import(w.ctx, api.ImportRequest{Tenant: tenant, Key: "fake", History: model.History{Start: d.Start, Outcome: d.Outcome}})
			return err
		},
		"join": func() error {
			_, err := w.client.Join(w.ctx, nil, api.Offer{Tenant: tenant, Workflows: []string{model.BatchType}})
			return err
		},
	} {
		if err := try(); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := w.client.Describe(w.ctx, api.Target{Address: at}); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// A workflow that starts a batch as a child gets an error, and no batch starts. The engine refuses
// such a child too; see TestValuesOfSentMessages in internal/core.
func TestCodeStartsNoBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory")
	batches := perdure.DeclareWorkflow[perdure.Void, perdure.Void](model.BatchType)
	evil := perdure.NewWorkflow("evil", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
		_, err := batches.Start(ctx, perdure.Void{}, perdure.RawKey("fake"))
		return 0, err
	})
	app, err := attach.Open(w.ctx, attach.Config{Backend: w.server.Node().Backend(), Tenant: tenant}, evil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	if _, err := evil.Start(app.With(w.ctx), 1, perdure.RawKey("1")); err != nil {
		t.Fatal(err)
	}

	w.until("the workflow is refused", func() bool {
		d, err := w.client.Describe(w.ctx, api.Target{Address: model.Address{Tenant: tenant, Type: "evil", Key: "1"}})
		if err != nil {
			t.Fatal(err)
		}
		return d.Outcome.Failure != nil && strings.Contains(d.Outcome.Failure.Message, "reserved for Perdure")
	})
	if n, err := w.client.Count(w.ctx, api.ListRequest{Tenant: tenant, Workflows: []string{model.BatchType}}); err != nil || n != 0 {
		t.Errorf("%d batches, %v", n, err)
	}
}

// Batches of one tenant neither touch nor see what another tenant has.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory")
	for _, name := range []string{"acme", "beta"} {
		c := w.dial(name)
		w.start(c, model.Address{Tenant: name, Type: "idle", Key: "a"}, "1", "x", 150)
	}
	acme, beta := w.dial("acme"), w.dial("beta")
	b, err := acme.StartBatch(w.ctx, api.BatchRequest{Tenant: "acme", ID: "all", Verb: api.BatchTerminate, Query: `workflow = "idle"`})
	if err != nil || b.Progress.Matched != 150 {
		t.Fatalf("%+v, %v", b, err)
	}
	w.until("the end", func() bool {
		b, err = acme.Batch(w.ctx, api.BatchTarget{Tenant: "acme", ID: "all"})
		return err != nil || b.Status.Closed()
	})
	if err != nil || b.Progress.Done != 150 {
		t.Errorf("%+v, %v", b, err)
	}

	if n, err := beta.Count(w.ctx, api.ListRequest{Tenant: "beta", Statuses: []model.Status{model.Running}}); err != nil || n != 150 {
		t.Errorf("%d executions of the other tenant run, %v", n, err)
	}
	if _, err := beta.Batch(w.ctx, api.BatchTarget{Tenant: "beta", ID: "all"}); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if _, err := beta.Batch(w.ctx, api.BatchTarget{Tenant: "acme", ID: "all"}); !fault.Is(err, fault.Denied) {
		t.Error(err)
	}
	if _, err := beta.StartBatch(w.ctx, api.BatchRequest{Tenant: "acme", Verb: api.BatchTerminate, Query: `workflow = "idle"`}); !fault.Is(err, fault.Denied) {
		t.Error(err)
	}
	if page, err := beta.ListBatches(w.ctx, api.BatchListRequest{Tenant: "beta"}); err != nil || len(page.Batches) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
}

// A batch does not touch executions of Perdure itself, including its own.
func TestBatchLeavesBuiltInsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory")
	every := perdure.NewSchedule("s", perdure.Cron("0 3 * * *", "UTC"), perdure.DeclareWorkflow[int, int]("idle").Job(1))
	app, err := attach.Open(w.ctx, attach.Config{Backend: w.server.Node().Backend(), Tenant: tenant}, every)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	w.start(w.client, model.Address{Tenant: tenant, Type: "idle", Key: "a"}, "1", "x", 3)
	w.want(w.run(api.BatchRequest{Verb: api.BatchTerminate, Query: `started > -1h`}), 3, 3, 0, 0)
	if d, err := w.client.Describe(w.ctx, api.Target{Address: model.Address{Tenant: tenant, Type: "perdure.schedule", Key: "s"}}); err != nil || d.Outcome.Status != model.Running {
		t.Errorf("the schedule: %s, %v", d.Outcome.Status, err)
	}
}

// A batch over more than ten thousand executions holds one page at a time: its runs have short
// histories, no matter how many executions there are.
func TestManyExecutionsTakeNoMoreMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "sqlite")
	n := 10_050
	if testing.Short() { // short mode runs with the race detector, which is slow
		n = 2_550
	}
	w.start(w.client, model.Address{Tenant: tenant, Type: "idle", Key: "a"}, "1", "x", n)
	w.want(w.run(api.BatchRequest{ID: "big", Verb: api.BatchTerminate, Query: `label.set = "x"`}), int64(n), int64(n), 0, 0)
	if left := w.count("x", model.Running); left != 0 {
		t.Errorf("%d are left", left)
	}

	page, err := w.client.List(w.ctx, api.ListRequest{Tenant: tenant, Workflows: []string{model.BatchType}, AllRuns: true, Limit: 100})
	if err != nil || len(page.Executions) < 2 {
		t.Fatalf("%d runs, %v", len(page.Executions), err)
	}
	for i := range page.Executions {
		s := &page.Executions[i].Start
		h, err := w.client.History(w.ctx, api.HistoryRequest{Target: api.Target{Address: s.Address, Run: s.Run}, After: -1})
		if err != nil || h.More || len(h.Events) > 60 {
			t.Errorf("run %s has %d events, %v", s.Run, len(h.Events), err)
		}
		for j := range h.Events {
			if size := h.Events[j].Size(); size > 32<<10 {
				t.Errorf("event %d of run %s has %d bytes", j, s.Run, size)
			}
		}
	}
}

// A canceled batch ends between two pages. Its progress is exact: the batch has acted on all
// executions that it counts, and on no others.
func TestCanceledBatchKeepsExactProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "memory")
	const n = 1500
	w.start(w.client, model.Address{Tenant: tenant, Type: "idle", Key: "a"}, "1", "x", n)
	if _, err := w.client.StartBatch(w.ctx, api.BatchRequest{Tenant: tenant, ID: "c", Verb: api.BatchTerminate, Query: `label.set = "x"`}); err != nil {
		t.Fatal(err)
	}
	w.until("the first page", func() bool {
		b, err := w.client.Batch(w.ctx, api.BatchTarget{Tenant: tenant, ID: "c"})
		return err != nil || b.Progress.Done > 0
	})
	err := w.client.CancelBatch(w.ctx, api.BatchTarget{Tenant: tenant, ID: "c", Reason: "wrong query"})
	if err != nil && !fault.Is(err, fault.Conflict) { // the batch may have ended before
		t.Fatal(err)
	}

	b := w.ended("c")
	if err == nil && (b.Status != model.Canceled || b.Failure == nil || !strings.Contains(b.Failure.Message, "wrong query")) {
		t.Errorf("%s, %v", b.Status, b.Failure)
	}
	if ended := w.count("x", model.Terminated); ended != b.Progress.Done || b.Progress.Skipped+b.Progress.Failed != 0 {
		t.Errorf("%d are terminated, and the batch says %+v", ended, b.Progress)
	}
}
