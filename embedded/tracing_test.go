package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/telemetry/tracing"
)

// newTracing returns a tracer provider for one process, and an exporter from which the test reads
// the spans of that process.
func newTracing() (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	to := tracetest.NewInMemoryExporter()
	return sdktrace.NewTracerProvider(sdktrace.WithSyncer(to)), to
}

// tree writes each span with its recorded ancestors, such as "caller > start order > activity
// charge", in alphabetical order.
func tree(spans ...tracetest.SpanStub) (paths []string) {
	byID := map[trace.SpanID]*tracetest.SpanStub{}
	for i := range spans {
		byID[spans[i].SpanContext.SpanID()] = &spans[i]
	}

	for i := range spans {
		path := ""
		for s := &spans[i]; s != nil; s = byID[s.Parent.SpanID()] {
			if s.Parent.IsValid() && s.Parent.TraceID() != s.SpanContext.TraceID() {
				path += "(another trace)"
			}
			path = s.Name + " > " + path
			if s.Parent.IsValid() && byID[s.Parent.SpanID()] == nil {
				path = "? > " + path
			}
		}
		paths = append(paths, strings.TrimSuffix(path, " > "))
	}

	slices.Sort(paths)
	return paths
}

// waitFor waits until n spans were exported.
func waitFor(t *testing.T, n int, of ...*tracetest.InMemoryExporter) []tracetest.SpanStub {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		var all []tracetest.SpanStub
		for _, e := range of {
			all = append(all, e.GetSpans()...)
		}
		if len(all) >= n || time.Now().After(deadline) {
			return all
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func find(t *testing.T, spans []tracetest.SpanStub, name string) tracetest.SpanStub {
	t.Helper()
	i := slices.IndexFunc(spans, func(s tracetest.SpanStub) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no span %q in %v", name, tree(spans...))
	}
	return spans[i]
}

// The caller, the process that runs the workflow, and the process that executes the task each have
// their own exporter, but share one trace.
func TestTraceOverProcesses(t *testing.T) {
	t.Parallel()
	url := pgtest.Start(t, pgtest.Options{}).NewDatabase(t)
	provider, here := newTracing()
	other, there := newTracing()
	charge := perdure.NewActivity("charge", func(ctx context.Context, n int) (int, error) {
		// The library otelhttp gets its tracer from the context in the same way.
		_, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("user").Start(ctx, "http call")
		span.End()
		return n, nil
	})
	send := perdure.NewActivity("send", func(ctx context.Context, n int) (int, error) {
		if perdure.Attempt(ctx) == 1 {
			return 0, errors.New("the address is secret@example.com")
		}
		_, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("user").Start(ctx, "smtp")
		span.End()
		return n, nil
	}, perdure.RetryPolicy{Initial: time.Millisecond})
	const tasks = 20 // each task has its own address, so both processes execute some tasks
	order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		if _, err := charge.Run(ctx, n); err != nil {
			return 0, err
		}

		all := make([]perdure.Execution[int], tasks)
		for i := range all {
			var err error
			if all[i], err = send.Submit(ctx, n, perdure.RawKey(fmt.Sprint("mail ", i))); err != nil {
				return 0, err
			}
		}

		for _, x := range all {
			if _, err := x.Result(ctx); err != nil {
				return 0, err
			}
		}

		return n, nil
	})
	cfg := embedded.Config{Tracer: provider, AllowUnsafe: true}
	app := open(t, cfg, url, order, charge, send)
	reg := prometheus.NewRegistry()
	cfg.Tracer, cfg.Metrics = other, reg
	open(t, cfg, url, order, charge, send)
	for deadline := time.Now().Add(2 * time.Minute); scrape(t, reg, "shards_owned")["shards_owned{}"] == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the second process got no shards")
		}
	}

	ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
	x, err := order.Start(app.With(ctx), 7)
	if err != nil {
		t.Fatal(err)
	}
	caller.End()
	if _, err := x.Result(app.With(t.Context())); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"caller", "caller > start order", "caller > start order > activity charge", "caller > start order > activity charge > http call", "caller > start order > workflow order",
	}
	for range tasks {
		want = append(want, "caller > start order > task send", "caller > start order > task send", "caller > start order > task send > smtp")
	}
	slices.Sort(want)
	spans := waitFor(t, len(want), here, there)
	if diff := cmp.Diff(want, tree(spans...)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	for name, of := range map[string]*tracetest.InMemoryExporter{"first": here, "second": there} {
		if !slices.ContainsFunc(of.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name == "task send" }) {
			t.Errorf("the %s process executed no task", name)
		}
	}
	for _, s := range spans {
		if strings.Contains(s.Status.Description, "secret") || len(s.Events) > 0 {
			t.Errorf("span %s tells what nobody may know: %+v %+v", s.Name, s.Status, s.Events)
		}
		for _, a := range s.Attributes {
			if strings.Contains(a.Value.String(), "secret") {
				t.Errorf("span %s has %s=%s", s.Name, a.Key, a.Value.String())
			}
		}
	}
	failed := find(t, there.GetSpans(), "task send")
	if failed.Status.Code != codes.Error || failed.Status.Description != "error" {
		t.Errorf("the first attempt failed, and its span says %+v", failed.Status)
	}
}

