package lane

import (
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A message that cannot be read must not block the messages behind it. The lane moves it to the
// inbox, in the commit that advances the cursor past it (the cursor is the position of the last
// message that one shard has taken from another). So the message is neither lost nor served twice:
//
//   - The lane keeps a message of a newer build unchanged, puts it off and tries it again. It takes
//     effect, once, when a node that can read it owns the shard.
//   - A damaged message becomes a dead letter, where operators find it with the reason.
//
// Only the order is lost: later messages between the same two shards take effect before the message
// that was moved. See docs/guarantees.md.

// setAsideRequest notes a request that cannot be read.
func (l *Lane) setAsideRequest(row *store.InboxRow) {
	if l.mail.isTaken(row.ID) || !l.HasShard(row.Shard) {
		return
	}
	l.mail.take(row.ID)
	l.mail.aside.requests = append(l.mail.aside.requests, *row)
}

// canMoveAside reports whether there is something to move out of the way and no other batch is in
// flight.
func (l *Lane) canMoveAside() bool {
	return !l.mail.aside.empty() && l.flight == nil && !l.recovery.busy() && !l.recovery.careful()
}

// moveAside sends a batch that only moves unreadable messages out of the way. If the store refuses
// this batch, the inputs of healthy addresses are not affected. The batch is committed before the
// open batch (the batch that the lane is filling), so it leaves out each channel whose cursor the
// open batch advances. A channel is the sequence of messages from one shard to another. A channel
// that was left out gets its turn later.
func (l *Lane) moveAside(now model.Time) {
	a := &l.mail.aside
	if !l.canMoveAside() || now < a.until {
		return
	}

	b := &building{}
	full := func() bool { return a.full(b, l.budget.batch) }
	var later []*pair
	for _, p := range a.pairs {
		if p.inOpen && p.isDamaged() || full() {
			later = append(later, p)
			continue
		}
		for !p.feeding && p.isDamaged() && l.HasShard(p.to) && !full() {
			l.setAsideMessage(now, b, p)
		}
	}
	a.pairs = later

	for len(a.requests) > 0 && !full() {
		row := a.requests[0]
		a.requests = a.requests[1:]
		if !l.HasShard(row.Shard) {
			l.mail.untake(row.ID)
			continue
		}
		l.deferAside(now, b, row, true)
		b.requests = append(b.requests, row.ID)
	}

	if !b.empty() {
		l.send(now, b)
	}
}

// setAsideMessage lets a batch move the next message of a channel to the inbox.
func (l *Lane) setAsideMessage(now model.Time, b *building, p *pair) {
	m := &p.queue[0]
	l.deferAside(now, b, store.InboxRow{Shard: p.to, ID: l.cfg.NewRun(), Message: m.Message, Damaged: m.Damaged}, false)
	l.mail.consume(p, b, m.Seq)
}

// deferAside adds a message that cannot be read to the inbox. known says that the inbox already has
// a row of the message. If not, the lane rewrites a damaged message, so that no build can read it
// as a healthy one.
func (l *Lane) deferAside(now model.Time, b *building, row store.InboxRow, known bool) {
	d := row.Damaged
	row.NotBefore = now.Add(l.cfg.QuarantineFor)
	if !d.Newer {
		row.NotBefore = model.MaxTime
		if !known {
			row.Message, row.Damaged = model.SetAside(row.Message.To, d), nil
		}
	}
	b.batch.Deferred = append(b.batch.Deferred, row)
	b.bytes += len(d.Raw)
	b.asides = append(b.asides, Aside{Why: d.Why, Newer: d.Newer, id: row.ID})
}

// finishAside reports the messages that a committed batch has moved out of the way.
func (l *Lane) finishAside(b *building) {
	for _, id := range b.requests {
		l.mail.finish(id)
	}
	l.mail.aside.report(&l.out, b.asides)
}

// refuseAside handles a batch of moveAside that the store refused or never took in time. The lane
// reads the messages again.
func (l *Lane) refuseAside(now model.Time, b *building) {
	for _, id := range b.requests {
		l.mail.untake(id)
	}
	l.mail.aside.refuse(now.Add(l.cfg.QuarantineFor))
}

// nextAsideTry returns when the lane tries again to move messages out of the way.
func (l *Lane) nextAsideTry() model.Time {
	if !l.canMoveAside() {
		return 0
	}
	return max(l.mail.aside.until, 1)
}

// setAsideDamaged moves unreadable items out of a mailbox.
func (l *Lane) setAsideDamaged(now model.Time, e *entry, box []model.MailboxItem) {
	e.actor.damaged = nil
	for i := range box {
		if box[i].Damaged != nil {
			e.actor.damaged = append(e.actor.damaged, box[i])
		}
	}
	if len(e.actor.damaged) > 0 && !e.shard.draining {
		l.take(now, e, &asideInput{inputBase{address: &e.address}})
	}
}

// apply removes the items from the mailbox and keeps them in the inbox, in one commit.
func (in *asideInput) apply(l *Lane, now model.Time, e *entry) {
	items := e.actor.damaged
	e.actor.damaged = nil
	var d core.Decision
	for i := range items {
		d.Taken = append(d.Taken, items[i].Seq)
	}
	l.record(e, in, &d)
	for i := range items {
		l.setAsideItem(now, e, &items[i])
	}
}

// setAsideItem adds an unreadable item of a mailbox to the inbox, in the open batch. A one-way call
// is answered as soon as it is stored in the mailbox, and the store remembers that answer under the
// id of the request. So if a newer build has written the call, setAsideItem removes this id from
// the call. Otherwise a node that can read the call would take the call for a repetition, and drop
// it.
func (l *Lane) setAsideItem(now model.Time, e *entry, it *model.MailboxItem) {
	m, body := it.Message, it.Damaged
	m.To = e.address
	if m.OneWay && body.Newer {
		m.RequestID, body = "", body.WithoutRequestID()
	}
	l.deferAside(now, l.open, store.InboxRow{Shard: e.shard.id, ID: l.cfg.NewRun(), Message: m, Damaged: body}, false)
}

const maxOdd = 100 // rows in wrong places that the lane has reported and remembers

// passOver reports whether a row of a shard names an address of another shard, because the columns
// of the row are damaged. The lane reports such a row once and skips it.
func (l *Lane) passOver(shard model.ShardID, a model.Address, what string) bool {
	if l.cfg.Layout.Shard(a) == shard {
		return false
	}
	why := what + " of shard " + strconv.Itoa(int(shard)) + " names " + a.String() + ", which belongs to another shard"
	if !slices.Contains(l.odd, why) && len(l.odd) < maxOdd {
		l.odd = append(l.odd, why)
		l.out.Aside = append(l.out.Aside, Aside{Why: why})
	}
	return true
}
