package sqlite

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Commit applies a batch.
func (s *Store) Commit(ctx context.Context, b *store.Batch) (out store.Committed, err error) {
	op := opCommit
	enc := bodyPool.Get().(*bodies)
	defer bodyPool.Put(enc)

	// Encode before the transaction: encoding needs no lock, and if a value cannot be stored, no
	// transaction begins.
	if err := enc.encode(b); err != nil {
		return out, &store.Error{Class: store.Refused, Op: op, Err: err}
	}

	// One transaction applies the whole batch. A guard that does not match returns an error, and
	// write rolls everything back.
	err = s.write(ctx, op, func(w *writer) error {
		t := batchWriter{w: w, b: b, bodies: enc}
		if err := t.apply(); err != nil {
			return err
		}
		out.Existing, err = t.readExisting()
		return err
	})
	if err != nil {
		return store.Committed{}, err
	}

	return out, nil
}

const opCommit = "commit"

// batchWriter writes one batch.
type batchWriter struct {
	w      *writer
	b      *store.Batch
	bodies *bodies
	taken  []int // starts whose address is taken
}

// apply writes everything, in the order of the fields of the batch.
func (t *batchWriter) apply() error {
	// The fence comes first: if the lane is no longer the owner, nothing else matters. The other
	// steps follow the fields of store.Batch, because later steps rely on earlier steps: a label
	// needs the run of a start, and a stopped timer may be started again.
	for _, step := range [...]func() error{
		t.fence, t.writeDeletes, t.writeStarts, t.writeCloses, t.writeMarks, t.writeLabels, t.writeEvents, t.dead, t.taskData, t.writeLogs, t.writeTimers, t.mailbox, t.writeEntities, t.writeMessages, t.writeCursors, t.inbox, t.writeRequests, t.writeForgets, t.writeTokens, t.writeFrees,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// one runs a guarded statement, which must change exactly one row.
func (t *batchWriter) one(q *stmt) (bool, error) {
	if err := q.run(); err != nil {
		return false, err
	}
	return t.w.db.Changes() == 1, nil
}

// refusedError returns the error of a guard that did not match.
func refusedError(format string, args ...any) error {
	return store.Errorf(store.Refused, opCommit, format, args...)
}

// fence advances the fence of the lane.
func (t *batchWriter) fence() error {
	// The statement changes the row only if its epoch and batch number are the expected ones. So a
	// lane that was fenced, or that repeats a batch, changes nothing.
	q, b := t.w.fence, t.b
	q.setBlob(1, b.Lane.Node[:])
	q.setInt(2, int64(b.Lane.Lane))
	q.setInt(3, b.Lane.Epoch)
	q.setInt(4, b.Number)
	ok, err := t.one(q)
	if err == nil && !ok {
		err = store.Errorf(store.Fenced, opCommit, "the fence of lane %d of %s is not at batch %d of epoch %d",
			b.Lane.Lane, b.Lane.Node, b.Number-1, b.Lane.Epoch)
	}
	return err
}

// writeDeletes removes the closed runs of Deletes, the runs of Removes in any state, and entities.
// Sweeps delete the events of the runs later.
func (t *batchWriter) writeDeletes() error {
	// A forced removal uses only the key, because the row may be unreadable. A run may have too
	// many events for one commit. So the commit notes the run as garbage, and sweeps delete its
	// events.
	for _, key := range t.b.Removes {
		for _, sql := range [...]string{sqlDelete, sqlDeleteLeaving, sqlDeleteStart, sqlDeleteLabels, sqlDeleteTimers, sqlGarbage} {
			if _, err := t.w.exec(sql, key.Run[:], int(key.Shard)); err != nil {
				return fmt.Errorf("removal of %s: %w", key.Run, err)
			}
		}
	}

	for i := range t.b.EntityRemoves {
		key := &t.b.EntityRemoves[i]
		a := &key.Address
		for _, sql := range [...]string{sqlEraseEntity, sqlEraseMailbox} {
			if _, err := t.w.exec(sql, int(key.Shard), a.Tenant, a.Type, a.Key); err != nil {
				return fmt.Errorf("removal of %s: %w", key.Address, err)
			}
		}
	}

	// Retention removes only closed runs. If a run is open, the lane used a state that is out of
	// date, so the store refuses the batch.
	for _, key := range t.b.Deletes {
		state, found, err := t.w.number(sqlStateOf, key.Run[:], int(key.Shard))
		switch {
		case err != nil:
			return fmt.Errorf("delete of %s: %w", key.Run, err)
		case !found:
			continue
		case state < stateClosed:
			return refusedError("delete of %s: the run is open", key.Run)
		}
		for _, sql := range [...]string{sqlDelete, sqlDeleteLeaving, sqlDeleteStart, sqlDeleteLabels, sqlGarbage} {
			if _, err := t.w.exec(sql, key.Run[:], int(key.Shard)); err != nil {
				return fmt.Errorf("delete of %s: %w", key.Run, err)
			}
		}
	}

	return nil
}

const (
	sqlStateOf       = `select state from perdure_executions where run = ?1 and shard = ?2`
	sqlDelete        = `delete from perdure_executions where run = ?1 and shard = ?2`
	sqlDeleteStart   = `delete from perdure_starts where run = ?1 and shard = ?2`
	sqlDeleteLabels  = `delete from perdure_labels where run = ?1 and shard = ?2`
	sqlLeaving       = `insert into perdure_leaving (run, shard, at) values (?1, ?2, ?3)`
	sqlDeleteLeaving = `delete from perdure_leaving where run = ?1 and shard = ?2`
	sqlDeleteTimers  = `delete from perdure_timers where run = ?1 and shard = ?2`
	sqlGarbage       = `insert into perdure_garbage (run, shard) values (?1, ?2) on conflict do nothing`
)

// writeStarts inserts runs.
func (t *batchWriter) writeStarts() error {
	for i := range t.b.Starts {
		if err := t.start(i); err != nil {
			return fmt.Errorf("start of %s: %w", t.b.Starts[i].Start.Run, err)
		}
	}
	return nil
}

// start inserts one run, with its labels. If IfAbsent is set and the address has a current run,
// that is not an error: readExisting returns the current run.
func (t *batchWriter) start(i int) error {
	row := &t.b.Starts[i]
	a := &row.Start.Address
	// A unique index allows only one current run per address. So first mark the old run as no
	// longer current.
	if !row.Replaces.IsZero() {
		if err := t.replace(row); err != nil {
			return err
		}
	}

	q := t.w.start
	if row.IfAbsent {
		q = t.w.startIfAbsent
	}
	body := t.bodies.next()
	q.setBlob(1, row.Start.Run[:])
	q.setInt(2, int64(row.Shard))
	q.setInt(3, int64(row.Start.At))
	q.setText(4, a.Tenant)
	q.setText(5, a.Type)
	q.setText(6, a.Key)

	// Most lists and reads need only the row. If the rows had large bodies, a page would hold few
	// rows. So a large body goes into its own table.
	large := len(body) > inlineStart
	if large {
		q.setBlob(7, nil)
	} else {
		q.setBlob(7, body)
	}

	inserted, err := t.one(q)
	switch {
	case err != nil:
		return err
	case !inserted:
		// The address has a current run, and IfAbsent is set: skip this start. The rest of the
		// batch continues.
		t.taken = append(t.taken, i)
		return nil
	}

	if large {
		q = t.w.largeStart
		q.setBlob(1, row.Start.Run[:])
		q.setInt(2, int64(row.Shard))
		q.setBlob(3, body)
		if err := q.run(); err != nil {
			return err
		}
	}

	for j := range row.Start.Labels {
		if err := t.label(store.RunKey{Shard: row.Shard, Run: row.Start.Run}, &row.Start.Labels[j]); err != nil {
			return err
		}
	}

	return nil
}

// replace marks the run that a start replaces as no longer current.
func (t *batchWriter) replace(row *store.StartRow) error {
	q, a := t.w.replace, &row.Start.Address
	q.setBlob(1, row.Replaces[:])
	q.setInt(2, int64(row.Shard))
	q.setText(3, a.Tenant)
	q.setText(4, a.Type)
	q.setText(5, a.Key)
	// The statement returns the state of the old run, or no row if the old run is not current.
	found, open := false, false

	err := q.each(func(q *stmt) error {
		found, open = true, q.int(0) < stateClosed
		return nil
	})

	switch {
	case err != nil:
		return err
	case !found:
		return refusedError("%s is not the current run of %s", row.Replaces, a)
	case open && !t.closesRun(store.RunKey{Shard: row.Shard, Run: row.Replaces}):
		return refusedError("%s is still open and would not be current", row.Replaces)
	}

	return nil
}

// closesRun reports whether the batch closes a run.
func (t *batchWriter) closesRun(key store.RunKey) bool {
	for i := range t.b.Closes {
		if t.b.Closes[i].RunKey == key {
			return true
		}
	}
	return false
}

// writeCloses ends runs. The guard is in the statement: it changes only open runs.
func (t *batchWriter) writeCloses() error {
	q := t.w.close
	for i := range t.b.Closes {
		row := &t.b.Closes[i]
		if !row.Outcome.Status.Closed() {
			return refusedError("close of %s: status %s does not close a run", row.Run, row.Outcome.Status)
		}
		q.setBlob(1, row.Run[:])
		q.setInt(2, int64(row.Shard))
		q.setInt(3, int64(row.Outcome.Status))
		q.setInt(4, int64(row.Outcome.At))
		q.setBlob(5, t.bodies.next())

		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("close of %s: %w", row.Run, err)
		} else if !ok {
			return refusedError("close of %s: the run is not open", row.Run)
		}

		// This index has only runs with their own removal time. Retention finds all other runs when
		// it walks over old runs.
		if row.Outcome.Leaves != 0 {
			if _, err := t.w.exec(sqlLeaving, row.Run[:], int(row.Shard), int64(row.Outcome.Leaves)); err != nil {
				return fmt.Errorf("close of %s: %w", row.Run, err)
			}
		}
	}

	return nil
}

// writeMarks stores whether runs are parked or blocked, and the reason by which queries find them.
func (t *batchWriter) writeMarks() error {
	q := t.w.mark
	for i := range t.b.Marks {
		row := &t.b.Marks[i]
		state := int64(stateRunnable)
		if row.Parked {
			state = stateParked
		}
		q.setBlob(1, row.Run[:])
		q.setInt(2, int64(row.Shard))
		q.setInt(3, state)
		q.setBlob(4, t.bodies.next())
		q.setBlob(5, t.bodies.next())

		// A run that is ready to run has no stored reason. Null keeps the run out of the index of
		// reasons.
		if code := store.MainReason(row.Parked, row.Waits, row.Blocked); code == model.WaitTurn {
			q.setBlob(6, nil)
		} else {
			q.setText(6, string(code))
		}

		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("mark of %s: %w", row.Run, err)
		} else if !ok {
			return refusedError("mark of %s: the run is not open", row.Run)
		}
	}

	return nil
}

