package otlp

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"

	colmetric "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/telemetry"
)

// collector keeps the names of the metrics and spans that it gets over gRPC.
type collector struct {
	coltrace.UnimplementedTraceServiceServer

	mu      sync.Mutex
	metrics map[string][]uint64 // the buckets of histograms
	spans   []string
}

func (c *collector) metricsServer() colmetric.MetricsServiceServer { return metricsOf{c: c} }

type metricsOf struct {
	colmetric.UnimplementedMetricsServiceServer

	c *collector
}

// Export takes metrics.
func (m metricsOf) Export(_ context.Context, r *colmetric.ExportMetricsServiceRequest) (*colmetric.ExportMetricsServiceResponse, error) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	for _, resource := range r.GetResourceMetrics() {
		for _, scope := range resource.GetScopeMetrics() {
			for _, metric := range scope.GetMetrics() {
				m.c.metrics[metric.GetName()] = nil
				if h := metric.GetHistogram(); h != nil {
					m.c.metrics[metric.GetName()] = h.GetDataPoints()[0].GetBucketCounts()
				}
			}
		}
	}
	return &colmetric.ExportMetricsServiceResponse{}, nil
}

// Export takes spans.
func (c *collector) Export(_ context.Context, r *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, span.GetName())
			}
		}
	}
	return &coltrace.ExportTraceServiceResponse{}, nil
}

// The environment of OpenTelemetry chooses the collector and the protocol.
func TestExportOverGRPC(t *testing.T) { //nolint:paralleltest // it sets the environment
	c := &collector{metrics: map[string][]uint64{}}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	colmetric.RegisterMetricsServiceServer(server, c.metricsServer())
	coltrace.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	if Wanted("") {
		t.Error("an export without an endpoint")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	if !Wanted("") {
		t.Error("no export with an endpoint")
	}
	m := telemetry.New()
	for _, v := range []float64{0.0001, 0.002, 0.002, 100} {
		m.Observe(telemetry.CommitSeconds, v)
	}
	m.Add(telemetry.RunsStarted, 2, "order")
	e, err := Start(t.Context(), Config{Version: "test", Meter: m, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_, span := e.Tracer().Tracer("test").Start(t.Context(), "a span")
	span.End()
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.metrics["perdure_commit_seconds"]; len(got) != 15 || got[0] != 1 || got[2] != 2 || got[14] != 1 {
		t.Errorf("the buckets are %v", got)
	}
	if _, ok := c.metrics["perdure_workflow_runs_started_total"]; !ok || !slices.Equal(c.spans, []string{"a span"}) {
		t.Errorf("the collector got %v and %v", c.metrics, c.spans)
	}
}

// The exporter refuses invalid values of variables. Either signal, metrics or spans, can be left
// out.
func TestEnvironment(t *testing.T) { //nolint:paralleltest // it sets the environment
	cfg := Config{Endpoint: "http://127.0.0.1:1", Meter: telemetry.New(), Log: slog.New(slog.DiscardHandler)}
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier pigeon", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "smoke", "OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "paper",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := Start(t.Context(), cfg); !fault.Is(err, fault.Invalid) {
				t.Errorf("$%s=%s: %v", name, value, err)
			}
		})
	}

	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	e, err := Start(t.Context(), cfg)
	if err != nil || e.Tracer() != nil {
		t.Errorf("nothing to export: %v, %v", e, err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	t.Setenv("OTEL_SDK_DISABLED", "true")
	if Wanted("http://127.0.0.1:1") {
		t.Error("an export although the SDK is disabled")
	}
}
