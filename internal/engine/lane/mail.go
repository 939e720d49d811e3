package lane

import (
	"slices"

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
	bytes   int                        // of the messages in all channels
	reading bool
	again   bool          // mail was announced while the lane was reading, or had no room for it
	more    bool          // there may be mail behind the last page
	turn    model.ShardID // the next page begins with the messages for this shard
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
	queue     []queued
}

// queued is a message that waits in its channel.
type queued struct {
	store.MessageRow
	bytes int // that count for it in mailroom.bytes
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

// Messages hands in messages for shards of this lane. The lane ignores what it knows already, what does not follow what it
// knows, and what it has no room for: the store has it.
func (l *Lane) Messages(rows []store.MessageRow) {
	for _, row := range rows {
		if !l.Owns(row.To) || l.dead != nil {
			continue
		}
		p := l.pair(row.To, row.From)
		switch last := p.applied + int64(len(p.queue)); {
		case row.Seq == last+1 && l.mail.bytes >= l.cfg.MaxMail:
			l.mail.again = true
		case row.Seq == last+1:
			p.push(l, row)
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
		fed := &struct { // its own copy: the channel lets go of the message when it has been applied
			input
			message model.Message
		}{message: head.Message}
		fed.input = input{kind: inMessage, address: head.Message.To, message: &fed.message, pair: p, seq: head.Seq}
		l.take(now, l.entry(head.Message.To), &fed.input)
	}
}

// push adds a message to the end of the channel.
func (p *pair) push(l *Lane, row store.MessageRow) {
	n := rowBytes + row.Message.Size()
	if row.Damaged != nil {
		n += len(row.Damaged.Raw)
	}
	p.queue = append(p.queue, queued{row, n})
	l.mail.bytes += n
}

// pop lets go of the first message of the channel.
func (p *pair) pop(l *Lane) {
	l.mail.bytes -= p.queue[0].bytes
	p.queue[0] = queued{}
	p.queue = p.queue[1:]
}

// clear lets go of all messages of the channel: the store has them.
func (p *pair) clear(l *Lane) {
	for len(p.queue) > 0 {
		p.pop(l)
	}
	p.queue = nil
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
		p.pop(l)
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
func (p *pair) rollback(l *Lane) {
	p.applied, p.inOpen, p.feeding = p.committed, false, false
	p.clear(l)
}

// dropMail lets go of messages for a shard that is given up: its next owner reads them.
func (l *Lane) dropMail(id model.ShardID) {
	for k, p := range l.mail.pairs {
		if k[0] == id {
			p.clear(l)
		}
	}
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

// MailWaits tells the lane that there is mail for its shards in the store. The lane reads it when it has room for it.
func (l *Lane) MailWaits() {
	if l.mail.reading || l.dead != nil || l.mailFull() {
		l.mail.again = true
		return
	}
	shards := l.serving()
	leaving := l.ids(func(s *shard) bool { return s.draining && !s.freeing }) // they wait for what claims write
	if len(shards)+len(leaving) == 0 {
		return
	}
	l.mail.reading = true
	shards, passed := l.mail.fromTurn(shards)
	leaving = append(leaving, passed...) // only their requests are read
	// Queries that wait for an answer stay in the inbox, before what is to be read.
	l.loads.add(&Load{Kind: LoadMail, Shards: shards, Leaving: leaving, Limit: mailPage, Bytes: l.mailBytes() + l.foreign.bytes})
}

// fromTurn parts the shards into those whose messages are read now and those that have had
// their turn. A page begins with the lowest shard, so a shard that always has a page full of
// messages would keep messages of higher shards from being read.
func (m *mailroom) fromTurn(shards []model.ShardID) (now, passed []model.ShardID) {
	i, _ := slices.BinarySearch(shards, m.turn)
	if i == len(shards) {
		m.turn, i = 0, 0
	}
	return shards[i:], shards[:i]
}

// takeTurns decides with which shard the next page begins, behind a page of messages. It
// reports whether the lane has to read the messages for the lower shards before it knows that
// there are none.
func (m *mailroom) takeTurns(rows []store.MessageRow, more bool) (again bool) {
	if more && len(rows) > 0 {
		m.turn = rows[len(rows)-1].To + 1
		return false
	}
	again = m.turn > 0
	m.turn = 0
	return again
}

// mailBytes is how many bytes a page of messages has, and a page of requests.
func (l *Lane) mailBytes() int { return l.cfg.MaxMail / 4 }

// mailFull reports whether the lane reads no mail for now. What it has takes effect without anything that mail could bring,
// so there is room again later.
func (l *Lane) mailFull() bool { return l.mail.bytes >= l.cfg.MaxMail || l.bytes >= l.cfg.MaxBytes }

// MailHeld is the number of bytes of messages of other shards that wait in memory.
func (l *Lane) MailHeld() int { return l.mail.bytes }

// readOn reads mail for which there was no room.
func (l *Lane) readOn() {
	if l.mail.again && !l.mail.reading && !l.mailFull() {
		l.mail.again = false
		l.MailWaits()
	}
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
	l.mail.more = r.MoreMail // read on when some of it has been committed
	if l.mail.takeTurns(r.Messages, r.MoreMail) {
		l.mail.again = true
	}
	l.readOn()
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
	case in.misused || d.Misused || in.told && in.requests() || !again && !query && temporary(d.Answer.Failure): // the id does not belong to this request; whoever sent it looks for its refusal as well
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

// temporary reports whether a refusal is no outcome: there was no room, or the code of the run goes on, and the same request may
// succeed later. It is not remembered under the id of the request.
func temporary(f *model.Failure) bool {
	return f != nil && (f.Kind == fault.Exhausted.String() || f.Type == model.FailureBusy)
}

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
