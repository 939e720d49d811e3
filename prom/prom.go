// Package prom lets an app that connects to a server register its metrics with Prometheus. It is a
// separate package so that only programs that use it link the client library.
package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/telemetry"
	collector "github.com/perdure/perdure/internal/telemetry/prom"
)

// Metrics returns a value for perdure.Dialer.Metrics that registers the metrics with r, such as
// prometheus.DefaultRegisterer. Apps that share a registry each need a label of their own
// (prometheus.WrapRegistererWith). docs/observability.md lists the metrics.
func Metrics(r prometheus.Registerer) perdure.Metrics { return registry{r} }

type registry struct{ to prometheus.Registerer }

// Register adds the metrics of an app to the registry.
func (r registry) Register(m *telemetry.Meter) (remove func(), err error) {
	if r.to == nil {
		return nil, fault.New(fault.Invalid, "the registry for the metrics is nil")
	}
	return collector.Register(r.to, m)
}
