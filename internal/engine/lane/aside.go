package lane

import (
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A message that cannot be read must not keep those behind it waiting. The lane moves it to the inbox, as it stands, in the commit that advances the cursor past it, so it is
// neither lost nor served twice:
//
//   - One that a newer build has written is put off and tried again. It takes effect, once, when a node that can read it owns the shard.
//   - One that is damaged becomes a dead letter: people find it there with the reason.
//
// What is lost is the order: messages of the same pair of shards that were sent after it take effect before it. See docs/guarantees.md.

// Aside tells that a row cannot be read and was moved out of the way.
type Aside struct {
	// Why names the row and what is wrong with it.
	Why string
	// Newer tells that it is tried again, until a newer build owns the shard.
	Newer bool

	id model.RunID // of its row in the inbox
}

// aside is what the mailroom has to move out of the way.
type aside struct {
	pairs    []*pair          // whose next message cannot be read
	requests []store.InboxRow // that cannot be read
	told     map[model.RunID]struct{}
	alone    bool       // several were refused together: they go one by one
	until    model.Time // when the next try is due after a refusal; zero when there was none
}

const maxAsideTold = 10_000 // requests of newer builds that were told of and are not told of again

// asideRequest takes note of a request that cannot be read.
func (l *Lane) asideRequest(row *store.InboxRow) {
	if _, taken := l.mail.inbox[row.ID]; taken || !l.Owns(row.Shard) {
		return
	}
	l.mail.inbox[row.ID] = struct{}{}
	l.mail.aside.requests = append(l.mail.aside.requests, *row)
}

// moveAside sends a batch that moves what cannot be read out of the way, and does nothing else: should it be refused, nobody else suffers. It goes before the batch that
// fills, so only channels take part of which that batch has nothing.
func (l *Lane) moveAside(now model.Time) {
	a := &l.mail.aside
	if len(a.pairs)+len(a.requests) == 0 || l.flight != nil || l.recovery.busy() || l.recovery.careful() || now < a.until {
		return
	}
	open := l.open
	l.open = &building{}
	b := l.open
	full := func() bool {
		return len(b.batch.Deferred) >= mailPage || b.bytes >= l.batchBytes || a.alone && len(b.batch.Deferred) > 0
	}
	var later []*pair
	for _, p := range a.pairs {
		if p.inOpen && p.damaged() || full() {
			later = append(later, p)
			continue
		}
		for !p.feeding && p.damaged() && l.Owns(p.to) && !full() {
			l.asideMessage(now, p)
		}
	}
	a.pairs = later
	for len(a.requests) > 0 && !full() {
		row := a.requests[0]
		a.requests = a.requests[1:]
		if !l.Owns(row.Shard) {
			delete(l.mail.inbox, row.ID)
			continue
		}
		l.deferAside(now, row.Shard, row.ID, row.Message, row.Damaged, true)
		b.requests = append(b.requests, row.ID)
	}
	if !b.empty() {
		l.seal(now)
	}
	l.open, l.spare = open, l.open
}

// damaged reports whether the next message of the channel cannot be read.
func (p *pair) damaged() bool { return len(p.queue) > 0 && p.queue[0].Damaged != nil }

// dropAside forgets what was to be moved of a shard that is not ours any more: its next owner reads it again.
func (l *Lane) dropAside(id model.ShardID) {
	a := &l.mail.aside
	a.pairs = slices.DeleteFunc(a.pairs, func(p *pair) bool { return p.to == id })
	a.requests = slices.DeleteFunc(a.requests, func(r store.InboxRow) bool {
		if r.Shard == id {
			delete(l.mail.inbox, r.ID)
		}
		return r.Shard == id
	})
}

// asideMessage has the open batch move the next message of a channel to the inbox.
func (l *Lane) asideMessage(now model.Time, p *pair) {
	m := &p.queue[0]
	l.deferAside(now, p.to, l.cfg.NewRun(), m.Message, m.Damaged, false)
	p.consume(l, &input{pair: p, seq: m.Seq})
}

// deferAside has the open batch keep a message that cannot be read. known tells that the inbox has a row of it.
func (l *Lane) deferAside(now model.Time, shard model.ShardID, id model.RunID, m model.Message, d *model.Damaged, known bool) {
	row := store.InboxRow{Shard: shard, ID: id, Message: m, Damaged: d, NotBefore: now.Add(l.cfg.QuarantineFor)}
	if !d.Newer {
		row.NotBefore = model.MaxTime
		if !known {
			row.Message, row.Damaged = model.SetAside(m.To, d), nil // so that nobody takes it for one that can be read
		}
	}
	b := l.open
	b.batch.Deferred = append(b.batch.Deferred, row)
	b.bytes += len(d.Raw)
	b.asides = append(b.asides, Aside{Why: d.Why, Newer: d.Newer, id: id})
}

// asideLanded tells what a batch has moved out of the way.
func (l *Lane) asideLanded(b *building) {
	for _, id := range b.requests {
		l.mail.consumed(id)
	}
	a := &l.mail.aside
	for _, m := range b.asides {
		if _, told := a.told[m.id]; told {
			continue
		}
		l.out.Aside = append(l.out.Aside, m)
		if m.Newer && len(a.told) < maxAsideTold {
			if a.told == nil {
				a.told = map[model.RunID]struct{}{}
			}
			a.told[m.id] = struct{}{}
		}
	}
	if len(b.asides) > 0 {
		a.until = 0
		if len(a.requests) == 0 && !slices.ContainsFunc(a.pairs, (*pair).damaged) {
			a.alone = false // the next ones may go together again
		}
	}
}

// asideRefused deals with a refused batch that moves what cannot be read: the next ones move one at a time, and after a pause. What was to be moved is read again.
func (l *Lane) asideRefused(now model.Time, b *building) {
	a := &l.mail.aside
	for _, id := range b.requests {
		delete(l.mail.inbox, id)
	}
	if a.alone {
		a.until = now.Add(l.cfg.QuarantineFor)
	}
	a.alone = true
}

// asideWake is when the next try is due.
func (l *Lane) asideWake() model.Time {
	a := &l.mail.aside
	if len(a.pairs)+len(a.requests) == 0 || l.flight != nil || l.recovery.busy() || l.recovery.careful() {
		return 0
	}
	return max(a.until, 1)
}

// asideDue has items of a mailbox moved out of the way that cannot be read.
func (l *Lane) asideDue(now model.Time, e *entry, box []model.MailboxItem) {
	e.actor.damaged = nil
	for i := range box {
		if box[i].Damaged != nil {
			e.actor.damaged = append(e.actor.damaged, box[i])
		}
	}
	if len(e.actor.damaged) > 0 && !e.shard.draining {
		l.take(now, e, &input{kind: inAside, address: e.address})
	}
}

// applyAside moves items of a mailbox to the inbox that cannot be read. Whatever else waits for the entity goes on.
func (l *Lane) applyAside(now model.Time, e *entry, in *input) {
	items := e.actor.damaged
	e.actor.damaged = nil
	var d core.Decision
	for i := range items {
		d.Taken = append(d.Taken, items[i].Seq)
	}
	l.record(e, in, &d)
	for i := range items {
		l.asideItem(now, e, &items[i])
	}
}

// asideItem has the open batch keep an item of a mailbox that cannot be read.
func (l *Lane) asideItem(now model.Time, e *entry, it *model.MailboxItem) {
	m, body := it.Message, it.Damaged
	m.To = e.address
	if m.OneWay && body.Newer { // whoever sent it was answered when it was stored
		m.RequestID, body = "", body.WithoutRequestID()
	}
	l.deferAside(now, e.shard.id, l.cfg.NewRun(), m, body, false)
}

// misplaced reports whether a row names an address that does not belong to its shard: its columns are damaged. It is told of once, and passed over.
func (l *Lane) misplaced(shard model.ShardID, a model.Address, what string) bool {
	if a.Shard(l.cfg.Shards) == shard {
		return false
	}
	if why := what + " of shard " + strconv.Itoa(int(shard)) + " names " + a.String() + ", which belongs to another shard"; !slices.Contains(l.odd, why) && len(l.odd) < maxOdd {
		l.odd = append(l.odd, why)
		l.out.Aside = append(l.out.Aside, Aside{Why: why})
	}
	return true
}

const maxOdd = 100 // rows in wrong places that were told of