// An execution continues in the same trace after its process has died and another process has taken
// over.
func TestTraceOverRestart(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "perdure.db")
	go1 := perdure.NewSignal[string]("go")
	step := perdure.NewActivity("step", func(_ context.Context, n int) (int, error) { return n, nil })
	mail := perdure.NewActivity("mail", func(_ context.Context, n int) (int, error) { return n, nil }, perdure.OnQueue("mails"))
	order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		if _, err := step.Run(ctx, n); err != nil {
			return 0, err
		}
		if _, err := go1.Receive(ctx); err != nil {
			return 0, err
		}
		if _, err := step.Run(ctx, n+1); err != nil {
			return 0, err
		}
		return mail.Run(ctx, n)
	})
	provider, first := newTracing()
	app := open(t, embedded.Config{Tracer: provider}, url, order, mail)
	ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
	x, err := order.Start(app.With(ctx), 7, perdure.RawKey("1"))
	if err != nil {
		t.Fatal(err)
	}
	caller.End()
	waitFor(t, 3, first)
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	provider, second := newTracing()
	app = open(t, embedded.Config{Tracer: provider}, url, order, mail)
	ctx, operator := provider.Tracer("test").Start(t.Context(), "operator")
	if err := go1.Send(app.With(ctx), x.Ref, "on"); err != nil {
		t.Fatal(err)
	}
	operator.End()
	if _, err := x.Result(app.With(t.Context())); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"caller", "caller > start order", "caller > start order > activity step", "caller > start order > activity step",
		"caller > start order > task mail", "caller > start order > workflow order",
		"operator", "operator > signal go", "operator > signal go > received signal go",
	}
	spans := waitFor(t, len(want), first, second)
	if diff := cmp.Diff(want, tree(spans...)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if n := len(first.GetSpans()); n != 3 {
		t.Errorf("%d spans before the restart, want 3", n)
	}
	received := find(t, spans, "received signal go")
	if len(received.Links) != 1 || received.Links[0].SpanContext.TraceID() != find(t, spans, "start order").SpanContext.TraceID() {
		t.Errorf("the signal is not linked to the trace of the run: %+v", received.Links)
	}
	run := find(t, spans, "workflow order")
	if began := find(t, spans, "start order").StartTime; run.StartTime.Before(began.Add(-time.Second)) || !run.EndTime.After(run.StartTime) {
		t.Errorf("the span of the run lasts from %s to %s", run.StartTime, run.EndTime)
	}
}

// Each execution of a schedule has its own trace, because a trace of the schedule itself would
// never end.
func TestTraceOfASchedule(t *testing.T) {
	t.Parallel()
	provider, to := newTracing()
	job := perdure.NewWorkflow("job", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		return perdure.Do(ctx, "work", func(context.Context) (int, error) { return n, nil })
	})
	nightly := perdure.NewSchedule("nightly", perdure.Every(1000*time.Hour), job.Job(1))
	app := open(t, embedded.Config{Tracer: provider}, "memory:", job, nightly)
	to.Reset() // drops the spans of applying the schedule

	done := func() (n int) {
		for _, s := range to.GetSpans() {
			if s.Name == "workflow job" {
				n++
			}
		}
		return n
	}
	// The test triggers one execution after the other, because the schedule skips a fire time while
	// an execution is open.
	for n := 1; n <= 2; n++ {
		if err := nightly.Trigger(app.With(t.Context())); err != nil {
			t.Fatal(err)
		}
		for spans := 1; done() < n && spans < 100; spans++ {
			waitFor(t, spans, to)
		}
	}

	spans := []tracetest.SpanStub(to.GetSpans())
	roots := map[trace.TraceID]bool{}
	for _, s := range spans {
		switch {
		case s.Name == "start job":
			if s.Parent.IsValid() {
				t.Errorf("what the schedule begins belongs to %s", s.Parent.SpanID())
			}
			roots[s.SpanContext.TraceID()] = true
		case strings.Contains(s.Name, "decide") || strings.Contains(s.Name, "perdure."):
			t.Errorf("a span of our own code: %s", s.Name)
		}
	}

	if len(roots) != 2 {
		t.Errorf("two ticks have %d traces: %v", len(roots), tree(spans...))
	}

	for _, name := range []string{"start job > activity work", "start job > workflow job"} {
		if n := len(slices.DeleteFunc(tree(spans...), func(p string) bool { return p != name })); n != 2 {
			t.Errorf("%d times %q in %v", n, name, tree(spans...))
		}
	}
}

