package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const mailPage = 500

// mailroom receives messages of other shards and requests of other processes.
type mailroom struct {
	pairs   map[[2]model.ShardID]*pair // by (to, from)
	hungry  []*pair                    // may hand on their next message
	inbox   map[model.RunID]struct{}   // requests that have been taken from the inbox and are not committed yet
	served  []model.RunID              // those that were committed while the inbox was being read: the read may still show them
	reading bool
	again   bool // more mail was announced while reading
	more    bool // the last page was full
	aside   aside
}

func newMailroom() mailroom {
	return mailroom{pairs: map[[2]model.ShardID]*pair{}, inbox: map[model.RunID]struct{}{}}
}

// pair is the ordered channel from one shard to another. Its messages take effect one after the other, each exactly once:
// the cursor advances in the commit that consumes them.
type pair struct {
	to, from  model.ShardID
	committed int64 // cursor in the store
	applied   int64 // cursor with all batches that are not committed yet
	sealed    int64 // cursor in the batch in flight
	prev      int64 // cursor before the open batch
	inOpen    bool
	feeding   bool // the head of the queue has been handed to its address and is not applied yet
	queue     []store.MessageRow
}

// pair finds or makes the channel between two shards.
func (l *Lane) pair(to, from model.ShardID) *pair {
	k := [2]model.ShardID{to, from}
	p := l.mail.pairs[k]
	if p == nil {
		at := l.shards[to].received[from]
		p = &pair{to: to, from: from, committed: at, applied: at}
		l.mail.pairs[k] = p
	}
	return p
}

// Messages hands in messages for shards of this lane. What is known already, or does not follow what is, is ignored: the store has it.
func (l *Lane) Messages(rows []store.MessageRow) {
	for _, row := range rows {
		if !l.Owns(row.To) || l.dead != nil {
			continue
		}
		p := l.pair(row.To, row.From)
		switch last := p.applied + int64(len(p.queue)); {
		case row.Seq == last+1:
			p.queue = append(p.queue, row)
			l.mail.hungry = append(l.mail.hungry, p)
		case row.Seq > last+1:
			l.MailWaits()
		}
	}
}

// feed hands the heads of channels to their addresses. The next one follows when it has been applied.
func (l *Lane) feed(now model.Time) {
	for len(l.mail.hungry) > 0 && !l.recovery.careful() {
		p := l.mail.hungry[0]
		l.mail.hungry = l.mail.hungry[1:]
		if p.feeding || len(p.queue) == 0 || !l.Owns(p.to) {
			continue
		}
		head := &p.queue[0]
		if head.Damaged != nil {
			l.mail.aside.pairs = append(l.mail.aside.pairs, p)
			continue
		}
		p.feeding = true
		l.take(now, l.entry(head.Message.To), &input{
			kind: inMessage, address: head.Message.To, message: &head.Message, pair: p, seq: head.Seq,
		})
	}
}

// next reports whether the input is the one that follows in its channel. After a refused batch the same message can be here twice.
func (p *pair) next(in *input) bool { return in.seq == p.applied+1 }

// consume has the open batch advance the cursor over the input.
func (p *pair) consume(l *Lane, in *input) {
	if !p.inOpen {
		p.inOpen, p.prev = true, p.applied
		l.open.pairs = append(l.open.pairs, p)
	}
	p.applied = in.seq
	p.release(l)
}

// release lets the next message of the channel follow.
func (p *pair) release(l *Lane) {
	p.feeding = false
	for len(p.queue) > 0 && p.queue[0].Seq <= p.applied {
		p.queue = p.queue[1:]
	}
	if len(p.queue) > 0 {
		l.mail.hungry = append(l.mail.hungry, p)
	} else {
		p.queue = nil
	}
}

// seal is the advance of the cursor in a batch that is being sealed.
func (p *pair) seal() store.CursorRow {
	p.inOpen, p.sealed = false, p.applied
	return store.CursorRow{To: p.to, From: p.from, Prev: p.prev, Next: p.applied}
}

func (p *pair) commit(l *Lane) {
	p.committed = p.sealed
	if sh := l.shards[p.to]; sh != nil {
		sh.received[p.from] = p.committed
	}
}

// rollback returns to the committed cursor. The kept inputs of the refused batches come back first, in order; what was queued
// behind them is read from the store again.
func (p *pair) rollback() {
	p.applied, p.inOpen = p.committed, false
	p.queue, p.feeding = nil, false
}

// post passes on messages that have just been committed: to shards of this lane directly, to others as a hint.
func (l *Lane) post(out []store.MessageRow) {
	for _, row := range out {
		if l.Owns(row.To) {
			l.Messages([]store.MessageRow{row})
		} else {
			l.out.Mail = append(l.out.Mail, row)
		}
	}
}

// MailWaits tells the lane that there is mail for its shards in the store.
func (l *Lane) MailWaits() {
	if l.mail.reading || l.dead != nil {
		l.mail.again = true
		return
	}
	shards := l.ids(func(s *shard) bool { return !s.freeing }) // those that are given up wait for what claims write
	if len(shards) == 0 {
		return
	}
	l.mail.reading = true
	l.loads.add(&Load{Kind: LoadMail, Shards: shards, Limit: mailPage})
}

