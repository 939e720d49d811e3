package engine

import (
	"context"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/series"
	"github.com/perdure/perdure/internal/model"
)

// countSeries counts facts by time. It takes a lock, so the engine calls it once for all facts of a
// commit.
func (e *Engine) countSeries(facts []lane.Fact) {
	if e.series == nil {
		return
	}
	var few [16]series.One
	all := few[:0]
	for i := range facts {
		if kind, ok := seriesKind(&facts[i]); ok {
			all = append(all, series.One{Tenant: facts[i].Address.Tenant, Kind: kind})
		}
	}
	if len(all) > 0 {
		e.series.Add(e.clock.now(), all)
	}
}

// endings has the kind under which the end of a run is counted, by the status of the run.
var endings = map[model.Status]series.Kind{
	model.Completed: series.Completed, model.Failed: series.Failed, model.Canceled: series.Canceled, model.Continued: series.Continued, model.Terminated: series.Terminated,
}

// seriesKind returns the kind under which a fact is counted.
func seriesKind(f *lane.Fact) (k series.Kind, ok bool) {
	switch f.Kind {
	case lane.FactStarted:
		return series.Started, true
	case lane.FactClosed:
		k, ok = endings[f.Status]
		return k, ok
	case lane.FactBlocked:
		return series.Blocked, true

	case lane.FactSubmitted:
		return series.TasksSubmitted, true
	case lane.FactAttempt:
		if f.Outcome == lane.Failed || f.Outcome == lane.Retried || f.Outcome == lane.Lost || f.Outcome == lane.TimedOut {
			return series.TaskFailures, true
		}
		return series.TasksEnded, true
	case lane.FactDead:
		return series.TasksDead, true
	case lane.FactCall:
		return series.EntityCalls, true
	default:
		return 0, false
	}
}

// Series returns what this node has counted for a tenant. ok is false if the node does not count,
// or if the question makes no sense.
func (e *Engine) Series(q series.Question) (c series.Counts, ok bool) {
	if e.series == nil || !q.Valid() {
		return c, false
	}
	now := e.clock.now()
	c = e.series.Read(now, q.Tenant)
	if q.Levels {
		c.Levels = e.levels.Read(now, q.Tenant, q.Step)
	}
	return c, true
}

// AskSeries asks another node for its Series.
func (e *Engine) AskSeries(ctx context.Context, node model.NodeID, q series.Question) (series.Counts, error) {
	return peer.Asker{Mail: e.cfg.Store, Hints: e.cfg.Hints}.AskSeries(ctx, node, q)
}

// Series answers another process.
func (h peerHandler) Series(q series.Question) (series.Counts, bool) { return h.inc.eng.Series(q) }