// If an untraced caller, such as the command line, requeues a dead task, all attempts of the new
// task share one new trace. The same is true for a task that such a caller submits.
func TestTraceOfARequeue(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	provider, to := newTracing()
	send := perdure.NewActivity("send", func(context.Context, int) (int, error) { return 0, errors.New("busy") }, perdure.OnQueue("mails"), perdure.Constant(2, time.Millisecond))
	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, n int) (int, error) { return send.Run(ctx, n) })
	app := open(t, embedded.Config{Tracer: provider, AllowUnsafe: true}, url, send, flow)
	operator := open(t, embedded.Config{AllowUnsafe: true}, url, perdure.DeclareActivity[int, int]("send", perdure.OnQueue("mails")))

	for _, run := range []func() error{
		func() error {
			x, err := send.Submit(app.With(t.Context()), 1)
			if err == nil {
				_, err = x.Result(app.With(t.Context()))
			}
			return err
		},
		func() error {
			_, err := flow.Run(app.With(t.Context()), 2)
			return err
		},
	} {
		if err := run(); err == nil {
			t.Fatal("it did not fail")
		}
	}

	for dead, err := range app.DeadTasks().List(t.Context(), perdure.DeadQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		to.Reset()
		if _, err := operator.DeadTasks().Requeue(t.Context(), dead.ID); err != nil {
			t.Fatal(err)
		}
		want := []string{"start task send", "start task send > task send", "start task send > task send"}
		if diff := cmp.Diff(want, tree(waitFor(t, len(want), to)...)); diff != "" {
			t.Errorf("dead task of %s (-want +got):\n%s", dead.Of, diff)
		}
	}
}

// An app without a tracer records no trace, even if the context of its caller has one.
func TestNoTrace(t *testing.T) {
	t.Parallel()
	provider, to := newTracing()
	var inside bool

	w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		return perdure.Do(ctx, "work", func(ctx context.Context) (int, error) {
			inside = trace.SpanContextFromContext(ctx).IsValid()
			return n, nil
		})
	})

	app := open(t, embedded.Config{}, "memory:", w)
	ctx, span := provider.Tracer("test").Start(t.Context(), "caller")
	if _, err := w.Run(app.With(ctx), 1); err != nil {
		t.Fatal(err)
	}
	span.End()
	if got := tree(to.GetSpans()...); len(got) != 1 || inside {
		t.Errorf("spans without a tracer: %v, in the activity: %t", got, inside)
	}
}

// The program that starts an execution and the program that executes it are different clients of
// one server. Their spans belong to one trace, even if the server itself creates no spans.
func TestTraceOverAServer(t *testing.T) {
	t.Parallel()
	provider, here := newTracing()
	other, there := newTracing()
	own, middle := newTracing()
	charge := perdure.NewActivity("charge", func(_ context.Context, n int) (int, error) { return n, nil })
	order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, n int) (int, error) { return charge.Run(ctx, n) })
	for _, c := range []struct {
		tracer *tracing.Tracer
		want   []string
	}{
		{nil, []string{"caller", "caller > activity charge"}},
		{tracing.New(own), []string{"caller", "caller > run order", "caller > run order > activity charge", "caller > run order > workflow order"}},
	} {
		served, err := node.Serve(t.Context(), node.ServerConfig{
			Node: node.Config{URL: "memory:", Tracer: c.tracer}, Listen: "127.0.0.1:0", Authenticator: authn.Open{Tenant: "default"}, Tenant: "default",
		})
		if err != nil {
			t.Fatal(err)
		}
		dial := func(tracer trace.TracerProvider, defs ...perdure.Definition) *perdure.App {
			app, err := perdure.Dialer{Tracer: tracer}.Dial(t.Context(), "grpc://"+served.Addr().String(), defs...)
			if err != nil {
				t.Fatal(err)
			}
			return app
		}
		worker, app := dial(other, order, charge), dial(provider)

		ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
		if n, err := order.Run(app.With(ctx), 7); err != nil || n != 7 {
			t.Fatalf("order: %d, %v", n, err)
		}
		caller.End()
		if diff := cmp.Diff(c.want, tree(waitFor(t, len(c.want), here, middle, there)...)); diff != "" {
			t.Error(diff)
		}
		for _, e := range []*tracetest.InMemoryExporter{here, middle, there} {
			e.Reset()
		}
		if err := errors.Join(app.Close(), worker.Close(), served.Close(context.Background())); err != nil {
			t.Error(err)
		}
	}
}
