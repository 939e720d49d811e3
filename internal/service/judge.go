package service

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/diagnosis"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	// maxExplained bounds how many tasks and entities of one run are explained, and how many runs
	// of a page are read a second time.
	maxExplained = 20
	// askPatience bounds how long the service waits for the answer of another node. Without the
	// answer it judges by the store.
	askPatience = time.Second
)

// AskFunc asks a node why executions and entities that it owns make no progress. It leaves out the
// addresses for which the node has no explanation.
type AskFunc func(ctx context.Context, owner model.NodeID, all []model.Address) (map[model.Address][]model.Reason, error)

// AskBy sets how the service asks other nodes. Without AskBy, the service judges the executions of
// other nodes by the store alone. The caller must call AskBy before the service is used.
func (s *Service) AskBy(ask AskFunc) { s.ask = ask }

// judge collects the facts by which package diagnosis judges runs of a tenant. It keeps the facts
// for all runs of a request, so that a page of runs asks each node once.
type judge struct {
	service *Service
	tenant  string
	world   *diagnosis.World
	told    map[model.Address][]model.Reason // reasons from owners, which know more than the store
	outlook *flow.Outlook
	reread  int // rows that were read a second time
}

// judge returns a judge with the current members.
func (s *Service) judge(ctx context.Context, tenant string) (*judge, error) {
	view, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	return &judge{service: s, tenant: tenant, world: diagnosis.NewWorld(view), told: map[model.Address][]model.Reason{}}, nil
}

// view returns the nodes and the owners of the shards. It reads the store, unless the engine of
// this process knows both, because no other process can open the store.
func (s *Service) view(ctx context.Context) (store.View, error) {
	if s.engine == nil {
		return s.store.Members(ctx)
	}
	if view, ok := s.engine.View(); ok {
		return view, nil
	}

	// The store learns what this node serves only with the next renewal of the lease, so the engine
	// says it here.
	view, err := s.store.Members(ctx)
	if id, serves, ok := s.engine.Self(); err == nil && ok {
		for i := range view.Members {
			if view.Members[i].ID == id {
				view.Members[i].Serves = serves
			}
		}
	}
	return view, err
}

// ask asks the owners of addresses why the executions and entities there make no progress. It asks
// the lanes of this node directly, and other nodes through the store. If an owner does not answer
// in time, ask adds nothing about the addresses of that owner.
func (j *judge) ask(ctx context.Context, all []model.Address) {
	own := model.NodeID{}
	if e := j.service.engine; e != nil {
		own = e.Node()
		maps.Copy(j.told, e.ExplainAll(ctx, all))
	}

	others := map[model.NodeID][]model.Address{}
	for _, a := range all {
		if m := j.world.Owner(j.service.shard(a)); m != nil && m.ID != own {
			others[m.ID] = append(others[m.ID], a)
		}
	}
	if j.service.ask == nil || len(others) == 0 || !j.service.store.Info().Shared {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, askWithin(ctx))
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for owner, addresses := range others {
		wg.Go(func() {
			// An error means that the owner cannot be asked. The judge then uses only the store.
			found, _ := j.service.ask(ctx, owner, addresses)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(j.told, found)
		})
	}
	wg.Wait()
}

// askWithin returns how long to wait for owners: at most half of the caller's remaining time, so
// that there is time left to read the store.
func askWithin(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(askPatience, time.Until(end)/2)
	}
	return askPatience
}

// run returns why an open run makes no progress. If read is true, open has the open tasks of the
// run. Otherwise the judge reads these tasks if it needs them.
func (j *judge) run(ctx context.Context, row *store.Execution, open []*core.Task, read bool) (reasons []model.Reason, err error) {
	a := row.Start.Address
	waits, known := j.told[a]
	if !known || !row.Current {
		if row, err = j.latest(ctx, row); err != nil {
			return nil, err
		}
		waits = storedReasons(row)
		if !read && row.Blocked == nil && !row.Parked {
			if open, err = j.openTasks(ctx, row); err != nil {
				return nil, err
			}
		}
		if waits, err = j.throughTasks(ctx, row, waits, open); err != nil {
			return nil, err
		}
	}

	r := diagnosis.Run{Shard: row.Shard, Address: a, Task: row.Start.Task, Waits: waits}
	if row.Start.Task == nil && j.world.NeedsPin(a) {
		if r.Pin, err = j.service.pin(ctx, row); err != nil {
			return nil, err
		}
	}
	return j.permits(ctx, j.world.Judge(&r)), nil
}

// latest reads the row of a run again if the owner does not know the run and the row does not say
// what the run waits for. Since the row was read, the owner may have parked the run and dropped it
// from memory.
func (j *judge) latest(ctx context.Context, row *store.Execution) (*store.Execution, error) {
	if row.Blocked != nil || row.Parked || j.reread >= maxExplained {
		return row, nil
	}
	j.reread++
	now, err := j.service.store.LoadExecution(ctx, row.Shard, row.Start.Address, row.Start.Run)
	if now == nil || err != nil {
		return row, err
	}
	return now, nil
}

// permits names the holders of the limits that a run waits for. The owner of the run knows only its
// own share of a shared limit. permits does not name holders on nodes that do not answer in time.
func (j *judge) permits(ctx context.Context, reasons []model.Reason) []model.Reason {
	for i := range reasons {
		if reasons[i].Code != model.WaitPermit || !j.service.store.Info().Shared {
			continue
		}
		if (outlook{ctx, j}).load() != nil {
			continue
		}
		if text, ok, err := j.outlook.Holders(ctx, reasons[i].Name); err == nil && ok {
			reasons[i].Detail = text
		}
	}
	return reasons
}

