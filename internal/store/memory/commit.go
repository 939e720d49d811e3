package memory

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Commit applies a batch completely or not at all.
func (s *Store) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "commit"); err != nil {
		return store.Committed{}, err
	}
	f := s.fence(b.Lane)

	switch {
	case f == nil:
		return store.Committed{}, store.Errorf(store.Fenced, "commit", "lane %d of %s does not stand at epoch %d", b.Lane.Lane, b.Lane.Node, b.Lane.Epoch)
	case f.batch+1 != b.Number:
		return store.Committed{}, store.Errorf(store.Fenced, "commit", "batch %d cannot follow batch %d", b.Number, f.batch)
	}

	c, err := s.apply(b)
	if err != nil {
		for _, undo := range slices.Backward(s.undo) {
			undo()
		}
	} else {
		f.batch = b.Number
	}

	clear(s.undo)
	s.undo = s.undo[:0]
	if err != nil {
		return store.Committed{}, err
	}

	return c, nil
}

// refuse returns the error for a row that cannot be written.
func refuse(format string, args ...any) error {
	return store.Errorf(store.Refused, "commit", format, args...)
}

// addUndo registers how to undo a write. If a later row is refused, Commit calls these functions in
// reverse order.
func (s *Store) addUndo(f func()) { s.undo = append(s.undo, f) }

// apply writes the rows, table by table. It stops at the first row that cannot be written.
func (s *Store) apply(b *store.Batch) (c store.Committed, err error) {
	s.applyRemoves(b)
	s.applyEntityRemoves(b)
	if err = s.applyDeletes(b); err != nil {
		return c, err
	}
	c, err = s.applyStarts(b)
	if err != nil {
		return c, err
	}

	for _, table := range [...]func(b *store.Batch) error{
		s.applyCloses, s.applyMarks, s.applyLabels, s.applyEvents, s.applyDead, s.applyTaskData, s.applyLogs, s.applyStopTimers, s.applyTimers, s.applyStopAll,
		s.applyTaken, s.applyMailbox, s.applyEntities, s.applyMessages, s.applyCursors, s.applyInbox, s.applyDeferred, s.applyRequests, s.applyForgets, s.applyTokens, s.applyFree,
	} {
		if err = table(b); err != nil {
			return c, err
		}
	}

	return c, nil
}

func (s *Store) applyStarts(b *store.Batch) (c store.Committed, err error) {
	for i := range b.Starts {
		row := &b.Starts[i]
		sh := s.shard(row.Shard)
		if sh == nil {
			return c, refuse("there is no shard %d", row.Shard)
		}
		address := row.Start.Address
		old := sh.current[address]

		switch {
		case !row.Replaces.IsZero():
			if old == nil || old.key.Run != row.Replaces {
				return c, refuse("%s is not the current run of %s", row.Replaces, address)
			}
		case old != nil && row.IfAbsent:
			c.Existing = append(c.Existing, store.ExistingStart{Index: i, Execution: cloneExecution(old.row)})
			continue
		case old != nil:
			return c, refuse("%s has the current run %s", address, old.key.Run)
		}

		r := sh.run(row.Start.Run)
		if r.started {
			return c, refuse("%s exists", r.key.Run)
		}
		s.start(sh, r, old, cloneStart(row.Start))
	}

	return c, nil
}

// start inserts the row of a run. The run becomes the current run of its address. old is the run
// that was current before, or nil.
func (s *Store) start(sh *shard, r, old *run, start model.Start) {
	r.started = true
	r.row = store.Execution{Shard: sh.id, Start: start, Outcome: model.Outcome{Status: model.Running}, Current: true}
	if old != nil {
		old.row.Current = false
	}
	r.labels = start.Labels
	sh.current[start.Address] = r
	sh.settle(r)
	s.listing.insert(r)
	sh.started.insert(r)

	s.addUndo(func() {
		s.listing.remove(r)
		sh.started.remove(r)
		r.started = false
		sh.settle(r)
		r.row, r.labels = store.Execution{}, nil
		if old != nil {
			old.row.Current = true
			sh.current[start.Address] = old
		} else {
			delete(sh.current, start.Address)
		}
	})
}

