package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// pair finds or creates the channel between two shards.
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

// Messages passes messages for shards of this lane to the lane. The lane ignores a message that it
// knows already, a message behind a gap in its channel, and a message that it has no room for. It
// reads the last two kinds from the store later.
func (l *Lane) Messages(rows []store.MessageRow) {
	for _, row := range rows {
		if !l.HasShard(row.To) || l.dead != nil {
			continue
		}
		p := l.pair(row.To, row.From)
		switch next := p.nextSeq(); {
		case row.Seq == next && l.mail.bytes >= l.cfg.MaxMail:
			l.mail.announce(row.To, true)
			l.mail.again = true
		case row.Seq == next:
			l.mail.push(p, row)
		case row.Seq > next:
			l.MailWaitsFor(row.To)
		}
	}
}

// feed gives the first message of each channel to its address. The next message of a channel
// follows after the first has been applied.
func (l *Lane) feed(now model.Time) {
	for !l.recovery.careful() {
		p := l.mail.nextHungry()
		if p == nil {
			return
		}
		if !l.HasShard(p.to) {
			continue
		}
		head := &p.queue[0]
		if head.Damaged != nil {
			l.mail.aside.pairs = append(l.mail.aside.pairs, p)
			continue
		}

		// The input has its own copy, because the channel drops the message when it is applied.
		p.feeding = true
		fed := &struct {
			messageInput
			message model.Message
		}{message: head.Message}
		fed.address, fed.origin = &fed.message.To, source{message: &fed.message, pair: p, seq: head.Seq}
		l.take(now, l.entry(head.Message.To), &fed.messageInput)
	}
}

// post passes on messages that have just been committed. Shards of this lane get them directly.
// Other lanes get them as a hint.
func (l *Lane) post(out []store.MessageRow) {
	for _, row := range out {
		if l.HasShard(row.To) {
			l.Messages([]store.MessageRow{row})
		} else {
			l.out.Mail = append(l.out.Mail, row)
		}
	}
}

// MailWaits tells the lane that the store may have mail (messages of other shards, and requests of
// other processes) for any shard of this lane. The lane reads the mail when it has room.
func (l *Lane) MailWaits() {
	l.mail.announced.all = true
	l.readMail()
}

// MailWaitsFor does the same as MailWaits, for the mail of one shard. The read is cheaper, because
// the store looks only at the shards with news.
func (l *Lane) MailWaitsFor(shard model.ShardID) {
	l.mail.announce(shard, true)
	l.readMail()
}

// RequestsWait does the same as MailWaits, for the requests to one shard.
func (l *Lane) RequestsWait(shard model.ShardID) {
	l.mail.announce(shard, false)
	l.readMail()
}

// readMail reads the announced mail, or notes that the lane has to read it later.
func (l *Lane) readMail() {
	if l.mail.reading || l.dead != nil || l.mailFull() {
		l.mail.again = true
		return
	}
	news := l.mail.takeAnnounced()
	shards := slices.DeleteFunc(l.servedShards(), func(id model.ShardID) bool { return !news.messages(id) })
	// A shard that the lane is giving up still needs data that claims write, so the lane reads its
	// mail too.
	leaving := l.shardIDs(func(s *shard) bool { return !s.freeing && news.any(s.id) && (s.draining || !news.messages(s.id)) })
	if len(shards)+len(leaving) == 0 {
		return
	}

	// Unanswered queries stay in the inbox, in front of new requests, so the page may be larger by
	// their bytes.
	l.mail.beginRead(l.requests)
	l.mail.started = map[model.Address]struct{}{}
	for _, b := range [...]*building{l.flight, l.open} {
		if b != nil {
			for i := range b.batch.Starts {
				l.mail.noteStart(b.batch.Starts[i].Start.Address)
			}
		}
	}
	if news.all {
		var passed []model.ShardID
		shards, passed = l.mail.fromTurn(shards)
		leaving = append(leaving, passed...) // of these shards the lane reads only requests
	}
	l.loads.add(&Load{Kind: LoadMail, all: news.all, Shards: shards, Leaving: leaving, Limit: mailPage, Bytes: l.mailBytes() + l.questions.foreign.bytes})
}

