package lane

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// LoadKind says what to read.
type LoadKind uint8

// Kinds of reads.
const (
	LoadRun       LoadKind = iota + 1 // the run (Run, or the current one of Address); while it is open with all events and timers
	LoadReply                         // the remembered answer to RequestID of Address
	LoadRunnable                      // a page of runnable runs of Shards behind After
	LoadTimers                        // a page of timers of Shards behind Mark, due until Until
	LoadMail                          // messages for Shards, and inbox rows for Shards and Leaving
	LoadProgress                      // what earlier attempts of Task of Run reported last
	LoadExpired                       // runs of Shards whose time is over: among Limit behind After those that were closed before Before, and those with a time of their own before Until
	LoadLetter                        // the dead letter of Task of Run
	LoadFate                          // what has become of Claim
	LoadWritten                       // how far Task of Run has written, and its states
	LoadEntity                        // the entity Address with its mailbox
	LoadMailbox                       // what waits for the entity Address
	LoadMailboxes                     // a page of the entities of Shards behind Behind for which something waits
)

// Load is a read that the lane asks for.
type Load struct {
	ID        uint64
	Kind      LoadKind
	Shard     model.ShardID
	Shards    []model.ShardID
	Leaving   []model.ShardID // are being given up
	Address   model.Address
	Run       model.RunID
	RequestID string
	Task      string
	Claim     model.ClaimRef
	After     store.RunKey
	Behind    store.EntityKey
	Mark      store.TimerMark
	Until     model.Time
	Before    model.Time
	Limit     int
	Bytes     int // about how many a page of LoadMail has of messages, and of requests

	entry    *entry
	input    *input
	version  int // of the entry when the read was made
	tenure   int // of the lane when the read was made
	begun    int // tenure of the lane when the first page of runnable runs was asked for
	task     *taskInput
	catchUp  bool // timers are read for kinds that are behind
	looked   int  // requests to the address that had been served when a reply was looked for
	attempts int
	at       model.Time // not before
}

// LoadResult is what was read.
type LoadResult struct {
	Execution *store.Execution
	Events    []model.Event
	Timers    []store.Timer
	Reply     *store.Reply
	Runnable  []store.RunHead
	Expired   store.Expired
	Messages  []store.MessageRow
	Inbox     []store.InboxRow
	MoreMail  bool // there may be more messages or requests
	Data      []store.TaskDatum
	Letter    *store.DeadRow
	Fate      core.Fate
	Entity    store.LoadedEntity
	Mailboxes []store.EntityKey
	Print     []byte // of the row of an entity that is to be removed
	Err       error
}

// loads are the reads in flight and those that wait for their turn.
type loads struct {
	next    uint64
	flying  map[uint64]*Load
	waiting []*Load
	delayed []*Load // failed, to be repeated later
}

func newLoads() loads { return loads{flying: map[uint64]*Load{}} }

func (q *loads) idle() bool { return len(q.flying) == 0 && len(q.waiting) == 0 && len(q.delayed) == 0 }

// crowded reports whether so many reads wait that nothing should be begun that needs another.
// The line is kept short: whoever needs a read waits behind all of it.
func (q *loads) crowded(most int) bool { return len(q.waiting) > most }

func (q *loads) add(ld *Load) { q.waiting = append(q.waiting, ld) }

// addFirst is for what everybody else waits for.
func (q *loads) addFirst(ld *Load) { q.waiting = slices.Insert(q.waiting, 0, ld) }

// issue hands out as many reads as may be in flight.
func (q *loads) issue(l *Lane) {
	q.hand(l)
	l.callUp()
}

// hand hands out reads that wait. A run is not read for a worker while there is no room for it.
func (q *loads) hand(l *Lane) {
	for len(q.waiting) > 0 && len(q.flying) < l.cfg.MaxLoads {
		ld := q.waiting[0]
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		if ld.entry != nil && ld.entry.gone {
			continue
		}
		if e := ld.entry; ld.Kind == LoadRun && e.activating && !e.shard.draining {
			if !l.hasRoom() && !l.queueUp(e) {
				continue
			}
			if e.activating {
				l.reserve(e, max(e.weight, l.guess(e)))
			}
		}
		q.next++
		ld.ID, ld.tenure = q.next, l.tenure
		q.flying[ld.ID] = ld
		if ld.entry != nil {
			ld.version = ld.entry.version
		}
		l.out.Loads = append(l.out.Loads, *ld)
	}
	if len(q.waiting) == 0 {
		q.waiting = nil
	}
}

// wake is when a failed read is repeated.
func (q *loads) wake() model.Time {
	var t model.Time
	for _, ld := range q.delayed {
		if t == 0 || ld.at < t {
			t = ld.at
		}
	}
	return t
}

