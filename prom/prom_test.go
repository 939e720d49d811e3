package prom_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/prom"
)

// patience bounds waits on a busy machine.
const patience = 2 * time.Minute

// serve starts a server on an address.
func serve(t *testing.T, listen string) *node.Server {
	t.Helper()
	s, err := node.Serve(t.Context(), node.ServerConfig{
		Node: node.Config{URL: "memory:", Shards: 4}, Listen: listen, Authenticator: authn.Open{Tenant: model.DefaultTenant},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func shutDown(t *testing.T, s *node.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// value returns the sum of the values of a family, or -1 if the family does not exist. For a
// histogram it returns the count.
func value(t *testing.T, g prometheus.Gatherer, family string) float64 {
	t.Helper()
	all, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}

	sum := -1.0
	for _, f := range all {
		if f.GetName() != family {
			continue
		}
		sum = 0
		for _, m := range f.GetMetric() {
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				sum += m.GetCounter().GetValue()
			case dto.MetricType_HISTOGRAM:
				sum += float64(m.GetHistogram().GetSampleCount())
			default:
				sum += m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// await waits until the value of a family is want.
func await(t *testing.T, g prometheus.Gatherer, family string, want float64) {
	t.Helper()
	for end := time.Now().Add(patience); value(t, g, family) != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s is %v, want %v", family, value(t, g, family), want)
		}
	}
}

// An app that Dial has opened counts what its own process does, and reports whether it is
// connected.
func TestMetricsOfADialedApp(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	charge := perdure.NewActivity("charge", func(_ context.Context, n int) (int, error) { return n, nil })
	mail := perdure.NewActivity("mail", func(_ context.Context, n int) (int, error) { return n, nil }, perdure.OnQueue("mails"))
	order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		if _, err := charge.Run(ctx, n); err != nil {
			return 0, err
		}
		return mail.Run(ctx, n)
	})

	reg := prometheus.NewRegistry()
	d := perdure.Dialer{Metrics: prom.Metrics(reg), Tasks: perdure.TaskConfig{Slots: 7}, MaxSteps: 9}
	app, err := d.Dial(t.Context(), "grpc://"+s.Addr().String(), order, charge, mail)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := order.Run(app.With(t.Context()), 3); got != 3 || err != nil {
		t.Fatal(got, err)
	}
	await(t, reg, "perdure_activity_attempt_seconds", 1)
	for family, want := range map[string]float64{"perdure_pool_slots": 7, "perdure_activity_slots": 9, "perdure_server_connected": 1, "perdure_server_streams_broken_total": -1} {
		if got := value(t, reg, family); got != want {
			t.Errorf("%s is %v, want %v", family, got, want)
		}
	}

	// The server counts what happens to executions. The app must not count the same things again.
	if got := value(t, reg, "perdure_workflow_runs_started_total"); got != -1 {
		t.Errorf("the app has counted %v starts", got)
	}

	shutDown(t, s)
	await(t, reg, "perdure_server_connected", 0)
	await(t, reg, "perdure_server_streams_broken_total", 1)
	again := serve(t, s.Addr().String())
	defer shutDown(t, again)
	await(t, reg, "perdure_server_connected", 1)

	if err := app.Close(); err != nil {
		t.Error(err)
	}
	if got := value(t, reg, "perdure_server_connected"); got != -1 {
		t.Errorf("after Close, the registry still has the metrics of the app: %v", got)
	}
}

// If a registry already has the metrics of one app, it refuses the metrics of a second app. In that
// case Dial fails and leaves nothing open. Dial also refuses a nil registry.
func TestRefusedRegistry(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	defer shutDown(t, s)
	reg := prometheus.NewRegistry()
	d := perdure.Dialer{Metrics: prom.Metrics(reg)}
	app, err := d.Dial(t.Context(), "grpc://"+s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Dial(t.Context(), "grpc://"+s.Addr().String()); !errors.Is(err, perdure.ErrConflict) {
		t.Errorf("a second app with the same registry: %v", err)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}

	// A Dial that fails leaves nothing in the registry.
	wrong := perdure.DeclareWorkflow[int, int]("").Bind(func(perdure.WorkflowCtx, int) (int, error) { return 0, nil })
	if _, err := d.Dial(t.Context(), "grpc://"+s.Addr().String(), wrong); err == nil {
		t.Error("a workflow without a name was accepted")
	}
	if app, err = d.Dial(t.Context(), "grpc://"+s.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}

	if _, err := (perdure.Dialer{Metrics: prom.Metrics(nil)}).Dial(t.Context(), "grpc://"+s.Addr().String()); !errors.Is(err, perdure.ErrInvalid) {
		t.Errorf("a registry that is nil: %v", err)
	}
}