// mailBytes returns how many bytes a page of messages, or of requests, may have.
func (l *Lane) mailBytes() int { return l.cfg.MaxMail / 4 }

// mailFull reports whether the lane has no room for mail. The mail in memory takes effect even if
// the lane reads no further mail, so there is room again later.
func (l *Lane) mailFull() bool {
	return l.mail.bytes >= l.cfg.MaxMail || l.budget.used >= l.cfg.MaxBytes
}

// MailHeld returns the bytes of messages of other shards that wait in memory.
func (l *Lane) MailHeld() int { return l.mail.bytes }

// readOn reads mail that had no room before.
func (l *Lane) readOn() {
	if l.mail.again && !l.mail.reading && !l.mailFull() {
		l.mail.again = false
		l.readMail()
	}
}

// acceptMail takes a page of mail into memory. The next read of mail begins after this page,
// because the mailroom notes what a read may have missed for only one read at a time.
func (l *Lane) acceptMail(now model.Time, ld *Load, r LoadResult) {
	l.Messages(r.Messages)
	for i := range r.Inbox {
		row := &r.Inbox[i]
		switch sh := l.shards[row.Shard]; {
		// The lane has lost or acquired the shard since the read began.
		case sh == nil || sh.tenure > ld.tenure:
		case row.Damaged != nil:
			l.setAsideRequest(row)
		default:
			l.request(now, row)
		}
	}

	l.mail.endRead(r.MoreMail)
	if ld.all && l.mail.takeTurns(r.Messages, r.MoreMail) {
		l.mail.announced.all, l.mail.again = true, true
	}
	l.readOn()
}

// request takes a request of another process from the inbox.
func (l *Lane) request(now model.Time, row *store.InboxRow) {
	if l.mail.isTaken(row.ID) || !l.HasShard(row.Shard) && !(l.isWaitingFor(row.Shard) && row.Message.Kind == model.MessageWrite) {
		return
	}
	e := l.entry(row.Message.To)
	if e == nil {
		return
	}

	l.mail.take(row.ID)
	if l.isVacant(e, row) {
		l.setRun(e, nil)
	}
	if !row.Message.Linked.IsZero() {
		l.lost.add(now, takeLink(&row.Message))
	}
	in := &messageInput{
		inputBase: inputBase{address: &e.address},
		origin:    source{message: &row.Message, inbox: row.ID},
		lookup:    lookup{seen: row.Seen},
	}
	if _, answered := l.mail.answered[store.RequestKey{Shard: row.Shard, Address: e.address, ID: row.Message.RequestID}]; !row.Seen && !answered {
		// The read of this row has also looked for a remembered answer.
		in.lookup.checked, in.lookup.served = true, e.remembered
	}
	// If the store remembers an answer under the id, the lane looks the answer up, because it may
	// belong to another request with the same id. A query needs no lookup (see once): the lane only
	// consumes its row.
	if row.Seen && !in.once() {
		in.origin.message = &model.Message{Kind: model.MessageNothing, To: row.Message.To}
	}
	l.take(now, e, in)
}

// isVacant reports whether the lane learns from an inbox row that the address of a start has no
// run. The read of the row does not show starts that the lane had not committed before that read.
func (l *Lane) isVacant(e *entry, row *store.InboxRow) bool {
	_, started := l.mail.started[e.address]
	return row.Vacant && row.Message.Kind == model.MessageStart && !e.isEntity() && !e.known && !started && !e.reading.active && !e.reading.history &&
		e.quarantine.why == nil && e.hold.free() && !e.dirty() && !l.recovery.careful()
}

