package lane

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// building is a batch together with the inputs that led to it and with what the lane tells after
// its commit.
type building struct {
	batch   store.Batch
	entries []*entry
	inputs  []input
	effects []effect
	pairs   []*pair // whose cursor advances
	frees   []*shard
	facts   []Fact
	changed map[*entry]int   // where the row of an entity is in the batch; nil when there is none
	data    map[datumKey]int // where the value of a task is in the batch; nil when there is none
	bytes   int
	// confirms says that the batch is committed even if it writes nothing; see Lane.confirm.
	confirms bool

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
	effExpect  // the sender of an update waits for its answer
	effReply   // the code has answered it
	effExecute // a claim is to be handed over
	effStop    // the worker that executes a task has to stop
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
	moot    bool // the worker has let go before, because it reported something
	hint    Hint
	turn    *model.Turn
	// or a request id: of effReply; of effAnswer and effAwait, one whose remembered answer is no
	// longer needed
	step    string
	message *messageInput // of effExpect and effBegin
	report  *reportInput  // of effSettled

	task     *handover // of effExecute and effStop
	canceled bool
	err      error
	again    bool // of effGone: the current run may be another one

	change *core.EntityChange // of effEntity
}

func (b *building) rows() int { return b.batch.Rows() + len(b.effects)/4 }

// empty reports whether there is nothing to commit.
func (b *building) empty() bool {
	return !b.confirms && b.batch.Empty() && len(b.pairs) == 0 && len(b.frees) == 0 && !slices.ContainsFunc(b.entries, func(e *entry) bool { return e.pending.mark != nil })
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

// relabel adds the changes of labels among events that a run records, or has from its past. The
// start row keeps the labels that the run began with, because a reset to an earlier place needs
// them.
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

// changeEntity puts the change of a row into the batch. Several in one batch are one write.
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

	// The entity came and went in one batch, so there is nothing to write.
	b.batch.Entities = slices.Delete(b.batch.Entities, i, i+1)
	delete(b.changed, e)
	for other, at := range b.changed {
		if at > i {
			b.changed[other] = at - 1
		}
	}
}

// changeMailbox puts new and consumed items into the batch. An item that came and went in one batch
// is no write.
func (b *building) changeMailbox(key store.EntityKey, d *core.Decision) {
	for _, seq := range d.Taken {
		if i := slices.IndexFunc(b.batch.Mailbox, func(r store.MailboxRow) bool { return r.Item.Seq == seq && r.EntityKey == key }); i >= 0 {
			b.batch.Mailbox = slices.Delete(b.batch.Mailbox, i, i+1)
		} else {
			b.batch.Taken = append(b.batch.Taken, store.MailboxKey{EntityKey: key, Seq: seq})
		}
	}
	for i := range d.Mailbox {
		b.batch.Mailbox = append(b.batch.Mailbox, store.MailboxRow{EntityKey: key, Item: d.Mailbox[i]})
	}
}

// datumKey is what a batch has one row for.
type datumKey struct {
	store.RunKey
	task, name string
}

// putDatum adds a value of a task. The last value of a name counts, because a store takes each name
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

// dropFacts takes back the facts of a start that was none.
func (b *building) dropFacts(run model.RunID) {
	b.facts = slices.DeleteFunc(b.facts, func(f Fact) bool { return f.Run == run })
}

// reserve raises the mark of a shard if the entity, as a decision leaves it, has a token above it.
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
	// reserveAhead is how far ahead of the clock tokens are reserved. While locks are granted, the
	// lane writes one row per shard and minute.
	reserveAhead = time.Minute
	// reserveMore is how many tokens are reserved when tokens are ahead of the clock and count up
	// by one.
	reserveMore = 1 << 16
)