// openRun returns an open run, or an error if the run is not open.
func (s *Store) openRun(key store.RunKey) (*shard, *run, error) {
	sh := s.peek(key.Shard)
	if sh == nil {
		return nil, nil, refuse("%s does not exist", key.Run)
	}
	r := sh.runs[key.Run]
	switch {
	case r == nil || !r.started:
		return nil, nil, refuse("%s does not exist", key.Run)
	case !r.open():
		return nil, nil, refuse("%s is closed", key.Run)
	}
	return sh, r, nil
}

func (s *Store) applyCloses(b *store.Batch) error {
	for i := range b.Closes {
		row := &b.Closes[i]
		sh, r, err := s.openRun(row.RunKey)
		if err != nil {
			return err
		}
		if !row.Outcome.Status.Closed() {
			return refuse("%s cannot be closed as %s", row.Run, row.Outcome.Status)
		}

		s.change(sh, r)
		r.row.Outcome = cloneOutcome(row.Outcome)
		r.row.Parked, r.row.Waits, r.row.Blocked = false, nil, nil
		sh.settle(r)

		if r.row.Outcome.Leaves != 0 {
			sh.leaving.insert(r)
			s.addUndo(func() { sh.leaving.remove(r) }) // runs before the undo that restores the row
		}
	}

	for i := range b.Starts {
		row := &b.Starts[i]
		if row.Replaces.IsZero() {
			continue
		}
		if old := s.peek(row.Shard).runs[row.Replaces]; old.open() {
			return refuse("%s is replaced as the current run, but is not closed", row.Replaces)
		}
	}

	return nil
}

func (s *Store) applyMarks(b *store.Batch) error {
	for i := range b.Marks {
		row := &b.Marks[i]
		sh, r, err := s.openRun(row.RunKey)
		if err != nil {
			return err
		}
		s.change(sh, r)
		r.row.Parked, r.row.Waits, r.row.Blocked = row.Parked, slices.Clone(row.Waits), clonePointer(row.Blocked)
		sh.settle(r)
	}
	return nil
}

// change registers an undo that restores the row of an open run. Callers call change before they
// change the row.
func (s *Store) change(sh *shard, r *run) {
	outcome, parked, waits, blocked := r.row.Outcome, r.row.Parked, r.row.Waits, r.row.Blocked
	s.addUndo(func() {
		r.row.Outcome, r.row.Parked, r.row.Waits, r.row.Blocked = outcome, parked, waits, blocked
		sh.settle(r)
	})
}

func (s *Store) applyLabels(b *store.Batch) error {
	for i := range b.Labels {
		row := &b.Labels[i]
		r := s.look(row.RunKey)
		switch missing := r == nil || !r.started; {
		case missing && row.Label.Value == "":
			continue
		case missing:
			return refuse("label %s of %s: the run does not exist", row.Label.Name, row.Run)
		}
		before := r.labels
		r.labels = model.SetLabel(before, row.Label.Name, row.Label.Value)
		s.addUndo(func() { r.labels = before })
	}
	return nil
}

func (s *Store) applyEvents(b *store.Batch) error {
	for i := range b.Events {
		row := &b.Events[i]
		sh := s.shard(row.Shard)
		if sh == nil {
			return refuse("there is no shard %d", row.Shard)
		}
		r := sh.run(row.Run)
		at, taken := r.event(row.Event.Seq)
		if taken {
			return refuse("position %d of %s is taken", row.Event.Seq, row.Run)
		}
		r.events = slices.Insert(r.events, at, cloneEvent(row.Event))
		s.addUndo(func() {
			at, _ := r.event(row.Event.Seq)
			r.events = slices.Delete(r.events, at, at+1)
		})
	}

	return nil
}
