package telemetry

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxLabels is the maximum number of labels of a family.
const maxLabels = 3

// maxSeries bounds how many combinations of labels a family counts separately. maxTenantSeries is
// the bound for families that have the tenant as a label.
const (
	maxSeries       = 1000
	maxTenantSeries = 10_000
)

type labels [maxLabels + 1]string // one value per label, and one for the tenant

// Meter counts. All methods are safe for concurrent use, also on a nil meter.
type Meter struct {
	families [numFamilies]counted
	byTenant bool

	mu      sync.Mutex
	sources map[int]func(*States)
	next    int
}

// New returns a meter with all values at zero. It counts all tenants together.
func New() *Meter {
	m := &Meter{sources: map[int]func(*States){}}
	for id := range families {
		m.families[id].of = &families[id]
		m.families[id].most = maxSeries
	}
	return m
}

// NewByTenant returns a meter that counts each tenant on its own. The families in tenantFamilies
// have the tenant as their last label.
func NewByTenant() *Meter {
	m := New()
	m.byTenant = true
	for id := range tenantFamilies {
		f := families[id]
		f.Labels = append(slices.Clone(f.Labels), labelTenant)
		m.families[id].of = &f
		m.families[id].most = maxTenantSeries
	}
	return m
}

// Families returns the families with the labels that they have in this meter.
func (m *Meter) Families() []Family {
	all := make([]Family, len(m.families))
	for id := range m.families {
		all[id] = *m.families[id].of
	}
	return all
}

// counted is a family with its numbers.
type counted struct {
	of   *Family
	most int // the maximum number of series

	mu     sync.RWMutex
	series map[labels]*series
}

// series holds the numbers of one combination of labels.
type series struct {
	count atomic.Int64  // the value of a counter, or the number of values of a histogram
	sum   atomic.Uint64 // the sum of a histogram, as the bits of a float
	// buckets has, for each bound, the number of values up to that bound and above the previous
	// bound.
	buckets []atomic.Int64
}

// Add adds to a counter. The values are the values of the family's labels, in order. For families
// that can have the tenant as a label, callers pass the tenant as the last value. A meter that
// counts all tenants together ignores the tenant.
func (m *Meter) Add(id ID, n int64, values ...string) {
	if m == nil || n == 0 {
		return
	}
	m.families[id].at(values).count.Add(n)
}

// Observe adds a value to a histogram.
func (m *Meter) Observe(id ID, v float64, values ...string) {
	if m == nil {
		return
	}
	f := &m.families[id]

	s := f.at(values)
	for i, bound := range f.of.Bounds {
		if v <= bound {
			s.buckets[i].Add(1)
			break
		}
	}

	for {
		old := s.sum.Load()
		if s.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			break
		}
	}

	s.count.Add(1)
}

// Took adds a duration to a histogram. It treats a negative duration, from a clock that went back,
// as zero.
func (m *Meter) Took(id ID, d time.Duration, values ...string) {
	if m != nil {
		m.Observe(id, max(d, 0).Seconds(), values...)
	}
}

// at returns the numbers of a combination of labels.
func (f *counted) at(values []string) *series {
	key := f.of.key(values)
	f.mu.RLock()
	s := f.series[key]
	f.mu.RUnlock()
	if s != nil {
		return s
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if s = f.series[key]; s != nil {
		return s
	}

	if len(f.series) >= f.most {
		key = f.of.mergeLabels(key)
		if s = f.series[key]; s != nil {
			return s
		}
	}

	s = &series{buckets: make([]atomic.Int64, len(f.of.Bounds))}
	if f.series == nil {
		f.series = map[labels]*series{}
	}
	f.series[key] = s

	return s
}

// key returns the values of the family's labels. Further values are left out.
func (f *Family) key(values []string) (key labels) {
	copy(key[:len(f.Labels)], values)
	return key
}

// mergeLabels replaces all names in a combination of labels by Other. The family uses the result if
// it has too many combinations.
func (f *Family) mergeLabels(key labels) labels {
	for i, label := range f.Labels {
		if named[label] {
			key[i] = Other
		}
	}
	return key
}

// Watch calls tell whenever metrics are collected, until stop is called.
func (m *Meter) Watch(tell func(*States)) (stop func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := m.next
	m.next++
	m.sources[id] = tell
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.sources, id)
	}
}

// States collects gauges. Values that several sources set for the same labels are added up.
type States struct {
	meter  *Meter
	values [numFamilies]map[labels]float64
}

// ByTenant reports whether the meter counts each tenant on its own.
func (g *States) ByTenant() bool { return g.meter.byTenant }

// Set sets the value of a gauge.
func (g *States) Set(id ID, v float64, values ...string) {
	f := g.meter.families[id].of
	key := f.key(values)
	if g.values[id] == nil {
		g.values[id] = map[labels]float64{}
	}
	if _, known := g.values[id][key]; !known && len(g.values[id]) >= g.meter.families[id].most {
		key = f.mergeLabels(key)
	}
	g.values[id][key] += v
}

// Sample is the current value of a counter or gauge, or the current values of a histogram.
type Sample struct {
	ID     ID
	Labels []string
	Value  float64 // the value of a counter or gauge
	// Count, Sum and Buckets belong to a histogram. Buckets has the number of values up to each
	// bound.
	Count   uint64
	Sum     float64
	Buckets map[float64]uint64
}

// Gather passes all values to tell.
func (m *Meter) Gather(tell func(Sample)) {
	for id := range m.families {
		m.families[id].gather(ID(id), tell)
	}
	m.mu.Lock()
	sources := make([]func(*States), 0, len(m.sources))
	for _, s := range m.sources {
		sources = append(sources, s)
	}
	m.mu.Unlock()
	g := States{meter: m}
	for _, s := range sources {
		s(&g)
	}

	for id, values := range g.values {
		for key, v := range values {
			tell(Sample{ID: ID(id), Labels: key.of(m.families[id].of), Value: v})
		}
	}
}

func (f *counted) gather(id ID, tell func(Sample)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for key, s := range f.series {
		sample := Sample{ID: id, Labels: key.of(f.of)}
		if f.of.Kind != Histogram {
			sample.Value = float64(s.count.Load())
			tell(sample)
			continue
		}

		// Read the count before the buckets. Then a value that arrives in between may be in a
		// bucket but not in the count. The opposite cannot happen.
		sample.Count, sample.Buckets = uint64(s.count.Load()), make(map[float64]uint64, len(s.buckets))
		var upTo uint64
		for i := range s.buckets {
			upTo += uint64(s.buckets[i].Load())
			sample.Buckets[f.of.Bounds[i]] = upTo
		}

		// Prometheus requires that buckets never exceed the count.
		sample.Count = max(sample.Count, upTo)
		sample.Sum = math.Float64frombits(s.sum.Load())
		tell(sample)
	}
}

// of returns the values of the family's labels. It replaces invalid UTF-8, which would otherwise
// break the whole scrape.
func (l labels) of(f *Family) []string {
	values := make([]string, len(f.Labels))
	for i := range values {
		values[i] = strings.ToValidUTF8(l[i], "\uFFFD")
	}
	return values
}
