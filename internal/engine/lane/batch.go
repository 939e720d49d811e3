package lane

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// building is a batch with everything that hangs on it: the inputs that led to it and what is to be told after its commit.
type building struct {
	batch   store.Batch
	entries []*entry
	inputs  []*input
	effects []effect
	pairs   []*pair // whose cursor advances
	frees   []*shard
	facts   []Fact
	changed map[*entry]int   // where the row of an entity is in the batch; nil when there is none
	data    map[datumKey]int // where the value of a task is in the batch; nil when there is none
	bytes   int

	proposals int           // of the board that were applied one per batch; see Lane.apart
	requests  []model.RunID // rows of the inbox that are moved out of the way; see aside.go
	asides    []Aside       // what is moved out of the way
}

type effectKind uint8

const (
	effAnswer effectKind = iota + 1
	effAwait
	effDeliver
	effActivate
	effClosed
	effEvict
	effGone    // a run was removed by force
	effBlocked // the worker has let go by itself; only a refused batch has something to do about it
	effLimit   // a run has reached a limit
	effHint
	effWaits
	effRetry
	effBegins  // the start time of a run has come
	effExpect  // whoever sent an update waits for its answer
	effReply   // the code has answered it
	effExecute // a claim is to be handed over
	effStop    // the worker that executes a task is told to come to an end
	effSettled // a worker hears that its report counts, or does not
	effEntity  // what is known of an entity is durable
	effBegin   // a brief call of another process may be made
	effNoted   // suspects may be made
)

// effect is something to be told once the batch is durable.
type effect struct {
	kind    effectKind
	entry   *entry
	run     model.RunID
	events  []model.Event
	outcome *model.Outcome
	answer  Answer
	awaits  bool // the answer ends a wait
	call    Call
	heard   bool // the worker has let go before, because it reported something
	hint    Hint
	turn    *model.Turn
	step    string // or the id of a request, of effReply; of effAnswer and effAwait, the one that nobody needs any longer
	input   *input // of effExpect

	task     *taskInput // of effExecute, effStop and effSettled
	canceled bool
	err      error
	again    bool // of effGone: the current run may be another one

	change *core.EntityChange // of effEntity
}

// newBuilding is an empty batch. Its memory is used again: what is handed out points to other memory.
func (l *Lane) newBuilding() *building {
	if b := l.spare; b != nil {
		l.spare = nil
		return b
	}
	return &building{}
}

// reuse keeps the memory of a batch that has been dealt with.
func (l *Lane) reuse(b *building) {
	t := &b.batch
	clear(b.entries)
	clear(b.effects)
	clear(b.pairs)
	clear(b.facts)
	clear(t.Starts)
	clear(t.Closes)
	clear(t.Events)
	clear(t.Messages)
	l.acked.reuse(t.Forgets)
	*b = building{
		entries: b.entries[:0], effects: b.effects[:0], pairs: b.pairs[:0], facts: b.facts[:0],
		batch: store.Batch{Deletes: t.Deletes[:0], Starts: t.Starts[:0], Closes: t.Closes[:0], Events: t.Events[:0], Messages: t.Messages[:0]},
	}
	l.spare = b
}

func (b *building) rows() int { return b.batch.Rows() + len(b.effects)/4 }

// empty reports whether there is nothing to commit.
func (b *building) empty() bool {
	return b.batch.Empty() && len(b.pairs) == 0 && len(b.frees) == 0 && !slices.ContainsFunc(b.entries, func(e *entry) bool { return e.mark != nil })
}

// touch notes that the entry has something in the batch.
func (l *Lane) touch(b *building, e *entry) {
	if b == l.open && !e.inOpen {
		e.inOpen = true
		b.entries = append(b.entries, e)
	}
}

// unstartTimer takes back a timer that was started in this very batch.
func (b *building) unstartTimer(run model.RunID, id string) bool {
	for i := len(b.batch.Timers) - 1; i >= 0; i-- {
		if t := &b.batch.Timers[i]; t.Run == run && t.ID == id {
			b.batch.Timers = slices.Delete(b.batch.Timers, i, i+1)
			return true
		}
	}
	return false
}

// relabel adds the changes of labels among events that a run records, or has from its past: its start keeps the labels that it began with, which a
// reset to an earlier place needs.
func (b *building) relabel(key store.RunKey, events []model.Event) {
	for i := range events {
		if e := &events[i]; e.Kind == model.EventLabeled {
			b.label(key, model.Label{Name: e.Name, Value: string(e.Output.Data)})
		}
	}
}

// label adds the change of a label. The last one in a batch counts.
func (b *building) label(key store.RunKey, l model.Label) {
	for i := range b.batch.Labels {
		if r := &b.batch.Labels[i]; r.RunKey == key && r.Label.Name == l.Name {
			r.Label.Value = l.Value
			return
		}
	}
	b.batch.Labels = append(b.batch.Labels, store.LabelRow{RunKey: key, Label: l})
}

