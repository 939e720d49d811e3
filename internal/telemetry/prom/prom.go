// Package prom gives the metrics of a meter to Prometheus, whenever Prometheus scrapes them. It is
// a separate package so that programs that do not use it do not link the client library.
package prom

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/telemetry"
)

// Collector adapts a meter to Prometheus.
type Collector struct {
	meter *telemetry.Meter
	descs []*prometheus.Desc
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns the collector of a meter.
func New(m *telemetry.Meter) *Collector {
	c := &Collector{meter: m}
	for _, f := range m.Families() {
		c.descs = append(c.descs, prometheus.NewDesc(f.Name, f.Help, f.Labels, nil))
	}
	return c
}

// Register adds the metrics of a meter to a registry, until remove is called.
func Register(r prometheus.Registerer, m *telemetry.Meter) (remove func(), err error) {
	c := New(m)
	if err := r.Register(c); err != nil {
		if errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return nil, fault.WithHint(fault.New(fault.Conflict, "another app of this process has its metrics in the same registry"),
				`give each its own label: prometheus.WrapRegistererWith(prometheus.Labels{"app": …}, registry)`)
		}
		return nil, fault.New(fault.Invalid, "register the metrics: %w", err)
	}
	return func() { r.Unregister(c) }, nil
}

// Describe lists all families, so that a registry finds out at registration whether another
// collector has one of the names.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect sends all values.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	all := telemetry.Families()
	c.meter.Gather(func(s telemetry.Sample) {
		d := c.descs[s.ID]
		var m prometheus.Metric
		var err error
		switch all[s.ID].Kind {
		case telemetry.Histogram:
			m, err = prometheus.NewConstHistogram(d, s.Count, s.Sum, s.Buckets, s.Labels...)
		case telemetry.Counter:
			m, err = prometheus.NewConstMetric(d, prometheus.CounterValue, s.Value, s.Labels...)
		case telemetry.Gauge:
			m, err = prometheus.NewConstMetric(d, prometheus.GaugeValue, s.Value, s.Labels...)
		}
		if err != nil { // a name that is not UTF-8
			m = prometheus.NewInvalidMetric(d, err)
		}
		to <- m
	})
}
