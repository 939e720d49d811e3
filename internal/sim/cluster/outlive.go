package cluster

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/sim/worker"
	"github.com/perdure/perdure/internal/store"
)

// In some seeds workers outlive the processes that serve them. They join another process, or the
// next process in the same slot, and report the runs that they hold. The simulator checks rule W1:
// if a worker of the last owner still runs a body, no other worker begins that body while the new
// owner waits for the workers of the last owner. If the first worker comes back in time, no other
// worker begins the body after that either.
//
// In half of these seeds an owner knows when all workers have come back and ends its wait
// immediately. Production servers that list their workers in the store do the same.

// disperse lets the workers of a process that has ended look for another process.
func (p *Proc) disperse() {
	s := p.Cluster
	if !s.Has(scenario.Outliving) {
		return
	}
	for _, w := range p.Workers {
		if w.Leaving || w.Bad {
			w.Process.Dead = true
			continue
		}
		w.Lose()
		s.seekers[w] = true
		s.seek(w)
	}
	p.Workers = nil
}

// seek lets a worker join a process after a while.
func (s *Cluster) seek(w *worker.Worker) {
	s.After(kernel.OneOf(s, s.Between(0, 20*kernel.Millisecond), s.Between(0, 3*s.Plan.Lane.Reunion.Microseconds())), w.Process, func() {
		var up []*Proc
		for _, p := range s.Procs {
			if p != nil && p.Inc != nil && !p.leaving {
				up = append(up, p)
			}
		}
		switch {
		case len(up) > 0:
			up[s.Pick(len(up))].welcome(w)
		case !s.Leaving:
			s.seek(w)
		}
	})
}

// welcome adds a worker that has outlived another process.
func (p *Proc) welcome(w *worker.Worker) {
	p.nextID++
	w.ID, w.Host, w.Joined = p.nextID, p, p.Now()
	p.Workers = append(p.Workers, w)
	if p.Cluster.Tracing {
		p.Cluster.Logf("%s joins %s as worker %d and holds %d runs", w.Process.Name(), p.Name(), w.ID, len(w.Offer.Held))
	}
	if len(w.Offer.Held) > 0 {
		p.Cluster.Did(scenario.OpRejoined)
	}
	p.Inc.join(w)
	delete(p.Cluster.seekers, w)
	p.Cluster.endReunions()
}

// endReunions ends the wait of every owner whose workers have come back. The workers have come back
// if no worker is looking for a process, and no worker of another process holds a run of the owner.
func (s *Cluster) endReunions() {
	if s.Plan.Lane.Reunion == 0 || s.Plan.Poll%2 == 0 {
		return
	}
	for w := range s.seekers {
		if !w.Process.Dead {
			return
		}
	}
	for _, p := range s.Procs {
		if p == nil || p.Inc == nil || p.Inc.ended {
			continue
		}
		for _, sh := range p.Inc.Shells {
			if sh.isReuniting(p.Now()) && !s.isHeldElsewhere(sh) {
				sh.result(sh.finishReunion)
			}
		}
	}
}

// isHeldElsewhere reports whether a worker of another process may hold a run of a lane.
func (s *Cluster) isHeldElsewhere(sh *shell) bool {
	return slices.ContainsFunc(s.remotes, func(w *worker.Worker) bool {
		return w.Host != sh.inc.p && !w.Process.Dead && w.HoldsAny(func(a model.Address) bool {
			return int(s.ShardOf(a))%len(sh.inc.Shells) == sh.index
		})
	})
}

// finishReunion ends the wait of a lane.
func (sh *shell) finishReunion(now model.Time) {
	for i := sh.index; i < len(sh.inc.reunion); i += len(sh.inc.Shells) {
		sh.inc.reunion[i] = min(sh.inc.reunion[i], now)
	}
	sh.Lane.FinishReunion(now)
}

// isReuniting reports whether the lane still waits for workers of the last owner of a shard.
func (sh *shell) isReuniting(now model.Time) bool {
	for i := sh.index; i < len(sh.inc.reunion); i += len(sh.inc.Shells) {
		if sh.inc.reunion[i] > now {
			return true
		}
	}
	return false
}

