package prom_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/prom"
)

// A program that connects to a server registers its metrics with Prometheus. An app with a store of
// its own uses embedded.Config.Metrics instead.
func ExampleMetrics() {
	dialer := perdure.Dialer{Metrics: prom.Metrics(prometheus.NewRegistry())}
	connect := func(ctx context.Context, defs ...perdure.Definition) (*perdure.App, error) {
		return dialer.Dial(ctx, "grpc://127.0.0.1:7800", defs...)
	}
	_ = connect

	_, err := perdure.Dialer{Metrics: prom.Metrics(nil)}.Dial(context.Background(), "grpc://127.0.0.1:7800")
	fmt.Println(err)
	// Output: the registry for the metrics is nil
}