// openTasks returns the open tasks of a run. For a run that never scheduled a task it only reads an
// index.
func (j *judge) openTasks(ctx context.Context, row *store.Execution) ([]*core.Task, error) {
	if row.Start.Task == nil {
		key := store.RunKey{Shard: row.Shard, Run: row.Start.Run}
		scheduled, err := j.service.store.LoadEventsOf(ctx, key, model.EventTaskScheduled, math.MaxInt64, 1)
		carried := slices.ContainsFunc(row.Start.Carried, isScheduled)
		if err != nil || len(scheduled) == 0 && !carried {
			return nil, err
		}
	}
	return j.service.openTasks(ctx, row)
}

// throughTasks replaces the waits for open tasks by the reasons of those tasks.
func (j *judge) throughTasks(ctx context.Context, row *store.Execution, waits []model.Reason, open []*core.Task) (_ []model.Reason, err error) {
	if len(open) == 0 || row.Blocked != nil {
		return waits, nil
	}
	why := func(t *core.Task) (model.Reason, bool) {
		r, failed := j.world.Task(j.tenant, t, outlook{ctx, j})
		err = cmp.Or(err, failed)
		return r, true
	}
	if row.Start.Task == nil && len(waits) > 0 && waits[0].Code != model.WaitTurn {
		waits = core.TaskReasons(waits, open, why)
		return waits, err
	}

	// Only the node that has the run in memory knows what the code of the run waits for. An open
	// task is the most likely answer.
	waits = nil
	for _, t := range open[:min(len(open), maxExplained)] {
		if r, _ := why(t); !slices.Contains(waits, r) {
			waits = append(waits, r)
		}
	}
	return waits, err
}

// page finds out why the open runs of a page make no progress, and calls tell for each of them. It
// asks each owner once for all its runs.
func (j *judge) page(ctx context.Context, rows []store.Execution, tell func(i int, owner model.NodeID, reasons []model.Reason)) error {
	var all []model.Address
	for i := range rows {
		if row := &rows[i]; !row.Outcome.Status.Closed() && row.Current {
			all = append(all, row.Start.Address)
		}
	}
	j.ask(ctx, all)

	for i := range rows {
		row := &rows[i]
		if row.Outcome.Status.Closed() {
			continue
		}
		reasons, err := j.run(ctx, row, nil, false)
		if err == nil {
			reasons, err = j.holders(ctx, &row.Start, reasons)
		}

		switch {
		case fault.Is(err, fault.NotFound): // deleted since it was listed
		case fault.Is(err, fault.Corrupt):
			// One bad row does not stop the list.
			tell(i, j.owner(row), []model.Reason{model.Unreadable(err)})
		case err != nil:
			return err
		default:
			tell(i, j.owner(row), reasons)
		}
	}
	return nil
}

// owner returns the node that owns a run; zero if no live node does.
func (j *judge) owner(row *store.Execution) model.NodeID {
	if m := j.world.Owner(row.Shard); m != nil {
		return m.ID
	}
	return model.NodeID{}
}

// outlook has the settings that decide whether tasks may start. It reads them when the first task
// needs them.
type outlook struct {
	ctx context.Context //nolint:containedctx // the context of one request
	j   *judge
}

func (o outlook) load() (err error) {
	if o.j.outlook == nil {
		o.j.outlook, err = o.j.service.flow().Outlook(o.ctx, o.j.tenant)
	}
	return err
}

// PauseOf implements diagnosis.Flow.
func (o outlook) PauseOf(queue string) (model.Reason, bool) {
	if o.load() != nil {
		return model.Reason{}, false // RefusalOf returns the error
	}
	return o.j.outlook.PauseOf(o.j.tenant, queue)
}

// RefusalOf implements diagnosis.Flow.
func (o outlook) RefusalOf(t *core.Task) (model.Reason, bool, error) {
	if err := o.load(); err != nil {
		return model.Reason{}, false, err
	}
	return o.j.outlook.RefusalOf(o.ctx, o.j.tenant, t.Spec, &t.Input)
}

// storedReasons returns why an open run makes no progress, as far as the store knows.
func storedReasons(row *store.Execution) []model.Reason {
	switch {
	case row.Outcome.Status.Closed():
		return nil
	case row.Blocked != nil:
		return []model.Reason{*row.Blocked}
	case row.Parked && len(row.Waits) > 0:
		return row.Waits
	}
	return []model.Reason{{Code: model.WaitTurn}}
}

// pin returns the version that an execution is pinned to: by its own history, or by the past that
// it started with.
func (s *Service) pin(ctx context.Context, row *store.Execution) (pin string, err error) {
	own, err := s.store.LoadEventsOf(ctx, store.RunKey{Shard: row.Shard, Run: row.Start.Run}, model.EventPinned, math.MaxInt64, 1)
	if err != nil {
		return "", err
	}
	if len(own) > 0 {
		return own[0].Name, nil
	}
	for i := range row.Start.Carried {
		if e := &row.Start.Carried[i]; e.Kind == model.EventPinned {
			pin = e.Name
		}
	}
	return pin, nil
}
