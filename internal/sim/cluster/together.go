package cluster

import (
	"context"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/disk"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// loadAll starts the reads that a lane asks for. If nodes read runs together, it reads all runs in
// one call of the store.
func (sh *shell) loadAll(loads []lane.Load) {
	if !sh.s.Has(scenario.Together) {
		for i := range loads {
			sh.load(&loads[i])
		}
		return
	}

	var runs []lane.Load
	for i := range loads {
		if loads[i].Kind == lane.LoadRun {
			runs = append(runs, loads[i])
		} else {
			sh.load(&loads[i])
		}
	}
	sh.loadTogether(runs)
}

// loadTogether starts a read of several runs.
func (sh *shell) loadTogether(loads []lane.Load) {
	switch len(loads) {
	case 0:
		return
	case 1:
		sh.load(&loads[0])
		return
	}

	s := sh.s
	s.Did(scenario.OpTogether)
	s.Mix(23, uint64(len(loads)), loads[0].ID, uint64(loads[0].Shard))
	g := &group{sh: sh, loads: loads}
	g.Request = disk.Request{Name: "load runs", Process: sh.inc.p.Process, Exec: g.read, OK: g.reply, Bad: g.fail}
	if !s.Healed && s.Chance(s.Plan.LoadFails) {
		s.Hurt(scenario.FaultLoad)
		g.Fate = disk.FailsBefore
	}
	s.Disk.Call(&g.Request)
}

// group is a read of several runs that is in flight.
type group struct {
	disk.Request

	sh    *shell
	loads []lane.Load
	page  engine.RunPage // the runs of the first loads
}

// read executes the read at the store. The simulator makes pages small, so that a group of runs
// needs several reads.
func (g *group) read(done func()) {
	s := g.sh.s
	page := runPage{Store: s.Disk.Mem, p: g.sh.inc.p, most: int(s.Between(1, 4))}
	if !s.Healed && s.Chance(s.Plan.TornRead) {
		s.Hurt(scenario.FaultTornRead)
		torn := &disk.TornStore{Store: s.Disk.Mem}
		page.Store = torn
		g.torn(torn, page, done)
		return
	}
	g.page = engine.ReadRuns(context.Background(), page, g.loads)
	done()
}

// torn executes a read whose parts happen at different times.
func (g *group) torn(t *disk.TornStore, page runPage, done func()) {
	t.Call, t.Budget = 0, 1
	got := engine.ReadRuns(context.Background(), page, g.loads)
	if !t.Stopped {
		g.page = got
		done()
		return
	}
	t.Stopped = false
	s := g.sh.s
	s.After(s.Between(1, kernel.Millisecond), nil, func() { g.torn(t, page, done) })
}

func (g *group) fail(err error) {
	g.page = engine.RunPage{Read: g.loads, Results: make([]lane.LoadResult, len(g.loads))}
	for i := range g.page.Results {
		g.page.Results[i].Err = err
	}
	g.reply()
}

// reply passes the results to the lane, and starts the reads of the other runs.
func (g *group) reply() {
	p := &g.page
	g.sh.result(func(now model.Time) {
		for i := range p.Read {
			g.sh.Lane.FinishLoad(now, p.Read[i].ID, p.Results[i])
		}
	})
	for i := range p.Long {
		g.sh.load(&p.Long[i])
	}
	g.sh.loadTogether(g.loads[len(p.Read)+len(p.Long):])
}

// shortRun is the largest number of events that a run may have to be read together with other runs.
const shortRun = 8

// runPage is a store as seen by a process that cannot decode some runs.
type runPage struct {
	store.Store

	p    *Proc
	most int // runs of a page
}

// LoadRuns returns the first runs.
func (r runPage) LoadRuns(ctx context.Context, keys []store.AddressKey, limit, maxBytes int) ([]store.Run, error) {
	for _, k := range keys {
		if err := r.p.unreadable(&lane.Load{Kind: lane.LoadRun, Address: k.Address}); err != nil {
			return nil, err
		}
	}
	return r.Store.LoadRuns(ctx, keys[:min(r.most, len(keys))], min(limit, shortRun), maxBytes)
}

// LoadRun returns one run.
//
//arch:parameters given by store.Store
func (r runPage) LoadRun(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID, limit, maxBytes int) (store.Run, error) {
	if err := r.p.unreadable(&lane.Load{Kind: lane.LoadRun, Address: a}); err != nil {
		return store.Run{}, err
	}
	return r.Store.LoadRun(ctx, shard, a, run, limit, maxBytes)
}