// beginReunion notes that the lane waits for the workers of the last owners of these shards. Shards
// for which it already waits now wait longer too. A shard whose wait is over does not wait again,
// because the lane may already be handing over its runs.
func (sh *shell) beginReunion(now model.Time, shards []store.AcquiredShard) {
	until := now.Add(sh.s.Plan.Lane.Reunion)
	for i := sh.index; i < len(sh.inc.reunion); i += len(sh.inc.Shells) {
		isNew := slices.ContainsFunc(shards, func(g store.AcquiredShard) bool { return int(g.Shard) == i && g.Foreign })
		if isNew || sh.inc.reunion[i] > now {
			sh.inc.reunion[i] = max(sh.inc.reunion[i], until)
		}
	}
}

// heldIn returns what a worker holds in the shards of a lane.
func (inc *incarnation) heldIn(index int, held []model.HeldRun) (mine []model.HeldRun) {
	for _, h := range held {
		if int(inc.p.Cluster.ShardOf(h.Address))%len(inc.Shells) == index {
			mine = append(mine, h)
		}
	}
	return mine
}

// isForeign reports whether another incarnation owned a shard until now, of this process or of
// another one.
func (inc *incarnation) isForeign(shard model.ShardID) bool {
	return inc.p.Cluster.lives[inc.p.Cluster.Ledger.Owner[shard]] != inc
}

// isOrphaned reports whether another process owned a shard until now and did not give it up.
func (inc *incarnation) isOrphaned(shard model.ShardID) bool {
	owner := inc.p.Cluster.Ledger.Owner[shard]
	last := inc.p.Cluster.lives[owner]
	return !owner.IsZero() && (last == nil || last.p != inc.p)
}

// acquire gives shards to the lane. It notes until when the lane keeps the runs of the last owner
// for their workers.
func (sh *shell) acquire(now model.Time, shards []store.AcquiredShard) {
	foreign := slices.ContainsFunc(shards, func(g store.AcquiredShard) bool { return g.Foreign })
	if foreign && sh.s.Plan.Lane.Reunion > 0 {
		sh.beginReunion(now, shards)
	}
	sh.Lane.Acquire(now, shards)
	if foreign {
		sh.reunite(now)
	}
	sh.s.endReunions()
}

// reunite tells the lane what the workers of the process hold in its shards, as the engine does: a
// worker may have joined before the process owned the shard.
func (sh *shell) reunite(now model.Time) {
	for _, w := range sh.inc.p.Workers {
		held := slices.DeleteFunc(sh.inc.heldIn(sh.index, w.Offer.Held), func(h model.HeldRun) bool {
			return !sh.inc.Owner[sh.s.ShardOf(h.Address)]
		})
		if len(held) > 0 {
			sh.Lane.Meet(now, w.ID, held)
		}
	}
}

// disclaim notes that a process hands over a run that it owns: workers of other processes no longer
// say that they hold it. In production, an owner first asks these workers, through their processes
// (package crew). The worker that holds the run gets it, and the others do not name it.
func (p *Proc) disclaim(run model.RunID) {
	s := p.Cluster
	r := s.Ledger.Runs[run]
	if !s.Has(scenario.Outliving) || p.Inc == nil || r == nil || s.Ledger.Owner[r.Address.Shard] != p.Inc.self.ID {
		return
	}
	for _, w := range s.remotes {
		if w.Host != p {
			w.Disclaim(run)
		}
	}
}

// Begins implements worker.host.
//
//arch:parameters the place of an attempt in its program, and when the run was handed over
func (p *Proc) Begins(run model.RunID, b, a, attempt int, since model.Time) {
	s := p.Cluster
	if !s.Has(scenario.Outliving) || p.Inc == nil {
		return
	}
	r := s.Ledger.Runs[run]
	until := p.Inc.reunion[r.Address.Shard]
	if r.Address.Sick || s.Ledger.Owner[r.Address.Shard] != p.Inc.self.ID {
		return
	}

	for _, w := range s.remotes {
		if !w.Runs(run, b, a, attempt) || w.Process.Dead || w.Leaving {
			continue
		}
		back := w.Host == p && w.Joined < until && w.Serves(r.Address.Name.Type, r.Pin)
		if since < until || back {
			s.Fail("W1: attempt %d of step %d.%d of %s begins on %s, and %s runs it; back: %v", attempt, b, a, scenario.Short(run), p.Inc.name(), w.Process.Name(), back)
		}
	}
}
