package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// backlog holds the inputs that wait for an address, in order.
type backlog struct {
	inputs []input
	queued bool // the entry is in Lane.backlog, which serves it in its turn
}

// pending is what an address has in batches that are not committed yet, and what has to wait for
// those commits.
type pending struct {
	// open and flight say whether the address has rows or answers in the open batch, and in the
	// batch in flight.
	open, flight bool
	// starting is set while a start waits for its commit and the lane has only assumed that the
	// address is unused. Other inputs wait behind the start.
	starting bool
	// removing is set while the lane removes an entity, or runs of an address whose current run it
	// does not know. Inputs wait until the store has committed or refused the batch. Nothing else
	// clears removing.
	removing bool
	fresh    bool // the run starts in a batch that is not committed; a worker gets it afterwards

	served int32 // inputs that were applied in the open batch
	// stored is the position of the first call that the open batch adds to the mailbox and that may
	// run ahead. It is 0 if there is none.
	stored int64
	// how many resumes of the run are not committed; a reached start time is a resume too. While
	// there are any, no worker continues the run
	resuming int32
	mark     *core.Mark // the last mark of the open batch
	// freed is the batch that releases the lock of the entity. Calls that had to wait for the lock
	// begin after the commit of this batch. freed is nil if there is no such batch.
	freed *building
}

// dirty reports whether something of the address is not committed.
func (p *pending) dirty() bool { return p.open || p.flight }

// endResume notes that a resume, or the start time of the run, is committed.
func (p *pending) endResume() { p.resuming = max(p.resuming-1, 0) }

// undo forgets the parts of refused batches.
func (p *pending) undo() {
	p.open, p.flight, p.removing, p.served, p.stored = false, false, false, 0, 0
}

// forget drops the parts that belong to the state of the run, which the lane reads again.
func (p *pending) forget() {
	p.starting, p.fresh, p.mark, p.resuming, p.freed = false, false, nil, 0, nil
}

// reading says what the lane reads for an address.
type reading struct {
	active  bool // a read is in flight that inputs have to wait for
	due     bool // the lane must read the run after that read
	bare    bool // the run has been read before, and has no tasks
	history bool // the history is being read for a worker

	tail   []model.Event  // events committed since the read started
	events *[]model.Event // the history that was read, while it waits for batches in flight
	seat   seat           // the slot of the worker for which the lane reads the run or the entity
}

// beginHistory notes that the history is read for a worker from now on.
func (r *reading) beginHistory(s seat) { r.history, r.tail, r.seat = true, nil, s }

// endHistory notes that the history is no longer read for a worker.
func (r *reading) endHistory() {
	r.history, r.tail, r.events = false, nil, nil
	r.seat.leave()
}

// holding says which worker holds the run of an address, and what the worker knows.
type holding struct {
	worker WorkerID    // 0 when no worker holds the run
	run    model.RunID // the run that the worker holds, even while the lane reads the state again
	gen    uint64      // generation: each hand-over has its own
	given  model.Time  // when the worker got the run
	busy   bool        // the worker may be running a step, or may be about to run one
	// The lane sends the worker no events, because the run must leave the worker.
	withheld bool
	told     int64    // position of the last event that the worker got
	news     int64    // position of the last event that the worker has to answer with a turn
	retrying []string // steps that the worker has to repeat, until it reports on them
	weight   int      // bytes of room that the run takes
	seat     seat     // the slot of the worker, while it is busy with the run
	preview  preview
	untold   [][]model.Event  // events that the worker does not know, if it takes previews
	room     [2][]model.Event // room for the first of them
}

// free reports whether no worker holds the run.
func (h *holding) free() bool { return h.worker == 0 }

// by reports whether the worker holds the run in that generation.
func (h *holding) by(w WorkerID, gen uint64) bool { return h.worker == w && h.gen == gen }

// give notes that a worker got the run with the first events of its history.
func (h *holding) give(s seat, gen uint64, run model.RunID, events int) {
	told := int64(events)
	*h = holding{worker: s.worker, run: run, gen: gen, busy: true, told: told, news: told, weight: h.weight, seat: s}
	h.preview.sure, h.preview.news, h.preview.heard = told, told, -1
}

// giveBack notes that a worker keeps the run that it was about to lose. The worker does not learn
// that it was about to lose the run.
func (h *holding) giveBack(c *Call, s seat) {
	h.worker, h.gen, h.busy, h.run, h.seat = c.Worker, c.Generation, true, c.Run, s
}

// take records that no worker holds the run any longer. The fields that say what the last worker
// knew stay, in case that worker gets the run back.
func (h *holding) take() {
	h.worker, h.gen, h.busy, h.run, h.untold = 0, 0, false, model.RunID{}, nil
	h.seat.leave()
}

// wakes reports whether the worker has something to do after it gets the events.
func (h *holding) wakes(events []model.Event) bool {
	return h.busy || slices.ContainsFunc(events, func(e model.Event) bool { return e.Seq > h.told && e.Kind.News() })
}

