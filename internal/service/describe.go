package service

import (
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Describe describes an execution.
func (s *Service) Describe(ctx context.Context, t api.Target) (api.Description, error) {
	if s.open.has(t.Address) {
		return s.describeOpen(ctx, t, nil)
	}
	seen, err := s.details(ctx, "describe", t)
	if err != nil {
		return api.Description{}, err
	}
	if seen.Execution.Outcome.Status.Closed() {
		return describeDetails(&seen), nil // a closed run does not change, so ask no owner
	}
	s.open.add(t.Address)
	return s.describeOpen(ctx, t, &seen)
}

// openSet remembers addresses whose executions were open when they were described. When a caller
// asks about such an execution again, Describe need not read its row before it asks the owner. The
// set forgets an address when another address takes its place, and may confuse two addresses. Such
// a mistake makes Describe ask the owner of an execution that has ended, which costs a little time
// and has no other effect.
type openSet struct {
	seed   maphash.Seed
	hashes [1 << 12]atomic.Uint64
}

func newOpenSet() *openSet { return &openSet{seed: maphash.MakeSeed()} }

// place returns the hash of an address, which is never zero, and the place of the hash in the set.
func (o *openSet) place(a model.Address) (uint64, *atomic.Uint64) {
	hash := maphash.Comparable(o.seed, a) | 1
	return hash, &o.hashes[hash>>1%uint64(len(o.hashes))]
}

func (o *openSet) has(a model.Address) bool {
	hash, at := o.place(a)
	return at.Load() == hash
}

func (o *openSet) add(a model.Address) {
	hash, at := o.place(a)
	at.Store(hash)
}

func (o *openSet) remove(a model.Address) {
	hash, at := o.place(a)
	at.CompareAndSwap(hash, 0)
}

// describeDetails describes a run as the store shows it.
func describeDetails(seen *store.RunDetails) api.Description {
	row := seen.Execution
	d := describe(row)
	d.Labels = seen.Labels
	d.Events = max(seen.Last, int64(len(row.Start.Carried))) + 1 // event 0, the start, has no row
	if row.Outcome.Status.Closed() {
		d.Events++ // the end has no row either
	}
	for _, tm := range seen.Timers {
		if core.OwnTimer(tm.ID) {
			continue // the start of the run says when it is due
		}
		d.Timers = append(d.Timers, api.Timer{ID: tm.ID, Due: tm.Due})
	}
	return d
}

func describe(row *store.Execution) api.Description {
	return api.Description{Shard: row.Shard, Start: row.Start, Outcome: row.Outcome, Current: row.Current, Reasons: storedReasons(row)}
}

// describeOpen describes a run that is probably open, and says why it makes no progress. seen is
// what the caller has already read about the run, or nil.
func (s *Service) describeOpen(ctx context.Context, t api.Target, seen *store.RunDetails) (api.Description, error) {
	j, err := s.judge(ctx, t.Address.Tenant)
	if err != nil {
		return api.Description{}, err
	}
	j.ask(ctx, []model.Address{t.Address})
	_, told := j.told[t.Address]

	// If the row says what the run waits for, the owner does not have the run in memory, and the
	// row is enough. Otherwise read the row again after the owner has answered: if the owner has
	// dropped the run from memory, its row now says what it waits for.
	if seen == nil || told || !seen.Execution.Parked && seen.Execution.Blocked == nil {
		now, err := s.details(ctx, "describe", t)
		if err != nil {
			s.open.remove(t.Address)
			return api.Description{}, err
		}
		seen = &now
	}
	row, d := seen.Execution, describeDetails(seen)
	if row.Outcome.Status.Closed() {
		s.open.remove(t.Address)
		return d, nil
	}

	told = told && row.Current
	open, damage := s.openTasksOf(ctx, seen, told)
	if damage != nil && !fault.Is(damage, fault.Corrupt) {
		return d, damage
	}
	if d.Tasks, err = s.tasks(ctx, row, open); err != nil {
		return d, err
	}
	d.Owner = j.owner(row)
	if damage != nil && !told {
		d.Reasons = []model.Reason{model.Unreadable(damage)}
		return d, nil
	}
	return d, j.explain(ctx, row, open, &d)
}

// explain adds to a description why the run makes no progress.
func (j *judge) explain(ctx context.Context, row *store.Execution, open []*core.Task, d *api.Description) (err error) {
	if d.Reasons, err = j.run(ctx, row, open, true); err != nil {
		return err
	}
	if d.Reasons, err = j.throughEntities(ctx, &row.Start, d.Reasons); err != nil {
		return err
	}
	d.Chain = j.follow(ctx, &row.Start, d.Reasons)
	d.Alive = j.aliveFor(d)
	return nil
}

// openTasksOf returns the open tasks of a run, from its history. told says that the owner has the
// run in memory, which proves that its history is readable. In that case openTasksOf skips the
// history of a run without scheduled tasks. Otherwise it reads the history, and returns an error if
// the history cannot be read.
func (s *Service) openTasksOf(ctx context.Context, seen *store.RunDetails, told bool) ([]*core.Task, error) {
	row := seen.Execution
	scheduled := row.Start.Task != nil || seen.Tasks || slices.ContainsFunc(row.Start.Carried, isScheduled)
	if told && !scheduled {
		return nil, nil
	}
	h, err := s.readEvents(ctx, "describe", row, seen.Last)
	if err != nil || !scheduled {
		return nil, err
	}
	return engine.OpenTasks(row.Start, h.Events[len(row.Start.Carried):])
}

// isScheduled reports whether an event has scheduled a task.
func isScheduled(e model.Event) bool { return e.Kind == model.EventTaskScheduled }