// writeLabels changes labels of existing runs.
func (t *batchWriter) writeLabels() error {
	for i := range t.b.Labels {
		row := &t.b.Labels[i]
		if err := t.label(row.RunKey, &row.Label); err != nil {
			return err
		}
	}
	return nil
}

// label sets or removes a label of a run that exists.
func (t *batchWriter) label(key store.RunKey, l *model.Label) error {
	// An empty value removes the label.
	q := t.w.label
	if l.Value == "" {
		q = t.w.unlabel
	} else {
		q.setText(4, l.Value)
	}

	q.setBlob(1, key.Run[:])
	q.setInt(2, int64(key.Shard))
	q.setText(3, l.Name)
	ok, err := t.one(q)

	switch {
	case err != nil:
		return fmt.Errorf("label %s of %s: %w", l.Name, key.Run, err)
	case !ok && l.Value != "":
		return refusedError("label %s of %s: the run does not exist", l.Name, key.Run)
	}

	return nil
}

// writeEvents appends events to histories. The primary key refuses a position that is already
// taken. That can only happen if two owners write.
func (t *batchWriter) writeEvents() error {
	q := t.w.event
	for i := range t.b.Events {
		row := &t.b.Events[i]
		q.setBlob(1, row.Run[:])
		q.setInt(2, int64(row.Shard))
		q.setInt(3, row.Event.Seq)
		q.setInt(4, int64(row.Event.At))
		q.setInt(5, int64(row.Event.Kind))
		body := t.bodies.next()
		if len(body) > inlineBody(t.w.pageSize) {
			if err := t.body(row, body); err != nil {
				return fmt.Errorf("body of event %d of %s: %w", row.Event.Seq, row.Run, err)
			}
			body = elsewhere
		}
		q.setBlob(6, body)
		if err := q.run(); err != nil {
			return fmt.Errorf("event %d of %s: %w", row.Event.Seq, row.Run, err)
		}
	}
	return nil
}

