// Command observe shows what an operator sees of a program. It prints the counters that Prometheus
// would scrape, and the spans of an order. The spans go from the request that placed the order to
// the mail that a task sent.
//
//	go run ./examples/observe [store URL]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

var charge = perdure.NewActivity("charge", func(ctx context.Context, cents int) (int, error) {
	// The context of an activity carries its span. Spans of calls that use this context, such as
	// calls through otelhttp, are inside that span.
	_, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("shop").Start(ctx, "POST /charges")
	defer span.End()
	return cents, nil
})

// sendMail runs in any process that serves the queue. The first attempt fails.
var sendMail = perdure.NewActivity("send-mail", func(ctx context.Context, _ string) (perdure.Void, error) {
	if perdure.Attempt(ctx) == 1 {
		return perdure.Void{}, errors.New("the server is busy")
	}
	return perdure.Void{}, nil
}, perdure.OnQueue("mails"), perdure.RetryPolicy{Initial: 10 * time.Millisecond})

var order = perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, cents int) (int, error) {
	paid, err := charge.Run(ctx, cents)
	if err != nil {
		return 0, err
	}
	_, err = sendMail.Run(ctx, "you have paid")
	return paid, err
})

func main() {
	url := "memory:"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(context.Background(), url, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, out io.Writer) error {
	// A real program uses prometheus.DefaultRegisterer, and serves its metrics with
	// promhttp.Handler().
	registry := prometheus.NewRegistry()
	spans := &exporter{}
	// A real program uses a batcher and an OTLP exporter.
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	app, err := embedded.Config{Metrics: registry, Tracer: provider}.Open(ctx, url, order, sendMail)
	if err != nil {
		return err
	}
	defer app.Close()

	// This span is the request of a user. In a real program, the HTTP server creates it.
	request, span := provider.Tracer("shop").Start(ctx, "POST /orders")
	_, err = order.Run(app.With(request), 4200)
	span.End()
	if err != nil {
		return err
	}
	spans.print(out)
	return printMetrics(out, registry)
}

// exporter keeps spans in memory.
type exporter struct {
	mu  sync.Mutex
	all []sdktrace.ReadOnlySpan
}

// ExportSpans stores spans that have ended.
func (e *exporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, spans...)
	return nil
}

// Shutdown does nothing.
func (e *exporter) Shutdown(context.Context) error { return nil }

// print prints the spans, each below its parent.
func (e *exporter) print(out io.Writer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.SortStableFunc(e.all, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	var below func(parent trace.SpanID, indent string)
	below = func(parent trace.SpanID, indent string) {
		for _, s := range e.all {
			if s.Parent().SpanID() == parent {
				fmt.Fprintf(out, "%s%s %s\n", indent, s.Name(), s.Status().Description)
				below(s.SpanContext().SpanID(), indent+"  ")
			}
		}
	}
	below(trace.SpanID{}, "")
}

// printMetrics prints the counters as Prometheus would scrape them.
func printMetrics(out io.Writer, from prometheus.Gatherer) error {
	families, err := from.Gather()
	if err != nil {
		return err
	}

	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetCounter() == nil {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			fmt.Fprintf(out, "%s{%s} %g\n", f.GetName(), strings.Join(labels, ","), m.GetCounter().GetValue())
		}
	}

	return nil
}