func (l *Lane) loadedMail(now model.Time, ld *Load, r LoadResult) {
	l.mail.reading = false
	l.Messages(r.Messages)
	for i := range r.Inbox {
		row := &r.Inbox[i]
		switch sh := l.shards[row.Shard]; {
		case sh == nil || sh.tenure > ld.tenure:
		case row.Damaged != nil:
			l.asideRequest(row)
		default:
			l.request(now, row)
		}
	}
	for _, id := range l.mail.served {
		delete(l.mail.inbox, id)
	}
	l.mail.served = nil
	l.mail.more = len(r.Messages) == ld.Limit || len(r.Inbox) == ld.Limit // read on when some of it has been committed
	if l.mail.again {
		l.mail.again = false
		l.MailWaits()
	}
}

// consumed notes a request whose row has been deleted or put off.
func (m *mailroom) consumed(id model.RunID) {
	if m.reading {
		m.served = append(m.served, id)
	} else {
		delete(m.inbox, id)
	}
}

// request takes a request of another process from the inbox.
func (l *Lane) request(now model.Time, row *store.InboxRow) {
	if _, taken := l.mail.inbox[row.ID]; taken || !l.Owns(row.Shard) && !(l.waitsFor(row.Shard) && row.Message.Kind == model.MessageWrite) {
		return
	}
	e := l.entry(row.Message.To)
	if e == nil {
		return
	}
	l.mail.inbox[row.ID] = struct{}{}
	in := &input{kind: inMessage, address: e.address, message: &row.Message, inbox: row.ID, seen: row.Seen}
	if row.Seen && !in.once() { // else what is remembered is looked up: it may be the answer to another request under the same id
		in.message = &model.Message{Kind: model.MessageNothing, To: row.Message.To}
	}
	l.take(now, e, in)
}

// writeInbox consumes a request of another process and remembers the answer under its id, where that process finds it.
func (l *Lane) writeInbox(b *building, e *entry, in *input, d *core.Decision) {
	b.batch.Inbox = append(b.batch.Inbox, store.InboxKey{Shard: e.shard.id, ID: in.inbox})
	if d.Pending {
		b.effects = append(b.effects, effect{kind: effExpect, entry: e, input: in})
		return
	}
	query := in.message.Kind == model.MessageQuery // its id is used once
	again := in.kind == inAnswered && !query       // is remembered
	switch {
	case in.message.Kind == model.MessageNothing || in.message.RequestID == "":
	case in.misused || d.Misused || !again && !query && temporary(d.Answer.Failure): // the id does not belong to this request; whoever sent it looks for its refusal as well
		if !in.message.Keep { // else nobody waits
			l.remember(b, e, model.RefusedIDs+in.inbox.String(), &d.Answer, nil)
		}
	case !again:
		l.remember(b, e, in.message.RequestID, &d.Answer, in.message.Use())
	}
	if f := d.Answer.Failure; f != nil && in.message.Keep {
		l.bury(b, e, in.message, f)
	}
	if node := in.message.Node; !node.IsZero() && in.message.Kind != model.MessageNothing {
		b.effects = append(b.effects, effect{kind: effHint, hint: Hint{Node: node, Address: e.address, Run: d.Answer.Run}})
		if in.message.Kind == model.MessageWatch && in.message.Name == model.WatchChanges {
			l.addWatcher(e.address, watcher{node: node, until: l.now.Add(watchFor)})
			return
		}
		if in.message.Kind == model.MessageWatch && e.x != nil && e.x.Open() {
			l.awaitFrom(e.address, waiter{node: node, run: in.message.ToRun})
		}
	}
}

// temporary reports whether a refusal is no outcome: there was no room, and the same request may find some later. It is not remembered under the id of the request.
func temporary(f *model.Failure) bool { return f != nil && f.Kind == fault.Exhausted.String() }

// bury keeps a refused request as a dead letter: a row of the inbox that never comes to its turn. One that found no room is tried again.
func (l *Lane) bury(b *building, e *entry, refused *model.Message, why *model.Failure) {
	row := store.InboxRow{Shard: e.shard.id, ID: l.cfg.NewRun(), Message: *refused, NotBefore: model.MaxTime}
	if temporary(why) {
		row.NotBefore = l.now.Add(l.cfg.QuarantineFor)
	} else {
		row.Message.ID = why.Message
	}
	b.batch.Deferred = append(b.batch.Deferred, row)
	b.bytes += row.Message.Size()
}

// remember stores the answer to a request and what the request was, so that a repetition of it changes nothing and another one under its id is refused.
func (l *Lane) remember(b *building, e *entry, id string, a *model.Answer, use *model.Use) {
	key := store.RequestKey{Shard: e.shard.id, Address: e.address, ID: id}
	if _, pending := l.requests[key]; pending {
		return
	}
	l.requests[key] = struct{}{}
	e.remembered++
	kept := *a
	kept.For = use
	body := model.AppendAnswer(nil, &kept)
	b.batch.Requests = append(b.batch.Requests, store.Reply{RequestKey: key, Body: body})
	b.bytes += rowBytes + len(body)
}