// tell returns the events that the worker does not know, and notes that it knows them now.
func (h *holding) tell(events []model.Event) []model.Event {
	for len(events) > 0 && events[0].Seq <= h.told {
		events = events[1:]
	}
	if len(events) == 0 {
		return nil
	}
	h.note(events)
	h.preview.sure, h.preview.news, h.preview.due = h.told, h.news, false
	h.forgetUntold()
	return events
}

// note notes that the worker gets events.
func (h *holding) note(events []model.Event) {
	h.told = events[len(events)-1].Seq
	for i := range events {
		if events[i].Kind.News() {
			h.news, h.busy = events[i].Seq, true
		}
	}
}

// retry notes that the worker has to repeat a step.
func (h *holding) retry(step string) { h.retrying, h.busy = append(h.retrying, step), true }

// hear notes what a turn says about the steps of the worker.
func (h *holding) hear(t *model.Turn) {
	if len(h.retrying) > 0 {
		h.retrying = slices.DeleteFunc(h.retrying, func(id string) bool {
			return slices.ContainsFunc(t.Commands, func(c model.Command) bool { return c.Event.ID == id })
		})
	}
	h.busy = t.Running || t.Seen+int64(t.Ahead) < h.news || len(h.retrying) > 0
}

// eviction is a run that its worker is about to lose. The worker loses it when the batch that takes
// the run away is committed. If the store refuses the batch, the worker keeps the run.
type eviction struct {
	pending bool          // the worker learns that it loses the run after the commit of the batch
	wanted  bool          // a worker must get the run afterwards
	run     model.RunID   // the run that the worker loses
	missed  []model.Event // events of the run since begin
	// The slot that the run takes until the worker learns that it loses the run.
	seat seat
}

// begin notes that a worker loses the run when the batch is committed.
func (v *eviction) begin(run model.RunID, s seat) {
	v.seat.leave()
	v.pending, v.run, v.missed, v.seat = true, run, nil, s
}

// cancel notes that the store refused the batch, or that the worker has given up the run by itself.
func (v *eviction) cancel() {
	v.pending, v.wanted = false, false
	v.seat.leave()
}

// finish notes that the batch is committed. It reports whether the run is wanted.
func (v *eviction) finish() (wanted bool) {
	wanted = v.wanted
	v.cancel()
	return wanted
}

// miss keeps events for the worker, in case the worker keeps the run. Events never change, so the
// slice can be shared.
func (v *eviction) miss(run model.RunID, events []model.Event) {
	switch {
	case !v.pending || v.run != run:
	case v.missed == nil:
		v.missed = slices.Clip(events)
	default:
		v.missed = append(v.missed, events...)
	}
}

// stall says why the run of an address does not move.
type stall struct {
	// the run waits for a worker that offers its workflow, see workers.unserved
	worker bool
	room   bool // the run waits for room in memory, see room.line
	slot   bool // the run waits for a slot of a worker, see workers.lines
	// The lane did not dispatch a run that the address may have in the store, because that run is
	// not the current one according to rows that are not committed yet. If the store refuses these
	// rows, the lane dispatches the run (see rollback).
	overlooked bool
	reasons    []model.Reason // what the code waits for, or why it cannot run
	paused     *model.Reason  // why the run was paused when the lane dropped its state
	refused    []WorkerID     // workers that tried the run and could not continue it
	// joined is a worker that has joined since the run was blocked. Its code may be newer, so it
	// gets the run before other workers.
	joined WorkerID
}

// taskBook records what the board and the workers know about the tasks of a run.
type taskBook struct {
	run      model.RunID // the run of these tasks
	posted   postings    // what the lane has told the board
	complete bool        // the board knows the state of each task of the run
	// claims to hand over once their progress has been read
	handing int32
	// claims whose progress arrived while the state of the run was dropped
	unhanded []*Load
	written  map[string]*taskData // data by task, for tasks that write data; nil when none does
	// The tasks whose proposals get a batch of their own, with their runs, see keepApart. It is nil
	// when there are none.
	apart map[string]model.RunID
}

// isExecuting reports whether a worker of this node executes a task of the run.
func (b *taskBook) isExecuting() bool {
	at := func(p posting) bool { return p.held && p.worker != 0 }
	for _, p := range b.posted.many {
		if at(p) {
			return true
		}
	}
	return b.posted.one != nil && at(b.posted.one.posting)
}

// forget drops the parts that belong to the state of the run. The record of what the board knows
// stays.
func (b *taskBook) forget() { b.complete, b.written = false, nil }

// unwarn notes that no worker knows about the cancellation of its task, because the store refused
// the batch with the cancellation.
func (b *taskBook) unwarn() {
	for _, id := range b.posted.ids(nil) {
		p, _ := b.posted.get(id)
		p.warned = false
		b.posted.set(id, p)
	}
}

// quarantine says why the lane isolates an address: the store refuses or cannot read its rows.
type quarantine struct {
	why     *model.Reason  // nil when the address is healthy
	until   model.Time     // when the lane tries the address again
	reports []*reportInput // reports that arrived during the quarantine, see Lane.keep
}