// seal closes the open batch and hands it out for commit, if none is in flight.
func (l *Lane) seal(now model.Time) {
	if l.flight != nil || l.recovery.busy() {
		return
	}
	b := l.open
	l.forgetAcknowledged(b)
	if b.empty() {
		if len(b.effects) > 0 || len(b.inputs) > 0 {
			// What was written has cancelled out; the rest depends on nothing that is still to be committed.
			l.open = l.newBuilding()
			l.told(b, false)
			l.settle(b)
			for _, e := range b.entries {
				e.inOpen, e.served = false, 0
			}
			l.run(now, b)
		}
		return
	}
	b.batch.Lane, b.batch.Number, b.batch.At = l.cfg.Ref, l.number+1, now
	b.batch.Bytes, b.batch.Patience = b.bytes, l.recovery.patience
	for i := range b.batch.Requests {
		b.batch.Requests[i].At = now // its age: without one it would be swept at once, and a repetition would take effect again
	}
	for _, e := range b.entries {
		e.inOpen, e.inFlight, e.served = false, true, 0
		if e.mark != nil {
			b.batch.Marks = append(b.batch.Marks, store.MarkRow{
				RunKey: e.key(), Parked: e.mark.Parked, Waits: e.mark.Waits, Blocked: e.mark.Blocked,
			})
			e.mark = nil
		}
	}
	l.numberMessages(b)
	for _, p := range b.pairs {
		b.batch.Cursors = append(b.batch.Cursors, p.seal())
	}
	for _, s := range b.frees {
		b.batch.Free = append(b.batch.Free, s.id)
	}
	l.flight, l.open = b, l.newBuilding()
	l.out.Commit = &b.batch
}

// numberMessages gives every message its place in the sequence of its pair of shards. It happens at the last moment, so that
// a batch that is refused leaves no gap.
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

func compareAddresses(x, y model.Address) int {
	return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.Type, y.Type), cmp.Compare(x.Key, y.Key))
}

func compareEntries(x, y *entry) int {
	return cmp.Or(cmp.Compare(x.shard.id, y.shard.id), compareAddresses(x.address, y.address))
}

// settle lets go of the inputs of a batch that has been dealt with.
func (l *Lane) settle(b *building) {
	for _, in := range b.inputs {
		l.unhold(in)
		l.retention.removed += len(in.runs)
		l.retention.ended(in)
	}
	b.inputs = nil
}

// committed makes the facts of a batch known to the rest of the lane and tells everybody (L2).
func (l *Lane) committed(now model.Time, b *building) {
	l.number = b.batch.Number
	l.flight = nil
	l.reserved(b.batch.Tokens)
	l.told(b, true)
	for _, in := range b.inputs {
		if !in.inbox.IsZero() {
			l.mail.consumed(in.inbox)
		}
	}
	l.settle(b)
	l.asideLanded(b)
	for i := range b.batch.Messages {
		row := &b.batch.Messages[i]
		l.shards[row.From].sent[row.To] = row.Seq
	}
	for _, p := range b.pairs {
		p.commit(l)
	}
	for i := range b.batch.Timers {
		l.timers.add(&b.batch.Timers[i])
	}
	for i := range b.batch.Requests {
		delete(l.requests, b.batch.Requests[i].RequestKey)
	}
	if l.mail.more && len(b.batch.Inbox)+len(b.batch.Deferred)+len(b.batch.Cursors)+len(b.batch.Free) > 0 {
		l.mail.more = false
		l.MailWaits()
	}
	for _, e := range b.entries {
		e.inFlight = false
		l.removed(e)
	}
	l.run(now, b)
	if len(l.watchers) > 0 {
		for _, e := range b.entries {
			l.tellWatchers(now, e.address)
		}
	}
	for _, s := range b.frees {
		l.freed(s)
	}
	l.post(b.batch.Messages)
	l.reuse(b)
}

// run tells what a batch has to tell, in order.
func (l *Lane) run(now model.Time, b *building) {
	l.room.tried = false
	for i := range b.effects {
		f := &b.effects[i]
		switch f.kind {
		case effAnswer:
			l.reply(f.entry.address, f.awaits, f.answer)
			if f.step != "" {
				l.acked.told(f.entry, f.step)
			}
		case effAwait:
			l.awaits(f.entry, f.answer.Token, true)
			if f.step != "" {
				l.acked.told(f.entry, f.step)
			}
		case effDeliver:
			l.deliver(now, f.entry, f.run, f.events)
		case effActivate:
			l.activateFresh(now, f.entry, f.run)
		case effClosed:
			l.tellWaiters(f.entry.address, f.run, f.outcome)
		case effEvict:
			if !f.heard {
				l.out.Calls = append(l.out.Calls, f.call)
			}
			f.entry.evicting = false
			if f.entry.wanted {
				f.entry.wanted = false
				l.dispatch(now, f.entry)
			}
		case effWaits:
			l.heard(now, f.entry, f.turn)
		case effRetry:
			l.wakeForRetry(now, f.entry, f.run, f.step)
		case effBegins:
			if f.entry.run() == f.run {
				l.dispatch(now, f.entry)
			}
		case effExpect:
			l.expect(f.entry, f.input)
		case effReply:
			if l.tellReply(f.entry.address, f.step, f.answer) {
				l.acked.told(f.entry, f.step)
			}
		case effExecute:
			l.handOver(f.entry, f)
		case effStop, effSettled:
			l.tellTask(f)
		case effBegin:
			l.begin(now, f.entry, f.input.message)
		case effNoted:
			l.noted(now, f.entry)
		case effEntity:
			f.entry.actor.committed(f.change)
		case effGone:
			l.tellGone(now, f.entry, f.again)
		case effBlocked:
		case effLimit:
			l.tellLimit(f.entry.address, f.err)
		case effHint:
			l.out.Hints = append(l.out.Hints, f.hint)
		}
	}
	for _, e := range b.entries {
		if e.isEntity() {
			l.viewsDue(now, e)
		}
		l.maybeDrop(e)
		if len(e.backlog) > 0 {
			l.schedule(e)
		}
	}
}