// writeInbox consumes a request of another process and stores the answer under the request id,
// where the other process finds it.
func (l *Lane) writeInbox(b *building, e *entry, in input, d *core.Decision) {
	from := in.source()
	m := from.message
	b.batch.Inbox = append(b.batch.Inbox, store.InboxKey{Shard: e.shard.id, ID: from.inbox})
	if d.Pending {
		b.effects = append(b.effects, effect{kind: effExpect, entry: e, message: in.(*messageInput)})
		return
	}

	answered, known := in.(*answerInput)
	sent, isMessage := in.(*messageInput)
	query := m.Kind == model.MessageQuery // the id of a query is used only once
	again := known && !query              // the answer is remembered already

	// The lane refuses a signal for a quarantined run. It checks whether the run is quarantined
	// now: if an earlier quarantine has ended, the signal takes effect like any other.
	quarantined := isMessage && sent.isRequest() && e.quarantine.why != nil

	switch {
	case m.Kind == model.MessageNothing || m.RequestID == "":
	// The refusal must not be stored under the request id, because the id belongs to another
	// request, or because the same request may succeed later. The sender finds the refusal under
	// the id of its inbox row.
	case known && answered.misused || d.Misused || quarantined || !again && !query && isTemporary(d.Answer.Failure):
		if !m.Keep { // with Keep, no caller waits
			l.remember(b, e, model.RefusedIDs+from.inbox.String(), useFor(&d.Answer, nil))
		}
	case !again:
		l.remember(b, e, m.RequestID, useFor(&d.Answer, m.Use()))
	}

	if f := d.Answer.Failure; f != nil && m.Keep {
		l.keepRefused(b, e, m, f)
	}

	node := m.Node
	if node.IsZero() || m.Kind == model.MessageNothing {
		return
	}
	open := e.x != nil && e.x.Open()
	if m.Watches && open && !known && d.Answer.Failure == nil {
		// The caller of the start waits for the end of this run. Its process gets only one hint, at
		// the end of the run, and then also finds the answer to the start.
		l.waiters.addNode(l.now, e.address, waiter{node: node, run: d.Answer.Run})
		return
	}

	// Notify the other process that there is an answer.
	b.effects = append(b.effects, effect{kind: effHint, hint: Hint{Node: node, Address: e.address, Run: d.Answer.Run}})
	switch {
	case m.Kind == model.MessageWatch && m.Name == model.WatchChanges:
		l.watchers.addNode(l.now, e.address, node)
	case m.Kind == model.MessageWatch && open:
		l.waiters.addNode(l.now, e.address, waiter{node: node, run: m.ToRun})
	}
}

// keepRefused keeps a refused request as a dead letter: an inbox row that is never due. If a
// request found no room, the lane tries it again instead.
func (l *Lane) keepRefused(b *building, e *entry, refused *model.Message, why *model.Failure) {
	row := store.InboxRow{Shard: e.shard.id, ID: l.cfg.NewRun(), Message: *refused, NotBefore: model.MaxTime}
	if isTemporary(why) {
		row.NotBefore = l.now.Add(l.cfg.QuarantineFor)
	} else {
		row.Message.ID = why.Message
	}
	b.batch.Deferred = append(b.batch.Deferred, row)
	b.bytes += row.Message.Size()
}

// remember stores the answer to a request together with the request. So a repetition changes
// nothing, and another request with the same id is refused.
func (l *Lane) remember(b *building, e *entry, id string, a model.Answer) {
	key := store.RequestKey{Shard: e.shard.id, Address: e.address, ID: id}
	if _, pending := l.requests[key]; pending {
		return
	}
	l.requests[key] = struct{}{}
	l.mail.noteAnswer(key)
	e.remembered++
	l.eras.serve(id)
	body := model.AppendAnswer(nil, &a)
	b.batch.Requests = append(b.batch.Requests, store.Reply{RequestKey: key, Body: body})
	b.bytes += rowBytes + len(body)
}

// useFor returns an answer together with the request that it answers.
func useFor(a *model.Answer, use *model.Use) model.Answer {
	kept := *a
	kept.For = use
	return kept
}
