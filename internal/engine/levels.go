package engine

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/engine/series"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/telemetry"
)

// levelShare bounds the part of the time that samples may take. After a sample, the node waits at
// least levelShare times as long as the sample took.
const levelShare = 50

// sampleLevels samples the state of the queues and limits of this node until ctx ends.
func (inc *incarnation) sampleLevels(ctx context.Context) {
	for {
		now := inc.eng.clock.now()
		next := series.Step - time.Duration(now.Std().UnixNano())%series.Step
		begun := time.Now()
		// While this node is not sure of its lease, another node may own its tasks.
		if inc.isServing() {
			inc.eng.levels.Add(now, inc.board.levels(now))
		}
		if !sleep(ctx, max(next, levelShare*time.Since(begun))) {
			return
		}
	}
}

// levels returns the state of the queues and limits.
func (b *board) levels(now model.Time) []series.Sample {
	b.mu.Lock()
	depths, loads, kept, refused := b.b.Depths(), b.gate.Loads(), b.b.CountKept(0), b.refused.take()
	b.mu.Unlock()

	all := make([]series.Sample, 0, len(depths))
	for i := range depths {
		q := &depths[i]
		s := series.Sample{Subject: series.Subject{Tenant: q.Tenant, Kind: series.Queue, Name: q.Queue}}
		s.Levels[series.QueueWaiting], s.Levels[series.QueueDelayed], s.Levels[series.QueueRunning] = level(q.Waiting), level(q.Delayed), level(q.Claimed)
		if q.Oldest != 0 {
			s.Levels[series.QueueOldest] = level(int(now.Sub(q.Oldest).Seconds()))
		}
		all = append(all, s)
	}

	// A limit has one resource for each of its keys, so add them up. Limits that tenants share
	// belong to no tenant.
	limits := map[series.Subject]*series.Sample{}
	add := func(to *uint32, n int) { *to = level(int(*to) + n) }
	at := func(s series.Subject) *[series.NumLevels]uint32 {
		if limits[s] == nil {
			limits[s] = &series.Sample{Subject: s}
		}
		return &limits[s].Levels
	}
	for i := range loads {
		l := &loads[i]
		if l.Resource.Tenant == "" {
			continue
		}
		n := at(series.Subject{Tenant: l.Resource.Tenant, Kind: series.Limit, Name: l.Resource.Name})
		add(&n[series.LimitHeld], l.Held)
		add(&n[series.LimitPermits], l.Block)
		for _, group := range l.Groups {
			add(&n[series.LimitWaiting], kept[group].Count)
		}
	}

	for limit, count := range refused {
		at(limit)[series.LimitRefused] = count
	}
	for _, s := range limits {
		all = append(all, *s)
	}
	return all
}

// level converts a number into the type that samples use.
func level(n int) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// maxRefused bounds the limits whose refusals are counted between two samples.
const maxRefused = 1000

// refusals counts how often limits have held tasks back since the last sample. The lock of the
// board protects it.
type refusals struct{ counts map[series.Subject]uint32 }

// add counts a refusal.
func (r *refusals) add(tenant string, why *model.Reason) {
	if why.Code != model.WaitPermit && why.Code != model.WaitRate {
		return
	}
	// The name in a reason has the key after a slash and, if the rule is for several tenants, the
	// tenant in front. Names of limits have neither.
	name, _, _ := strings.Cut(strings.TrimPrefix(why.Name, tenant+":"), "/")
	s := series.Subject{Tenant: tenant, Kind: series.Limit, Name: name}
	if _, known := r.counts[s]; known || len(r.counts) < maxRefused {
		r.counts[s]++
	}
}

// take returns the counts and sets them to zero.
func (r *refusals) take() map[series.Subject]uint32 {
	if r == nil {
		return nil
	}
	counts := r.counts
	r.counts = map[series.Subject]uint32{}
	return counts
}

// countingGate counts the refusals of a gate.
type countingGate struct {
	queue.Admitter

	meter   *telemetry.Meter
	refused *refusals // nil if the node keeps no series
}

// Take counts refusals.
func (c countingGate) Take(now model.Time, it *queue.Item) (ok bool, why model.Reason, again model.Time) {
	ok, why, again = c.Admitter.Take(now, it)
	if !ok {
		c.meter.Add(telemetry.LimitRefusals, 1, string(why.Code))
		if c.refused != nil {
			c.refused.add(it.Ref.Address.Tenant, &why)
		}
	}
	return ok, why, again
}

// withCounter returns the gate for a board. It wraps the gate in a counter if refusals must be
// counted.
func (e *Engine) withCounter(g queue.Admitter, refused *refusals) queue.Admitter {
	if e.cfg.Meter == nil && refused == nil {
		return g
	}
	return countingGate{g, e.cfg.Meter, refused}
}