// body inserts the body of an event that is too large for its row.
func (t *batchWriter) body(row *store.EventRow, body []byte) error {
	q := t.w.body
	q.setBlob(1, row.Run[:])
	q.setInt(2, int64(row.Shard))
	q.setInt(3, row.Event.Seq)
	q.setBlob(4, body)
	return q.run()
}

// writeTimers first stops single timers, then starts timers, then stops all timers of runs. So a
// timer that one batch stops and starts again exists afterwards, and a run that ends keeps no
// timer.
func (t *batchWriter) writeTimers() error {
	q := t.w.stopTimer
	for i := range t.b.StopTimers {
		row := &t.b.StopTimers[i]
		q.setBlob(1, row.Run[:])
		q.setInt(2, int64(row.Shard))
		q.setText(3, row.ID)
		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("stop of timer %q of %s: %w", row.ID, row.Run, err)
		} else if !ok {
			return refusedError("timer %q of %s does not exist", row.ID, row.Run)
		}
	}

	q = t.w.timer
	for i := range t.b.Timers {
		row := &t.b.Timers[i]
		q.setBlob(1, row.Run[:])
		q.setInt(2, int64(row.Shard))
		q.setText(3, row.ID)
		q.setInt(4, int64(row.Due))
		q.setText(5, row.Address.Tenant)
		q.setText(6, row.Address.Type)
		q.setText(7, row.Address.Key)
		if err := q.run(); err != nil {
			return fmt.Errorf("timer %q of %s: %w", row.ID, row.Run, err)
		}
	}

	q = t.w.stopAll
	for i := range t.b.StopAll {
		row := &t.b.StopAll[i]
		q.setBlob(1, row.Run[:])
		q.setInt(2, int64(row.Shard))
		if err := q.run(); err != nil {
			return fmt.Errorf("stop of the timers of %s: %w", row.Run, err)
		}
	}

	return nil
}

