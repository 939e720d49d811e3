package lane

import (
	"strings"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// entry is an address that the lane has something to do with. It leaves memory as soon as it is idle.
type entry struct {
	address model.Address
	shard   *shard
	x       *core.Execution // current run; nil when the address has none, or before it has been read
	known   bool            // x is right, be it nil
	version int             // counts how often the state was dropped or read for a worker: what was read for an older one is out of date

	// starting is set while a start that assumed the address to be unused waits for its commit; other inputs wait behind it.
	starting bool
	// removing is set while runs of an address are removed whose current run was not known, or an entity is; no input is applied before the commit. It ends with the batch
	// and with nothing else.
	removing bool
	fresh    bool // the run begins in a batch that is not committed yet; it is handed to a worker then
	loading  bool // the run is being read, or something else that has to be known first
	due      bool // the run is to be read after that

	inOpen, inFlight bool // has rows or answers in that batch
	mark             *core.Mark
	served           int // inputs applied in the open batch
	backlog          []*input
	queued           bool // is in Lane.backlog

	worker     WorkerID    // 0 when nobody holds the run
	held       model.RunID // the run that the worker holds, also while its state is being read again
	gen        uint64
	busy       bool          // the worker may be running a step, or may be about to
	news       int64         // position of the last event that it has to answer with a turn
	retrying   []string      // steps that it was told to run again, until it reports what came of it
	withheld   bool          // there are events that it was not told, because the run is to leave it
	evicting   bool          // the worker hears of it when the batch is committed
	leaves     model.RunID   // the run that it is to let go of then
	missed     []model.Event // what came for it meanwhile: it is told after all when the batch is refused
	wanted     bool          // is to be handed to a worker after that
	resuming   int           // resumes that are not committed: nobody may go on before
	told       int64         // position of the last event that the worker was given
	activating bool          // the history is being read for a worker
	tail       []model.Event
	read       *[]model.Event // has been read, and waits for what is on its way to the store
	unserved   bool           // waits for a worker to offer its workflow
	inLine     bool           // waits for room in memory
	overlooked bool           // a page has shown another run that can go on
	weight     int            // bytes of the room that it takes
	bare       bool           // it has been read, and has no tasks
	asleep     *model.Reason  // why it was paused when its state was dropped
	waits      []model.Reason
	queries    []*query // asked of its code and not answered

	tasks    postings // what the board has been told of tasks of tasksOf
	tasksOf  model.RunID
	posted   bool                // the board knows how each of them stands
	gone     bool                // it has left memory; whoever still has it changes nothing
	handing  int                 // claims that are to be handed over, whose progress is being read
	unhanded []*Load             // those of them whose progress came while the run was forgotten
	reports  []*input            // that came while it was quarantined
	written  map[string]*written // by task, of those that write; nil when none does
	actor    *actor              // of an entity or a service; nil for all others

	remembered  int           // requests that were served
	poison      *model.Reason // quarantined
	poisonUntil model.Time
}

func (e *entry) run() model.RunID {
	if e.x == nil {
		return model.RunID{}
	}
	return e.x.Start.Run
}

// paused reports whether nobody may continue the run, as far as is known: somebody has paused it, or its start time has not come.
func (e *entry) paused() bool {
	return e.known && e.x != nil && (e.x.Withheld() != nil || e.resuming > 0)
}

// isTask reports whether the address is that of a task which stands alone: no code runs for it.
func (e *entry) isTask() bool { return strings.HasPrefix(e.address.Type, model.TaskPrefix) }

func (e *entry) key() store.RunKey { return store.RunKey{Shard: e.shard.id, Run: e.run()} }

func (e *entry) dirty() bool { return e.inOpen || e.inFlight }

// entry finds or makes the entry of an address; nil when its shard is not ours.
func (l *Lane) entry(a model.Address) *entry {
	if e, ok := l.entries[a]; ok {
		return e
	}
	sh, ok := l.shards[a.Shard(l.cfg.Shards)]
	if !ok {
		return nil
	}
	e := &entry{address: a, shard: sh}
	if a.IsEntity() {
		e.actor = &actor{}
	}
	l.entries[a] = e
	sh.entries[e] = struct{}{}
	return e
}

// setRun makes x the current run of the entry.
func (l *Lane) setRun(e *entry, x *core.Execution) {
	e.x, e.known, e.posted, e.written, e.bare, e.asleep = x, true, false, nil, false, nil
}

// forget drops what is known of the run; it will be read again. What is on its way to the store stays on its way.
func (l *Lane) forget(e *entry) {
	e.x, e.known, e.starting, e.fresh, e.mark, e.resuming, e.posted, e.written = nil, false, false, false, nil, 0, false, nil
	e.overlooked = false
	e.version++
	if e.isEntity() {
		l.forgetEntity(e)
	}
}

// maybeDrop lets an idle entry go, unless kept inputs may be about to be applied to it.
func (l *Lane) maybeDrop(e *entry) {
	if l.recovery.careful() || e.dirty() || e.worker != 0 || e.activating || e.loading || len(e.backlog) > 0 || e.queued || e.poison != nil ||
		e.resuming > 0 || // it is handed over when that is told
		e.tasks.len() > 0 || e.recalled() {
		return
	}
	if e.unserved || e.inLine {
		l.slim(e)
		return
	}
	if e.isEntity() && e.actor.stays() {
		return
	}
	l.askAgain(e) // nobody would answer
	l.drop(e)
}

func (l *Lane) drop(e *entry) {
	if !e.gone {
		delete(l.entries, e.address)
		e.gone = true
	}
	delete(e.shard.entries, e)
	if e.isEntity() {
		l.wakeUp(e)
		l.weighMail(e)
	}
	if e.tasks.len() > 0 {
		l.unpost(l.now, e)
	}
}

// ring is a queue of entries, served in turn.
type ring struct{ items []*entry }

func (r *ring) len() int { return len(r.items) }

func (r *ring) push(e *entry) {
	if !e.queued {
		e.queued = true
		r.items = append(r.items, e)
	}
}

// take empties the queue.
func (r *ring) take() []*entry {
	items := r.items
	r.items = nil
	for _, e := range items {
		e.queued = false
	}
	return items
}
