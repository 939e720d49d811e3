package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// scrape returns the values of some metrics by name and label values, such as limit_waiters{two}.
// For a histogram it returns the count.
func scrape(t *testing.T, g prometheus.Gatherer, families ...string) map[string]float64 {
	t.Helper()
	all, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}

	values := map[string]float64{}
	for _, f := range all {
		name := strings.TrimPrefix(f.GetName(), "perdure_")
		if !slices.Contains(families, name) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			values[name+"{"+strings.Join(labels, ",")+"}"] = valueOf(f.GetType(), m)
		}
	}

	return values
}

func valueOf(kind dto.MetricType, m *dto.Metric) float64 {
	switch kind {
	case dto.MetricType_COUNTER:
		return m.GetCounter().GetValue()
	case dto.MetricType_HISTOGRAM:
		return float64(m.GetHistogram().GetSampleCount())
	default:
		return m.GetGauge().GetValue()
	}
}

// wantMetrics waits until the metrics have exactly these values. The engine counts some events a
// moment after the caller has its answer.
func wantMetrics(t *testing.T, g prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	var families []string
	for key := range want {
		name, _, _ := strings.Cut(key, "{")
		families = append(families, name)
	}

	// An entry with the value empty only says that a metric must have no series.
	maps.DeleteFunc(want, func(_ string, v float64) bool { return v < 0 })
	deadline := time.Now().Add(2 * time.Minute)
	for {
		diff := cmp.Diff(want, scrape(t, g, families...))
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("metrics (-want +got):\n%s", diff)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// empty is the wanted value of a metric that must have no series.
const empty = -1

var atOnce = perdure.RetryPolicy{MaxAttempts: 3, Initial: time.Millisecond}

func TestMetricsOfWorkflows(t *testing.T) {
	t.Parallel()
	charge := perdure.NewActivity("charge", func(ctx context.Context, n int) (int, error) {
		if perdure.Attempt(ctx) == 1 {
			return 0, errors.New("not yet")
		}
		return n, nil
	}, atOnce)

	refuse := perdure.NewActivity("refuse", func(context.Context, int) (int, error) { return 0, perdure.Permanent(errors.New("no")) })
	approved := perdure.NewSignal[string]("approved")
	order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		if _, err := charge.Run(ctx, n); err != nil {
			return 0, err
		}
		if _, err := approved.Receive(ctx); err != nil {
			return 0, err
		}
		return n, ctx.Sleep(time.Millisecond)
	})

	broken := perdure.NewWorkflow("broken", func(ctx perdure.WorkflowCtx, n int) (int, error) { return refuse.Run(ctx, n) })
	var chain *perdure.Workflow[int, int]
	chain = perdure.NewWorkflow("chain", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		if n == 0 {
			return 0, nil
		}
		return 0, chain.ContinueAsNew(n - 1)
	})

	reg := prometheus.NewRegistry()
	app := open(t, embedded.Config{Metrics: reg}, "memory:", order, broken, chain)
	ctx := app.With(t.Context())
	for i := range 3 {
		x, err := order.Start(ctx, i, perdure.RawKey(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := approved.Send(ctx, x.Ref, "yes"); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Result(ctx); err != nil {
			t.Fatal(err)
		}
		if err := approved.Send(ctx, x.Ref, "again"); err == nil {
			t.Fatal("a closed execution took a signal")
		}
	}

	if _, err := broken.Run(ctx, 1); err == nil {
		t.Fatal("broken did not fail")
	}
	if _, err := chain.Run(ctx, 2); err != nil {
		t.Fatal(err)
	}

	wantMetrics(t, reg, map[string]float64{
		"workflow_runs_started_total{order}": 3, "workflow_runs_started_total{broken}": 1, "workflow_runs_started_total{chain}": 3,
		"workflow_runs_closed_total{completed,order}": 3, "workflow_runs_closed_total{failed,broken}": 1,
		"workflow_runs_closed_total{completed,chain}": 1, "workflow_runs_closed_total{continued,chain}": 2,
		"workflow_run_seconds{order}": 3, "workflow_run_seconds{broken}": 1, "workflow_run_seconds{chain}": 3,
		"activity_attempts_total{charge,retried}": 3, "activity_attempts_total{charge,completed}": 3, "activity_attempts_total{refuse,failed}": 1,
		"activity_attempt_seconds{charge}": 6, "activity_attempt_seconds{refuse}": 1,
		"timers_fired_total{}": 3, "timer_lateness_seconds{}": 3,
		"messages_total{start,applied}": 5, "messages_total{signal,applied}": 3, "messages_total{signal,refused}": 3,
		"workflow_runs_blocked_total{}": empty, "workflow_runs_quarantined{}": 0,
		"workflow_runs_stranded{no_worker}": 0, "workflow_runs_stranded{code_elsewhere}": 0, "workflow_runs_stranded{replay_mismatch}": 0, "workflow_runs_stranded{wrong_type}": 0,
		"workflow_runs_stranded{history_limit}": 0, "workflow_runs_stranded{quarantined}": 0, "workflow_runs_stranded{corrupt}": 0, "workflow_runs_stranded{newer_version}": 0,
		"activity_slots{}": 1024, "activity_slots_busy{}": 0, "activities_waiting{}": 0,
		"lane_inbox{}": 0, "lane_held_bytes{}": 0, "nodes{}": 1,
	})

	commits := scrape(t, reg, "commits_total", "commit_seconds", "commit_rows", "commit_inputs", "lease_renewals_total", "shards_owned")
	n := commits["commits_total{ok}"]
	if n == 0 || commits["commit_seconds{}"] != n || commits["commit_rows{}"] != n || commits["commit_inputs{}"] != n {
		t.Errorf("%v: commits do not add up", commits)
	}
	if commits["lease_renewals_total{ok}"] == 0 || commits["shards_owned{}"] == 0 {
		t.Errorf("%v: no lease or no shards", commits)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	if left := scrape(t, reg, "workflow_runs_started_total"); len(left) != 0 {
		t.Errorf("metrics are left behind by an app that was closed: %v", left)
	}
}

func TestMetricsOfTasks(t *testing.T) {
	t.Parallel()
	hold, over, begun := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	send := perdure.NewActivity("send", func(ctx context.Context, to string) (string, error) {
		switch {
		case to == "flaky" && perdure.Attempt(ctx) < 3:
			return "", errors.New("busy")
		case to == "nobody":
			return "", perdure.Permanent(errors.New("no such address"))
		case to == "later" && perdure.Attempt(ctx) == 1:
			if len(begun) == 0 {
				begun <- struct{}{}
				return "", perdure.Snooze(time.Millisecond)
			}
		case to == "slow":
			// The code returns after its context has ended. If it returned just before, the attempt
			// would count as failed and not as timed out.
			<-over
			<-ctx.Done()
			return "", ctx.Err()
		case to == "held":
			<-hold
		case to == "panic":
			panic("ouch")
		}

		return to, nil
	}, perdure.OnQueue("mails"), atOnce)

	mailing := perdure.NewWorkflow("mailing", func(ctx perdure.WorkflowCtx, to string) (string, error) { return send.Run(ctx, to) })
	reg := prometheus.NewRegistry()
	app := open(t, embedded.Config{Metrics: reg, Tasks: perdure.TaskConfig{Slots: 7}}, "memory:", send, mailing)
	ctx := app.With(t.Context())

	submit := func(to string, fails bool, opts ...perdure.StartOption) {
		t.Helper()
		x, err := send.Submit(ctx, to, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Result(ctx); (err != nil) != fails {
			t.Fatalf("%s: %v", to, err)
		}
	}

	submit("a", false)
	submit("b", false)
	submit("flaky", false)
	submit("nobody", true)
	submit("later", false)
	submit("slow", true, perdure.AttemptTimeout(10*time.Millisecond))
	close(over)
	submit("panic", true)
	if _, err := mailing.Run(ctx, "c"); err != nil {
		t.Fatal(err)
	}

	held, err := send.Submit(ctx, "held")
	if err != nil {
		t.Fatal(err)
	}

	wantMetrics(t, reg, map[string]float64{
		"tasks{mails,claimed}": 1, "tasks{mails,waiting}": 0, "tasks{mails,delayed}": 0, "tasks{default,claimed}": 0, "tasks{default,waiting}": 0, "tasks{default,delayed}": 0,
		"task_oldest_seconds{mails}": 0, "task_oldest_seconds{default}": 0,
		"pool_slots{}": 7, "pool_slots_busy{}": 1, "pool_waiting{}": 0, "pool_lost{}": 0,
		"pool_closed{load}": 0, "pool_closed{memory}": 0, "pool_closed{paused}": 0, "pool_closed{draining}": 0,
		"queue_slots{mails}": 7, "queue_slots{default}": 7, "queue_workers{mails}": 1, "queue_workers{default}": 1,
		"queue_paused{mails}": 0, "queue_paused{default}": 0,
	})

	app.Tasks().Pause()
	wantMetrics(t, reg, map[string]float64{"pool_closed{load}": 0, "pool_closed{memory}": 0, "pool_closed{paused}": 1, "pool_closed{draining}": 0})
	app.Tasks().Resume()
	close(hold)
	if _, err := held.Result(ctx); err != nil {
		t.Fatal(err)
	}

	// flaky makes 3 attempts; slow and panic make 3 each; later makes 2, and snoozes once.
	wantMetrics(t, reg, map[string]float64{
		"tasks_submitted_total{send,mails}": 9, "task_claims_total{send,mails}": 1 + 1 + 3 + 1 + 2 + 3 + 3 + 1 + 1, "task_pickup_seconds{send,mails}": 16,
		"task_attempts_total{send,completed,mails}": 6, "task_attempts_total{send,failed,mails}": 2 + 1 + 3,
		"task_attempts_total{send,timed_out,mails}": 3, "task_attempts_total{send,returned,mails}": 1, "task_attempt_seconds{send,mails}": 16,
		"task_retries_total{send,mails}":        2 + 2 + 2,
		"task_failures_total{send,error,mails}": 2, "task_failures_total{send,permanent,mails}": 1, "task_failures_total{send,panic,mails}": 3,
		"task_timeouts_total{send,mails,start_to_close}": 3,
		"dead_tasks_total{send,mails}":                   3,
		"dead_tasks_requeued_total{}":                    empty, "dead_tasks_removed_total{}": empty,
		"workflow_runs_started_total{mailing}": 1, "activity_attempts_total{}": empty,
	})

	for d, err := range app.DeadTasks().List(t.Context(), perdure.DeadQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := app.DeadTasks().Requeue(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
	}

	wantMetrics(t, reg, map[string]float64{"dead_tasks_requeued_total{send,mails}": 3, "dead_tasks_total{send,mails}": 6, "tasks_submitted_total{send,mails}": 12})
	for _, err := range app.DeadTasks().Purge(t.Context(), perdure.DeadQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
	}

	wantMetrics(t, reg, map[string]float64{"dead_tasks_removed_total{}": 6})
}

func TestMetricsOfLimitsBreakersAndSchedules(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	call := perdure.NewActivity("call", func(context.Context, int) (int, error) {
		<-hold
		return 0, nil
	}, perdure.OnQueue("calls"), perdure.Breaker("partner"))

	nothing := perdure.NewWorkflow("nothing", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil })
	nightly := perdure.NewSchedule("nightly", perdure.Every(1000*time.Hour), nothing.Job(1))
	reg := prometheus.NewRegistry()
	app := open(t, embedded.Config{Metrics: reg}, "memory:", call, nothing, nightly)
	ctx := app.With(t.Context())
	if err := app.Limits().Set(t.Context(), perdure.LimitRule{Name: "two", Queue: "calls", Concurrency: 2}); err != nil {
		t.Fatal(err)
	}

	runs := make([]perdure.Execution[int], 5)
	for i := range runs {
		var err error
		if runs[i], err = call.Submit(ctx, i); err != nil {
			t.Fatal(err)
		}
	}

	wantMetrics(t, reg, map[string]float64{
		// Tasks that wait for the same limit are counted as one waiter.
		"limit_holders{two}": 2, "limit_permits{two}": 2, "limit_waiters{two}": 1,
		"tasks{calls,claimed}": 2, "tasks{calls,waiting}": 3, "tasks{calls,delayed}": 0, "tasks{default,claimed}": 0, "tasks{default,waiting}": 0, "tasks{default,delayed}": 0,
	})

	if n := scrape(t, reg, "limit_refusals_total"); n["limit_refusals_total{limit}"] == 0 || len(n) != 1 {
		t.Errorf("%v: nothing was refused, or not by the limit", n)
	}
	close(hold)

	for _, x := range runs {
		if _, err := x.Result(ctx); err != nil {
			t.Fatal(err)
		}
	}

	if err := app.Breakers().Trip(t.Context(), "partner", "maintenance"); err != nil {
		t.Fatal(err)
	}
	wantMetrics(t, reg, map[string]float64{
		"breaker_state{partner,closed}": 0, "breaker_state{partner,open}": 1, "breaker_state{partner,half_open}": 0, "breaker_transitions_total{partner,open}": 1,
	})
	if err := app.Breakers().Reset(t.Context(), "partner"); err != nil {
		t.Fatal(err)
	}

	wantMetrics(t, reg, map[string]float64{
		"breaker_state{partner,closed}": 1, "breaker_state{partner,open}": 0, "breaker_state{partner,half_open}": 0,
		"breaker_transitions_total{partner,open}": 1, "breaker_transitions_total{partner,closed}": 1,
	})

	if err := nightly.Trigger(ctx); err != nil {
		t.Fatal(err)
	}
	wantMetrics(t, reg, map[string]float64{"schedule_ticks_total{fired,nightly}": 1, "schedule_ticks_total{triggered,nightly}": 1})
}

// Programs may make up names at run time. These names must not fill the memory of the process that
// scrapes the metrics.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	const names = 1200
	w := perdure.NewWorkflow("many", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		for i := range n {
			if _, err := perdure.Do(ctx, fmt.Sprintf("step %d", i), func(context.Context) (int, error) { return i, nil }, perdure.StepKey("k")); err != nil {
				return 0, err
			}
		}
		return n, nil
	})

	reg := prometheus.NewRegistry()
	app := open(t, embedded.Config{Metrics: reg}, "memory:", w)
	if _, err := w.Run(app.With(t.Context()), names); err != nil {
		t.Fatal(err)
	}
	got := scrape(t, reg, "activity_attempts_total")
	if len(got) != 1001 || got["activity_attempts_total{_other,completed}"] != names-1000 {
		t.Errorf("%d series, %v of others", len(got), got["activity_attempts_total{_other,completed}"])
	}
}

func TestAppsThatShareARegistry(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	labelled := func(name string) prometheus.Registerer {
		return prometheus.WrapRegistererWith(prometheus.Labels{"app": name}, reg)
	}
	open(t, embedded.Config{Metrics: labelled("first")}, "memory:", double)
	if _, err := (embedded.Config{Metrics: labelled("first")}).Open(t.Context(), "memory:", double); err == nil || !strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Errorf("%v: should say how two apps share a registry", err)
	}
	open(t, embedded.Config{Metrics: labelled("second")}, "memory:", double)
}

func open(t *testing.T, cfg embedded.Config, url string, defs ...perdure.Definition) *perdure.App {
	t.Helper()
	app, err := cfg.Open(t.Context(), url, defs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Close() })
	return app
}

// On SQLite, the log contains the registration of the node. Other stores have no such log.
func TestMetricOfTheStoreLog(t *testing.T) {
	t.Parallel()
	file, memory := prometheus.NewRegistry(), prometheus.NewRegistry()
	open(t, embedded.Config{Metrics: file}, "file:"+filepath.Join(t.TempDir(), "perdure.db"))
	open(t, embedded.Config{Metrics: memory}, "memory:")
	if got := scrape(t, file, "store_log_bytes"); got["store_log_bytes{}"] <= 0 {
		t.Errorf("the log of a file: %v", got)
	}
	if got := scrape(t, memory, "store_log_bytes"); len(got) != 0 {
		t.Errorf("the log of a store in memory: %v", got)
	}
}