// writeMessages inserts messages to other shards. The statement also refuses a position that the
// cursor of the receiver has passed. A sweep may have deleted the message at such a position, but
// no other message may get that position.
func (t *batchWriter) writeMessages() error {
	q := t.w.message
	for i := range t.b.Messages {
		row := &t.b.Messages[i]
		q.setInt(1, int64(row.To))
		q.setInt(2, int64(row.From))
		q.setInt(3, row.Seq)
		q.setBlob(4, t.bodies.next())
		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("message %d from shard %d to shard %d: %w", row.Seq, row.From, row.To, err)
		} else if !ok {
			return refusedError("message %d from shard %d to shard %d was consumed long ago", row.Seq, row.From, row.To)
		}
	}
	return nil
}

// writeCursors advances cursors. The old position is part of the condition. If the cursor has
// another position, another owner has consumed the messages.
func (t *batchWriter) writeCursors() error {
	for i := range t.b.Cursors {
		row := &t.b.Cursors[i]
		// A pair of shards has no row before its first message is consumed.
		q := t.w.firstCursor
		if row.Prev != 0 {
			q = t.w.cursor
			q.setInt(4, row.Prev)
		}
		q.setInt(1, int64(row.To))
		q.setInt(2, int64(row.From))
		q.setInt(3, row.Next)
		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("cursor of shard %d for shard %d: %w", row.To, row.From, err)
		} else if !ok {
			return refusedError("the cursor of shard %d for shard %d is not at position %d", row.To, row.From, row.Prev)
		}
	}

	return nil
}

