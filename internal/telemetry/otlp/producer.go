package otlp

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/perdure/perdure/internal/telemetry"
)

// producer gives the values of a meter to OpenTelemetry, under the names that Prometheus sees.
type producer struct {
	meter *telemetry.Meter
	began time.Time
}

// Produce reads all values.
func (p *producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	now, all := time.Now(), p.meter.Families()
	samples := make([][]telemetry.Sample, len(all))
	p.meter.Gather(func(s telemetry.Sample) { samples[s.ID] = append(samples[s.ID], s) })

	var metrics []metricdata.Metrics
	for id := range all {
		if len(samples[id]) > 0 {
			metrics = append(metrics, p.family(&all[id], samples[id], now))
		}
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: "github.com/perdure/perdure"}, Metrics: metrics}}, nil
}

// family translates the values of one family.
func (p *producer) family(f *telemetry.Family, samples []telemetry.Sample, now time.Time) metricdata.Metrics {
	m := metricdata.Metrics{Name: f.Name, Description: f.Help}
	var points []metricdata.DataPoint[float64]
	var histogram []metricdata.HistogramDataPoint[float64]
	for i := range samples {
		s := &samples[i]
		labels := make([]attribute.KeyValue, len(f.Labels))
		for n, name := range f.Labels {
			labels[n] = attribute.String(name, s.Labels[n])
		}
		set := attribute.NewSet(labels...)

		if f.Kind != telemetry.Histogram {
			points = append(points, metricdata.DataPoint[float64]{Attributes: set, StartTime: p.began, Time: now, Value: s.Value})
			continue
		}
		histogram = append(histogram, metricdata.HistogramDataPoint[float64]{
			Attributes: set, StartTime: p.began, Time: now, Count: s.Count, Sum: s.Sum, Bounds: f.Bounds, BucketCounts: buckets(f.Bounds, s),
		})
	}

	switch f.Kind {
	case telemetry.Counter:
		m.Data = metricdata.Sum[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
	case telemetry.Gauge:
		m.Data = metricdata.Gauge[float64]{DataPoints: points}
	case telemetry.Histogram:
		m.Data = metricdata.Histogram[float64]{DataPoints: histogram, Temporality: metricdata.CumulativeTemporality}
	}
	return m
}

// buckets counts the values between each two neighboring bounds. A sample, in contrast, has the
// number of all values up to each bound.
func buckets(bounds []float64, s *telemetry.Sample) []uint64 {
	counts, before := make([]uint64, len(bounds)+1), uint64(0)
	for i, b := range bounds {
		counts[i] = s.Buckets[b] - before
		before = s.Buckets[b]
	}
	counts[len(bounds)] = s.Count - before
	return counts
}
