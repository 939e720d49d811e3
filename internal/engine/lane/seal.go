package lane

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// newBuilding returns an empty batch. It reuses the memory of an earlier, finished batch if there
// is one. The output of the lane no longer points to that memory.
func (l *Lane) newBuilding() *building {
	if b := l.spare; b != nil {
		l.spare = nil
		return b
	}
	return &building{}
}

// reuse keeps the memory of a batch that is finished.
func (l *Lane) reuse(b *building) {
	t := &b.batch
	clear(b.entries)
	clear(b.effects)
	clear(b.pairs)
	clear(b.facts)
	clear(b.trail)
	clear(b.marked)
	clear(b.ahead)
	clear(b.previews)
	clear(t.Starts)
	clear(t.Closes)
	clear(t.Events)
	clear(t.Messages)
	clear(t.Passed)
	l.acked.reuse(t.Forgets)

	*b = building{
		entries: b.entries[:0], effects: b.effects[:0], pairs: b.pairs[:0], facts: b.facts[:0], trail: b.trail[:0], marked: b.marked[:0],
		ahead:    b.ahead[:0],
		previews: b.previews[:0],
		outgoing: b.outgoing[:0], inputs: b.inputs[:0],
		batch: store.Batch{
			Deletes: t.Deletes[:0], Starts: t.Starts[:0], Closes: t.Closes[:0], Events: t.Events[:0], Messages: t.Messages[:0], Passed: t.Passed[:0],
		},
	}

	l.spare = b
}

// touch notes that the entry has something in the batch, if that is the open batch.
func (l *Lane) touch(b *building, e *entry) {
	if b == l.open && !e.pending.open {
		e.pending.open = true
		b.entries = append(b.entries, e)
	}
}

// seal sends the open batch, if there is something to commit. It does nothing while another batch
// is in flight, while the lane recovers from a failed commit, or while the open batch waits for
// further inputs (see waitsForCalls).
func (l *Lane) seal(now model.Time) {
	if l.flight != nil || l.recovery.busy() || l.waitsForCalls(now) {
		return
	}
	b := l.open
	if !b.empty() || l.acked.tidy && !l.recovery.careful() {
		l.open = l.newBuilding()
		l.lone.others = b.isKept()
		l.send(now, b)
		return
	}

	// The writes of the batch have cancelled out. Its effects need not wait for a commit.
	if len(b.effects) > 0 || len(b.inputs) > 0 {
		l.open = l.newBuilding()
		l.reportFacts(b, false)
		l.letInputsGo(b)
		for _, e := range b.entries {
			e.pending.open, e.pending.served, e.pending.stored = false, 0, 0
		}
		l.run(now, b)
	}
}

// send hands out a batch for commit. No other batch is in flight.
func (l *Lane) send(now model.Time, b *building) {
	l.forgetAcknowledged(b)
	b.batch.Lane, b.batch.Number, b.batch.At = l.cfg.Ref, l.number+1, now
	b.batch.Bytes, b.batch.Patience = b.bytes, l.recovery.patience
	for i := range b.batch.Requests {
		// The sweep removes remembered answers that are old. Without this time, it would remove the
		// answer immediately, and a repetition of the request would take effect again.
		b.batch.Requests[i].At = now
	}

	for _, e := range b.entries {
		e.pending.open, e.pending.flight, e.pending.served, e.pending.stored = false, true, 0, 0
		if m := e.pending.mark; m != nil {
			b.mark(e, store.MarkRow{RunKey: e.key(), Parked: m.Parked, Waits: m.Waits, Blocked: m.Blocked})
			e.pending.mark = nil
		}
	}
	l.writeLetters(b)
	l.numberMessages(b)
	for _, p := range b.pairs {
		b.batch.Cursors = append(b.batch.Cursors, p.seal())
	}
	for _, s := range b.frees {
		b.batch.Free = append(b.batch.Free, s.id)
	}

	l.flight = b
	l.out.Commit = &b.batch
}

// numberMessages gives every message its position in the sequence of its pair of shards. The lane
// does this when it seals the batch, so that a refused batch leaves no gap in the sequence.
func (l *Lane) numberMessages(b *building) {
	if len(b.batch.Messages) == 0 {
		return
	}
	next := map[[2]model.ShardID]int64{}
	for i := range b.batch.Messages {
		row := &b.batch.Messages[i]
		k := [2]model.ShardID{row.From, row.To}
		n, ok := next[k]
		if !ok {
			n = l.shards[row.From].sent[row.To]
		}
		row.Seq = n + 1
		next[k] = n + 1
	}
}

// batchOf returns the last batch that has rows or effects of the entry. It returns nil if
// everything of the entry is committed.
func (l *Lane) batchOf(e *entry) *building {
	switch {
	case e.pending.open:
		return l.open
	case e.pending.flight:
		return l.flight
	}
	return nil
}

// forgetAcknowledged makes the batch also remove remembered answers: those whose callers have
// received them. If the store refuses the batch, the lane does not try these removals again, so
// that they cannot make a second batch fail. In that case the answers stay until the sweep removes
// them.
func (l *Lane) forgetAcknowledged(b *building) {
	a := &l.acked
	if len(a.keys) == 0 || l.recovery.careful() || b.empty() && !a.tidy {
		return
	}

	b.batch.Forgets = a.keys
	b.bytes += rowBytes * len(a.keys)
	a.keys, a.spare, a.tidy = a.spare, nil, false
}

// batchFull reports whether the open batch takes no further input. The lane asks before it adds an
// input, so a batch may exceed the limit by one input, and an input that is larger than the limit
// still fits.
func (l *Lane) batchFull() bool {
	return l.open.rows() >= l.cfg.MaxBatchRows || l.open.bytes >= l.budget.batch
}

// Full reports whether the lane has no room. While the lane is full, the caller hands in no
// requests, turns or reports, because they need room. It still hands in results, for example of
// commits and reads.
func (l *Lane) Full() bool {
	return l.budget.used >= l.cfg.MaxBytes || l.batchFull() || l.recovery.careful()
}

// PendingBytes returns the bytes of inputs that wait or are not committed yet.
func (l *Lane) PendingBytes() int { return l.budget.used + l.budget.kept }

// Tidy makes the lane remove remembered answers whose callers have received them, even if the lane
// has nothing else to commit.
func (l *Lane) Tidy() { l.acked.tidy = len(l.acked.keys) > 0 }