// inbox deletes served requests and postpones others.
func (t *batchWriter) inbox() error {
	q := t.w.consume
	for i := range t.b.Inbox {
		row := &t.b.Inbox[i]
		q.setInt(1, int64(row.Shard))
		q.setBlob(2, row.ID[:])
		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("request %s to shard %d: %w", row.ID, row.Shard, err)
		} else if !ok {
			return refusedError("request %s to shard %d is not in the inbox", row.ID, row.Shard)
		}
	}

	// The insert also covers messages of other shards, which have no row in the inbox yet.
	q = t.w.defers
	for i := range t.b.Deferred {
		row := &t.b.Deferred[i]
		q.setInt(1, int64(row.Shard))
		q.setBlob(2, row.ID[:])
		q.setInt(3, int64(row.NotBefore))
		q.setBlob(4, t.bodies.next())
		if err := q.run(); err != nil {
			return fmt.Errorf("request %s to shard %d put off: %w", row.ID, row.Shard, err)
		}
	}

	return nil
}

// writeRequests remembers answers. The primary key refuses an id that is already remembered. So if
// a request is served twice, the store refuses the second batch. A refusal that is already stored
// is skipped, see sqlRequest.
func (t *batchWriter) writeRequests() error {
	q := t.w.request
	for i := range t.b.Requests {
		row := &t.b.Requests[i]
		q.setInt(1, int64(row.Shard))
		q.setText(2, row.Address.Tenant)
		q.setText(3, row.Address.Type)
		q.setText(4, row.Address.Key)
		q.setText(5, row.ID)
		q.setInt(6, int64(row.At))
		q.setBlob(7, t.bodies.next())
		if err := q.run(); err != nil {
			return fmt.Errorf("answer to request %q of %s: %w", row.ID, row.Address, err)
		}
	}
	return nil
}

// writeForgets removes remembered answers. A missing answer is not an error, because a sweep may
// have removed it.
func (t *batchWriter) writeForgets() error {
	q := t.w.forget
	for i := range t.b.Forgets {
		k := &t.b.Forgets[i]
		q.setInt(1, int64(k.Shard))
		q.setText(2, k.Address.Tenant)
		q.setText(3, k.Address.Type)
		q.setText(4, k.Address.Key)
		q.setText(5, k.ID)
		if err := q.run(); err != nil {
			return fmt.Errorf("forget request %q of %s: %w", k.ID, k.Address, err)
		}
	}

	return nil
}

// writeTokens raises the token marks of shards. If the stored mark is higher, the statement keeps
// the stored mark.
func (t *batchWriter) writeTokens() error {
	q := t.w.token
	for _, row := range t.b.Tokens {
		q.setInt(1, int64(row.Shard))
		q.setInt(2, row.Mark)
		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("mark of tokens of shard %d: %w", row.Shard, err)
		} else if !ok {
			return refusedError("there is no shard %d", row.Shard)
		}
	}

	return nil
}

// writeFrees releases shards that the node owns.
func (t *batchWriter) writeFrees() error {
	q := t.w.free
	for _, shard := range t.b.Free {
		q.setInt(1, int64(shard))
		q.setBlob(2, t.b.Lane.Node[:])
		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("free of shard %d: %w", shard, err)
		} else if !ok {
			return refusedError("shard %d does not belong to %s", shard, t.b.Lane.Node)
		}
	}
	return nil
}

// readExisting reads the runs whose addresses were taken, in the state after the batch.
func (t *batchWriter) readExisting() ([]store.ExistingStart, error) {
	if len(t.taken) == 0 {
		return nil, nil
	}

	out := make([]store.ExistingStart, 0, len(t.taken))
	for _, i := range t.taken {
		e, err := currentRun(t.w.conn, t.b.Starts[i].Start.Address)
		if err != nil {
			return nil, err
		}
		// No later step of a valid batch frees an address, so the run must exist.
		if e == nil {
			return nil, refusedError("start of %s: the address was taken, but its run no longer exists", t.b.Starts[i].Start.Run)
		}
		out = append(out, store.ExistingStart{Index: i, Execution: *e})
	}

	return out, nil
}
