package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// schedule lets the lane serve the backlog of an entry, unless the entry waits for a read or a
// commit.
func (l *Lane) schedule(e *entry) {
	if !e.reading.active && !e.pending.starting && !e.pending.removing {
		l.backlog.push(e)
	}
}

// ensureKnown reports whether the run of an entry is known, and reads it if it is not. A
// quarantined address needs no read, because the lane refuses its inputs or puts them off.
func (l *Lane) ensureKnown(e *entry) bool {
	if e.known || e.quarantine.why != nil {
		return true
	}
	l.load(e)
	return false
}

// load reads the run of an entry, so that the lane can apply inputs to it. An input usually wakes a
// sleeping run, so the lane reads its history for a worker at the same time.
func (l *Lane) load(e *entry) {
	if e.isEntity() {
		l.loadEntity(e)
		return
	}
	e.reading.active = true
	offered := len(l.workers.offersOf(e.kind())) > 0 && !l.reunion.awaits(e.address) && !l.isEarly(e) && !e.isOutlived()
	waits := e.wait.worker || e.wait.room || e.wait.slot
	if offered && e.hold.free() && !e.reading.history && !e.shard.draining && !waits && l.room.free() {
		if s, full := l.workers.seatToRead(e); !full {
			e.reading.beginHistory(s)
		}
	}
	l.loads.add(&Load{Kind: LoadRun, Shard: e.shard.id, Address: e.address, entry: e})
}

// loadSoon reads the run: now, or after the read that is in flight for the address. That read may
// be for an answer or a dead task, so without loadSoon nothing would read the run afterwards.
func (l *Lane) loadSoon(e *entry) {
	if e.reading.active {
		e.reading.due = true
		return
	}
	l.load(e)
}

// loadDue reads the run if loadSoon was called while the lane read something else.
func (l *Lane) loadDue(e *entry) {
	due := e.reading.due && !e.known && !e.reading.active
	e.reading.due = false
	if due {
		l.load(e)
	}
}

// lookUp reads the remembered answer to a request. It does not read while a batch in flight stores
// an answer to the request.
func (l *Lane) lookUp(e *entry, in *messageInput) {
	id := in.origin.message.RequestID
	if _, pending := l.requests[store.RequestKey{Shard: e.shard.id, Address: e.address, ID: id}]; pending {
		return
	}
	l.loads.add(&Load{Kind: LoadReply, Shard: e.shard.id, Address: e.address, RequestID: id, entry: e, message: in, served: e.remembered})
	e.reading.active, in.lookup.checked = true, false
}

// loadEntity reads an entity with its mailbox.
func (l *Lane) loadEntity(e *entry) {
	e.reading.active = true
	l.loads.add(&Load{Kind: LoadEntity, Shard: e.shard.id, Address: e.address, entry: e})
}

func (l *Lane) loadDeadTask(e *entry, in *messageInput) {
	ref := in.origin.message.DeadTask.Ref
	e.reading.active = true
	l.loads.add(&Load{Kind: LoadDeadTask, Shard: e.shard.id, Address: e.address, Run: ref.Run, Task: ref.ID, entry: e, message: in})
}

// loadMailbox reads the mailbox of an entity that a message removes. It does not read the entity's
// row.
func (l *Lane) loadMailbox(e *entry, in *messageInput) {
	e.reading.active = true
	l.loads.add(&Load{Kind: LoadMailbox, Shard: e.shard.id, Address: e.address, entry: e, message: in})
}

// loadFate reads the fate of the claim that an input reports on.
func (l *Lane) loadFate(e *entry, in claimReport, ref *model.ClaimRef) {
	e.reading.active = true
	l.loads.add(&Load{Kind: LoadFate, Shard: e.shard.id, Address: e.address, Claim: *ref, entry: e, report: in})
}

func (l *Lane) loadWritten(e *entry, in *messageInput) {
	ref := &in.origin.message.Write.Ref
	e.reading.active = true
	l.loads.add(&Load{Kind: LoadWritten, Shard: e.shard.id, Address: e.address, Run: ref.Run, Task: ref.ID, entry: e})
}

