package telemetry

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxLabels is the most that a family has.
const maxLabels = 3

// maxSeries bounds how many combinations of labels a family keeps apart.
const maxSeries = 1000

type labels [maxLabels]string

// Meter counts. All methods may be called by anybody at any time, also on a nil one.
type Meter struct {
	families [numFamilies]counted

	mu      sync.Mutex
	sources map[int]func(*States)
	next    int
}

// New makes a meter on which everything stands at zero.
func New() *Meter {
	m := &Meter{sources: map[int]func(*States){}}
	for id := range families {
		m.families[id].of = &families[id]
	}
	return m
}

// counted is a family with its numbers.
type counted struct {
	of *Family

	mu     sync.RWMutex
	series map[labels]*series
}

// series are the numbers of one combination of labels.
type series struct {
	count   atomic.Int64   // of a counter or histogram
	sum     atomic.Uint64  // of a histogram: the bits of a float
	buckets []atomic.Int64 // one for each bound: values up to it and above the one before
}

// Add adds to a counter. The labels are those of the family, in their order.
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

// Took adds a time to a histogram. A clock that went back took no time.
func (m *Meter) Took(id ID, d time.Duration, values ...string) {
	if m != nil {
		m.Observe(id, max(d, 0).Seconds(), values...)
	}
}

// at finds the numbers of a combination of labels.
func (f *counted) at(values []string) *series {
	var key labels
	copy(key[:], values)
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

	if len(f.series) >= maxSeries {
		key = f.of.crowded(key)
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

// crowded is the combination that counts when there are too many.
func (f *Family) crowded(key labels) labels {
	for i, label := range f.Labels {
		if named[label] {
			key[i] = Other
		}
	}
	return key
}

// Watch has states asked for whenever metrics are gathered, until it is stopped.
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

// States collects gauges. What several tell of the same is added up.
type States struct {
	values [numFamilies]map[labels]float64
}

// Set tells how something stands.
func (g *States) Set(id ID, v float64, values ...string) {
	var key labels
	copy(key[:], values)
	f := &families[id]
	if g.values[id] == nil {
		g.values[id] = map[labels]float64{}
	}
	if _, known := g.values[id][key]; !known && len(g.values[id]) >= maxSeries {
		key = f.crowded(key)
	}
	g.values[id][key] += v
}

// Sample is a value, or the values of a histogram, as of now.
type Sample struct {
	ID     ID
	Labels []string
	Value  float64 // of a counter or gauge
	// Count, Sum and Buckets are of a histogram. Buckets are how many values were up to each bound.
	Count   uint64
	Sum     float64
	Buckets map[float64]uint64
}

// Gather tells all values.
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
	var g States
	for _, s := range sources {
		s(&g)
	}

	for id, values := range g.values {
		for key, v := range values {
			tell(Sample{ID: ID(id), Labels: key.of(&families[id]), Value: v})
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

		// The count is read first: a value that comes meanwhile may be in a bucket and not in the
		// count, never the other way round.
		sample.Count, sample.Buckets = uint64(s.count.Load()), make(map[float64]uint64, len(s.buckets))
		var upTo uint64
		for i := range s.buckets {
			upTo += uint64(s.buckets[i].Load())
			sample.Buckets[f.of.Bounds[i]] = upTo
		}

		sample.Count = max(sample.Count, upTo) // buckets of Prometheus never exceed the count
		sample.Sum = math.Float64frombits(s.sum.Load())
		tell(sample)
	}
}

// of are the labels that the family has. What is no text must not spoil the whole scrape.
func (l labels) of(f *Family) []string {
	values := make([]string, len(f.Labels))
	for i := range values {
		values[i] = strings.ToValidUTF8(l[i], "\uFFFD")
	}
	return values
}
