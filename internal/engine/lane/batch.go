package lane

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// building is a batch together with its inputs and with the effects that the lane runs after its
// commit.
type building struct {
	batch    store.Batch
	entries  []*entry
	inputs   []input
	outgoing []outgoing // messages of the input that is being applied, see passOn
	effects  []effect
	pairs    []*pair // channels whose cursor advances
	frees    []*shard
	facts    []Fact
	trail    []written        // what the decisions have written, in order
	marked   []*model.Address // the addresses of batch.Marks, in the same order
	changed  map[*entry]int   // index of the row of an entity in the batch; nil when there is none
	data     map[datumKey]int // index of the value of a task in the batch; nil when there is none
	bytes    int
	// confirms says that the batch is committed even if it writes nothing; see Lane.confirm.
	confirms bool

	requests []model.RunID // inbox rows that the batch moves out of the way; see aside.go
	asides   []Aside       // messages that the batch moves out of the way

	// ahead has the hand-overs of calls that the batch stores and that workers already run, and
	// previews has the runs whose workers have a preview of the batch and have not answered it.
	// until says how long the batch waits for these workers, and last how long it may wait for
	// workers in all; see ahead.go and preview.go.
	ahead       []*job
	previews    []*entry
	until, last model.Time
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
	effBlocked // the worker has given up the run by itself
	effTaken   // the lane has applied a turn that recorded no event
	effLimit   // a run has reached a limit
	effHint
	effWaits
	effRetry
	effBegins  // the start time of a run has been reached
	effExpect  // the sender of an update or a call waits for the answer
	effReply   // the code has answered an update or a call
	effExecute // a claim can be handed to its worker
	effStop    // the worker that executes a task must stop
	effSettled // a worker learns whether its report is accepted
	effEntity  // the state of an entity is durable
	effBegin   // the row of a call is stored, so the call may run; see beginCall
	effNoted   // the note about suspects is stored, so they may run; see suspect.go
)

// effect is something that the lane does once the batch is durable.
type effect struct {
	kind    effectKind
	entry   *entry
	run     model.RunID
	events  []model.Event
	outcome *model.Outcome
	answer  Answer
	awaits  bool // the answer ends the wait of a caller
	call    Call
	// The lane has dropped a turn of the worker, so the worker loses the run even if the store
	// refuses the batch.
	moot bool
	hint Hint
	turn *model.Turn
	// The id of a step, or a request id: for effReply the request that is answered, for effAnswer
	// and effAwait the request whose remembered answer is no longer needed.
	step    string
	message *messageInput // of effExpect and effBegin
	report  *reportInput  // of effSettled

	task     *handover // of effExecute and effStop
	canceled bool
	err      error
	again    bool // of effGone: another run may be the current one

	change *core.EntityChange // of effEntity
}

func (b *building) rows() int { return b.batch.Rows() + len(b.effects)/4 }

// empty reports whether there is nothing to commit.
func (b *building) empty() bool {
	return !b.confirms && b.batch.Empty() && len(b.outgoing) == 0 && len(b.pairs) == 0 && len(b.frees) == 0 && !slices.ContainsFunc(b.entries, func(e *entry) bool { return e.pending.mark != nil })
}

// unstartTimer removes a timer that was started in this same batch.
func (b *building) unstartTimer(run model.RunID, id string) bool {
	for i := len(b.batch.Timers) - 1; i >= 0; i-- {
		if t := &b.batch.Timers[i]; t.Run == run && t.ID == id {
			b.batch.Timers = slices.Delete(b.batch.Timers, i, i+1)
			return true
		}
	}
	return false
}

// relabel looks for label changes in the events that a run records or inherits, and adds them to
// the batch. The start row keeps the labels that the run started with, because a reset to an
// earlier position needs them.
func (b *building) relabel(key store.RunKey, events []model.Event) {
	for i := range events {
		if e := &events[i]; e.Kind == model.EventLabeled {
			b.label(key, model.Label{Name: e.Name, Value: string(e.Output.Data)})
		}
	}
}

// label adds the change of a label. The last change in a batch wins.
func (b *building) label(key store.RunKey, l model.Label) {
	for i := range b.batch.Labels {
		if r := &b.batch.Labels[i]; r.RunKey == key && r.Label.Name == l.Name {
			r.Label.Value = l.Value
			return
		}
	}
	b.batch.Labels = append(b.batch.Labels, store.LabelRow{RunKey: key, Label: l})
}