// acceptFate handles the fate of a claim that the lane has read. The report continues, unless
// another input is first in the line by now.
func (l *Lane) acceptFate(ld *Load, r LoadResult) {
	e := ld.entry
	e.reading.active = false
	if len(e.backlog.inputs) == 0 {
		l.maybeDrop(e)
		return
	}
	if e.backlog.inputs[0] == input(ld.report) {
		ld.report.setFate(&r.Fate)
	}
	l.schedule(e) // also for an input that is first by now: it waited for the read
}

// acceptMailbox continues the removal of an entity whose mailbox has been read. An entity whose
// mailbox cannot be read is removed too.
func (l *Lane) acceptMailbox(ld *Load, r LoadResult) {
	e := ld.entry
	e.reading.active = false
	l.loadDue(e)
	ld.message.erased = &erasure{mailbox: r.Entity.Mailbox, print: r.Print, version: ld.version}
	if len(e.backlog.inputs) > 0 {
		l.schedule(e)
	} else {
		l.maybeDrop(e)
	}
}

// acceptWritten keeps the data that the lane has read. It drops the data if the entry has another
// run by now, or if the lane is reading the run again.
func (l *Lane) acceptWritten(ld *Load, r LoadResult) {
	e := ld.entry
	e.reading.active = false
	if e.known && e.run() == ld.Run && ld.version == e.version {
		if e.tasks.written == nil {
			e.tasks.written = map[string]*taskData{}
		}
		e.tasks.written[ld.Task] = writtenOf(r)
	}
	if len(e.backlog.inputs) > 0 {
		l.schedule(e)
	} else {
		l.maybeDrop(e)
	}
}

// acceptDeadTask handles a dead task that the lane has read. The input that needs it continues,
// unless another input is first in the line by now.
func (l *Lane) acceptDeadTask(ld *Load, r LoadResult) {
	e := ld.entry
	e.reading.active = false
	l.loadDue(e)
	switch {
	case len(e.backlog.inputs) == 0:
		l.maybeDrop(e)
		return
	case e.backlog.inputs[0] == input(ld.message):
		read := &deadTaskRead{err: r.Err}
		if row := r.DeadTask; row != nil && r.Err == nil {
			read.row = &core.StoredDeadTask{Count: row.Requeued, Body: row.Body}
		}
		ld.message.deadTask = read
	}
	l.schedule(e) // also for an input that is first by now: it waited for the read
}

// unread reports whether the lane first has to read the data that the task has written.
func (e *entry) unread(in *messageInput) bool {
	if !in.isWrite() {
		return false
	}
	ref := &in.origin.message.Write.Ref
	return e.tasks.written[ref.ID] == nil && e.hasClaim(ref)
}

// hasClaim reports whether this claim still holds its task.
func (e *entry) hasClaim(ref *model.ClaimRef) bool {
	if e.x == nil || e.run() != ref.Run {
		return false
	}
	t := e.x.Task(ref.ID)
	return t != nil && t.Held && t.Claim == ref.Claim
}

// isClaimOf reports whether a claim still holds its task, and whether the worker may report about
// the claim; see model.SpeaksFor.
func (e *entry) isClaimOf(ref *model.ClaimRef, by string) bool {
	return e.hasClaim(ref) && model.SpeaksFor(by, e.x.Task(ref.ID).Worker)
}

// writtenOf returns what a task has written so far.
func writtenOf(r LoadResult) *taskData {
	w := &taskData{err: r.Err}
	for i := range r.Data {
		d := &r.Data[i]
		if mark, ok, err := d.Mark(); ok {
			w.Claim, w.Seq, w.Lines, w.Items, w.At, w.err = mark.Claim, mark.Seq, mark.Lines, mark.Items, mark.At, err
		} else if d.IsState() {
			if w.Sizes == nil {
				w.Sizes = map[string]int{}
			}
			n := len(d.Name) + d.Value.Size()
			w.Sizes[d.Name] = n
			w.Bytes += n
		}
	}
	return w
}