// ripen moves reads whose waiting time is over back into the queue.
func (q *loads) ripen(now model.Time) {
	kept := q.delayed[:0]
	for _, ld := range q.delayed {
		if ld.at <= now {
			q.waiting = append(q.waiting, ld)
		} else {
			kept = append(kept, ld)
		}
	}
	q.delayed = kept
}

// backoff is the pause before attempt n (from 1): 10 ms doubled up to 1 s.
func backoff(n int) time.Duration { return min(10*time.Millisecond<<min(n-1, 10), time.Second) }

// Loaded hands in the result of a read.
func (l *Lane) Loaded(now model.Time, id uint64, r LoadResult) {
	l.now = now
	ld := l.loads.flying[id]
	if ld == nil || l.dead != nil {
		return
	}
	delete(l.loads.flying, id)
	if e := ld.entry; e != nil && ld.Kind == LoadRun {
		l.weigh(e) // what was reserved for it
	}
	if ld.entry != nil && ld.entry.gone {
		return
	}
	if !store.Whole(r.Err) && (!fault.Is(r.Err, fault.Corrupt) || !ld.survives()) {
		ld.attempts++
		ld.at = now.Add(backoff(ld.attempts))
		l.loads.delayed = append(l.loads.delayed, ld)
		return
	}
	switch ld.Kind {
	case LoadRun:
		l.loadedRun(now, ld, r)
	case LoadReply:
		l.loadedReply(ld, r)
	case LoadRunnable:
		l.loadedRunnable(now, ld, r)
	case LoadTimers:
		l.loadedTimers(ld, r)
	case LoadMail:
		l.loadedMail(now, ld, r)
	case LoadProgress:
		l.loadedProgress(ld, r)
	case LoadExpired:
		l.loadedExpired(ld, r.Expired)
	case LoadLetter:
		l.loadedLetter(ld, r)
	case LoadFate:
		l.loadedFate(ld, r)
	case LoadWritten:
		l.loadedWritten(ld, r)
	case LoadEntity:
		l.loadedEntity(now, ld, r)
	case LoadMailbox:
		l.loadedMailbox(ld, r)
	case LoadMailboxes:
		l.loadedMailboxes(now, ld, r)
	}
}

// survives reports whether the lane goes on without what cannot be understood. A run is quarantined, but not while some of it is on its way to
// the store: that would be forgotten. Whoever repeats a request hears that its answer is lost.
// An attempt begins without what the one before it reported, and whoever asks for a dead letter, or writes, hears that it cannot be read. A report whose claim nobody can
// find out about does not count. An entity whose mailbox cannot be read is removed all the same. A page of many addresses is never an error because of one row; see store.Whole.
func (ld *Load) survives() bool {
	switch ld.Kind {
	case LoadReply, LoadProgress, LoadLetter, LoadFate, LoadWritten, LoadMailbox:
		return true
	case LoadRun, LoadEntity:
		return !ld.entry.dirty()
	default:
		return false
	}
}

// loadedRun makes the state of a run from what was read, and hands it to a worker if that is why it was read.
func (l *Lane) loadedRun(now model.Time, ld *Load, r LoadResult) {
	e := ld.entry
	if ld.version != e.version {
		if e.loading || e.activating {
			l.loads.add(ld)
		}
		return
	}
	e.loading, e.due, l.room.tried = false, false, false
	if !e.known && r.Err == nil {
		x, err := recoverRun(r)
		if err != nil {
			r.Err = err
		} else {
			l.setRun(e, x)
			l.postTasks(now, e, queue.Neither)
			l.handOverAgain(e)
		}
	}
	if r.Err != nil {
		e.activating, e.tail = false, nil
		l.quarantine(now, e, model.Unreadable(r.Err))
		return
	}
	switch {
	case !e.activating:
	case r.Execution != nil && r.Execution.Start.Run == e.run():
		l.activateLoaded(now, e, r.Events)
	default: // there is none, or somebody else has gone on with it: we shall hear that we are fenced
		e.activating, e.tail = false, nil
		l.askAgain(e)
	}
	if len(e.backlog) > 0 {
		l.schedule(e)
	} else {
		l.maybeDrop(e)
	}
}

func recoverRun(r LoadResult) (*core.Execution, error) {
	row := r.Execution
	if row == nil {
		return nil, nil
	}
	if row.Outcome.Status.Closed() {
		return &core.Execution{Start: row.Start, Outcome: row.Outcome}, nil
	}
	timers := make([]core.Timer, len(r.Timers))
	for i, t := range r.Timers {
		timers[i] = core.Timer{ID: t.ID, Due: t.Due}
	}
	x, err := core.Recover(row.Start, row.Outcome, r.Events, timers)
	if err != nil {
		return nil, err
	}
	x.Parked, x.Blocked = row.Parked, row.Blocked
	if x.Parked && x.Withheld() == nil {
		x.Heard()
	}
	return x, nil
}