// changeEntity puts the change of an entity's row into the batch. Several changes become one write.
func (b *building) changeEntity(e *entry, c *core.EntityChange) {
	row := store.EntityRow{Shard: e.shard.id, Entity: c.Entity, Prev: c.Prev, Gone: c.Gone}
	b.bytes += c.Entity.Size()

	i, ok := b.changed[e]
	if !ok {
		if b.changed == nil {
			b.changed = map[*entry]int{}
		}
		b.changed[e] = len(b.batch.Entities)
		b.batch.Entities = append(b.batch.Entities, row)
		return
	}

	// The entity has a row in this batch already, which the new one replaces.
	old := &b.batch.Entities[i]
	b.bytes -= old.Entity.Size()
	row.Prev = old.Prev
	if row.Prev != 0 || !row.Gone {
		*old = row
		return
	}

	// The entity was created and deleted in one batch, so there is nothing to write.
	b.batch.Entities = slices.Delete(b.batch.Entities, i, i+1)
	delete(b.changed, e)
	for other, at := range b.changed {
		if at > i {
			b.changed[other] = at - 1
		}
	}
}

// changeMailbox puts new and consumed items into the batch. An item that was added and consumed in
// one batch needs no write. An item that was added and changed keeps its place.
func (b *building) changeMailbox(key store.EntityKey, d *core.Decision) {
	var changed []int64
	for _, seq := range d.Taken {
		i := slices.IndexFunc(b.batch.Mailbox, func(r store.MailboxRow) bool { return r.Item.Seq == seq && r.EntityKey == key })
		if i < 0 {
			b.batch.Taken = append(b.batch.Taken, store.MailboxKey{EntityKey: key, Seq: seq})
			continue
		}
		if j := slices.IndexFunc(d.Mailbox, func(it model.MailboxItem) bool { return it.Seq == seq }); j >= 0 {
			b.batch.Mailbox[i].Item = d.Mailbox[j]
			changed = append(changed, seq)
			continue
		}
		b.batch.Mailbox = slices.Delete(b.batch.Mailbox, i, i+1)
	}
	for i := range d.Mailbox {
		if !slices.Contains(changed, d.Mailbox[i].Seq) {
			b.batch.Mailbox = append(b.batch.Mailbox, store.MailboxRow{EntityKey: key, Item: d.Mailbox[i]})
		}
	}
}

// datumKey identifies a value of a task. A batch has one row per key.
type datumKey struct {
	store.RunKey
	task, name string
}

// putDatum adds a value of a task. The last value of a name wins, because a store takes each name
// once per batch.
func (b *building) putDatum(row store.TaskDatum) {
	key := datumKey{row.RunKey, row.Task, row.Name}
	b.bytes += rowBytes + row.Value.Size()
	if i, ok := b.data[key]; ok {
		b.bytes -= rowBytes + b.batch.TaskData[i].Value.Size()
		b.batch.TaskData[i] = row
		return
	}
	if b.data == nil {
		b.data = map[datumKey]int{}
	}
	b.data[key] = len(b.batch.TaskData)
	b.batch.TaskData = append(b.batch.TaskData, row)
}

// dropFacts removes the facts of a start that found an existing run.
func (b *building) dropFacts(run model.RunID) {
	b.facts = slices.DeleteFunc(b.facts, func(f Fact) bool { return f.Run == run })
}

// The token mark of a shard is a stored number, and no committed token of the shard is above it. If
// a decision gives an entity a token above the mark, reserve raises the mark in the same batch.
func (b *building) reserve(sh *shard, row *model.Entity) {
	t, token := &sh.tokens, row.Epoch
	t.last = max(t.last, token)
	if token <= t.reserved {
		return
	}
	mark := store.TokenMark{Shard: sh.id, Mark: max(int64(row.Held.Add(reserveAhead)), token+reserveMore)}
	for i := range b.batch.Tokens {
		if row := &b.batch.Tokens[i]; row.Shard == sh.id {
			row.Mark = max(row.Mark, mark.Mark)
			return
		}
	}
	b.batch.Tokens = append(b.batch.Tokens, mark)
}

const (
	// reserveAhead is how far ahead of the clock the lane reserves tokens. While the lane grants
	// locks, it writes one row per shard and minute.
	reserveAhead = time.Minute
	// reserveMore is how many tokens the lane reserves when the tokens are ahead of the clock. In
	// that case each token is the last one plus one.
	reserveMore = 1 << 16
)