// loadedReply answers a repeated request from memory of the first, or lets it pass.
func (l *Lane) loadedReply(ld *Load, r LoadResult) {
	e := ld.entry
	e.loading = false
	l.loadDue(e)
	ld.input.checked, ld.input.looked = true, ld.looked // the same may be looked for twice, and the older result proves less
	none := r.Reply == nil && r.Err == nil && !ld.input.seen
	var misused *model.Failure
	if r.Reply != nil && r.Err == nil {
		misused = l.misused(ld.input, r.Reply)
	}
	switch {
	case none || len(e.backlog) == 0 || e.backlog[0] != ld.input:
	case misused != nil && ld.input.token == nil:
		l.answerWith(ld.input, &model.Answer{Failure: misused})
		ld.input.misused = true
	case ld.input.message.From.ID != "": // a step waits for the answer, which it is sent
		l.answerWith(ld.input, repeated(r))
	case !ld.input.inbox.IsZero() || ld.input.pair != nil:
		ld.input.message = &model.Message{Kind: model.MessageNothing, To: e.address} // only its row is left, or its place in the channel
		l.hold(ld.input)
	default:
		e.backlog = e.backlog[1:]
		a := Answer{Err: r.Err}
		switch {
		case misused != nil:
			a = Answer{Answer: model.Answer{Failure: misused}}
			a.Err = core.RefusalOf(a.Answer)
		case r.Err == nil:
			a = Remembered(r.Reply)
		}
		a.Token = ld.input.token
		l.reply(ld.input.address, ld.input.awaits, a)
		l.done(ld.input)
	}
	if len(e.backlog) > 0 {
		l.schedule(e)
	} else {
		l.maybeDrop(e)
	}
}

// misused says why a request may not have the id under which an answer is remembered; nil when it may.
func (l *Lane) misused(in *input, r *store.Reply) *model.Failure {
	a, err := model.DecodeAnswer(r.Body)
	if err != nil {
		return nil // whoever asks hears that the answer cannot be read
	}
	return core.MisusedBy(in.message, &a)
}

// answerWith has an input do nothing but tell an answer.
func (l *Lane) answerWith(in *input, a *model.Answer) {
	in.kind, in.answer = inAnswered, a
	l.hold(in)
}

// repeated is what a step hears whose request was served before.
func repeated(r LoadResult) *model.Answer {
	err := r.Err
	if err == nil && r.Reply == nil {
		return &model.Answer{} // it was served; the answer has been forgotten since
	}
	if err == nil {
		a := Remembered(r.Reply)
		if err = a.Err; err == nil || a.Answer.Failure != nil {
			return &a.Answer
		}
	}
	return &model.Answer{Failure: &model.Failure{Kind: fault.KindOf(err).String(), Message: err.Error()}}
}

// Remembered is the answer that was given to a request when it was served.
func Remembered(r *store.Reply) Answer {
	if d := r.Damaged; d != nil {
		return Answer{Err: fault.New(fault.Corrupt, "the answer to request %q of %s: %s", r.ID, r.Address, d.Why)}
	}
	a, err := model.DecodeAnswer(r.Body)
	if err != nil {
		return Answer{Err: fault.New(fault.Corrupt, "the answer to request %q of %s: %w", r.ID, r.Address, err)}
	}
	return Answer{Answer: a, Err: core.RefusalOf(a)}
}

// loadedRunnable dispatches runs of shards that have just become ours, and reads on.
func (l *Lane) loadedRunnable(now model.Time, ld *Load, r LoadResult) {
	for _, h := range r.Runnable {
		if l.misplaced(h.Shard, h.Address, "a run") {
			continue
		}
		if e := l.entry(h.Address); e != nil {
			if e.known && e.run() != h.Run {
				e.overlooked = e.dirty() // else it has gone on in the meantime
				continue
			}
			l.dispatch(now, e)
		}
	}
	if len(r.Runnable) == ld.Limit {
		l.loads.add(&Load{Kind: LoadRunnable, Shards: ld.Shards, After: r.Runnable[len(r.Runnable)-1].RunKey, Limit: ld.Limit, begun: ld.begun})
		return
	}
	for _, id := range ld.Shards {
		if sh := l.shards[id]; sh != nil && sh.tenure == ld.begun {
			sh.listed = true
		}
	}
}
