package sim

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// What must hold for locks: an entity has one holder, and a section that has received its lock
// keeps the lock until it releases it (L22, L24, L29). A section asks the entities one after the
// other, in an order that is the same for all sections (L25), and entities grant in the order of
// the requests (L27). The fencing tokens grow (L37). Between grant and release the entity runs only
// calls of the section, and it runs them only then (L24, L36). The commit that ends a section, or
// its run, releases everything that the section asked for (L28, L32).

// Asks of a section: the lock, the time-out of the lock, two calls with a pause in between, and its
// end.
const (
	askLock = iota
	askLate
	askFirst
	askSecond
	askUnlock
	askNap
)

// drawSection makes a block that locks some accounts and calls one or two of them. Then it releases
// them, or leaves the release to the end of the run.
func (s *Sim) drawSection(b *block, root bool, within int64) {
	for range 1 + s.pick(4) {
		b.locks = append(b.locks, accountAddress(s.pick(s.plan.accounts)))
	}
	b.wait = within
	b.nap = oneOf(s, 0, s.between(0, 5*millisecond), s.between(0, 150*millisecond))
	b.together, b.keeps, b.tidy = s.chance(0.3), s.chance(0.15), s.chance(0.5)
	for i := range b.deeds {
		b.targets[i] = oneOf(s, b.locks...)
		b.names[i], b.deeds[i] = s.newDeed(root)
	}
	b.deeds[1].amount = -b.deeds[0].amount // a transfer, if both are additions
	if b.targets[0] == b.targets[1] {
		b.together = false // one at a time
	}
}

// inSection continues a section as far as it can. It reports whether the program continues after
// it.
func (m *machine) inSection(b *block, as *[maxAsks]ask) bool {
	if !as[askLock].done {
		return b.wait > 0 && as[askLate].done
	}
	if as[askLate].asked && !as[askLate].done {
		as[askLate].gone = true // it has the locks
	}
	as[askFirst].asked = true
	if b.together {
		as[askSecond].asked = true
	}
	if !as[askFirst].done {
		return false
	}

	if b.nap > 0 && !as[askNap].asked {
		as[askNap].asked, as[askNap].timer = true, m.last+model.Time(b.nap)
	}
	if as[askNap].asked && !as[askNap].done {
		return false
	}
	as[askSecond].asked = true
	if !as[askSecond].done {
		return false
	}

	// the following blocks may need the same accounts
	as[askUnlock].asked = !b.keeps || m.pc+1 < len(m.p.blocks)
	return true
}

// leaveSection abandons the open requests of a section when the program leaves it for another
// reason.
func (m *machine) leaveSection(b *block, as *[maxAsks]ask) {
	if as[askLock].done && b.tidy {
		as[askUnlock].asked = true
	}
	for i := range as {
		if a := &as[i]; a.asked && !a.done && i != askUnlock {
			a.gone = true
		}
	}
}

// askSection adds what a section asks for.
//
//arch:parameters as hold.ask, with the block
func (h *hold) askSection(m *machine, blk *block, b, a int, x *ask, add func(mk mark, event bool, c model.Command)) {
	section := m.p.ids[b][askLock]
	switch {
	case a == askLock && !x.recorded && !x.gone:
		add(markStarted, true, model.Command{Kind: model.CommandLock, Event: model.Event{Kind: model.EventLockAsked, Locks: blk.locks}})
	case (a == askFirst || a == askSecond) && !x.recorded && !x.gone:
		i := a - askFirst
		d := blk.deeds[i]
		d.id = follows(sendID(m.start.Run, b), m.p.ids[b][a])
		msg := model.Message{Kind: model.MessageCall, To: blk.targets[i], Name: blk.names[i], Input: d.input()}
		add(markStarted, true, model.Command{Kind: model.CommandSend, Message: &msg, Event: model.Event{Name: msg.Name, Target: msg.To, Section: section}})
	case a == askUnlock && !x.recorded:
		add(markStarted, true, model.Command{Kind: model.CommandUnlock, Event: model.Event{Kind: model.EventUnlocked, Section: section}})
	}
}

// locking is a section in the ledger.
type locking struct {
	locks   []model.Address
	granted int
	over    bool
}

// asked returns the entities that hold a lock for the section, or may grant one.
func (x *locking) asked() []model.Address { return x.locks[:min(x.granted+1, len(x.locks))] }

func sends(b *store.Batch, kind model.MessageKind, to model.Address, from model.Link) bool {
	return slices.ContainsFunc(b.Messages, func(r store.MessageRow) bool {
		return r.Message.Kind == kind && r.Message.To == to && r.Message.From == from
	})
}

// lockAsked records the start of a section.
func (l *ledger) lockAsked(b *store.Batch, r *run, e *model.Event) {
	if r.sections == nil {
		r.sections = map[string]*locking{}
	}
	if r.sections[e.ID] != nil {
		l.fail("L23: section %s of %s begins twice", e.ID, r.id)
	}

	for i := range e.Locks[1:] {
		if e.Locks[i].Key >= e.Locks[i+1].Key {
			l.fail("L25: section %s of %s locks %s before %s", e.ID, r.id, e.Locks[i].Key, e.Locks[i+1].Key)
		}
	}

	r.sections[e.ID] = &locking{locks: e.Locks}
	if !sends(b, model.MessageLock, e.Locks[0], r.link(e.ID)) {
		l.fail("L29: section %s of %s asks for nothing", e.ID, r.id)
	}
	l.s.did(opLockAsked)
}

func (r *run) link(id string) model.Link {
	return model.Link{Address: r.address.name, Run: r.id, ID: id}
}

// lockGranted checks that a section holds the lock that its history grants.
func (l *ledger) lockGranted(b *store.Batch, r *run, e *model.Event) {
	x := r.sections[e.ID]
	if x == nil || x.over || x.granted == len(x.locks) || x.locks[x.granted] != e.Target {
		l.fail("L23: section %s of %s is granted %s, which it does not wait for", e.ID, r.id, e.Target)
	}
	n := l.holdingOf(e.Target)
	if (n.row.Holder != r.link(e.ID) || n.row.Epoch != e.Ref) && n.forced < e.Ref {
		l.fail("L22: section %s of %s has %s, which %s of %s holds", e.ID, r.id, e.Target, n.row.Holder.ID, short(n.row.Holder.Run))
	}
	x.granted++
	l.s.did(opLockGranted)
	if x.granted == len(x.locks) {
		l.s.did(opLocked)
	} else if !sends(b, model.MessageLock, x.locks[x.granted], r.link(e.ID)) {
		l.fail("L29: section %s of %s has %d of its locks and does not ask for the next", e.ID, r.id, x.granted)
	}
}

// sectionOver checks that the commit that ends a section releases all its locks.
func (l *ledger) sectionOver(b *store.Batch, r *run, id string) {
	x := r.sections[id]
	if x == nil || x.over {
		return
	}
	x.over = true
	for _, a := range x.asked() {
		if !sends(b, model.MessageRelease, a, r.link(id)) {
			l.fail("L28: section %s of %s is over and does not let go of %s", id, r.id, a)
		}
	}
	if x.granted < len(x.locks) {
		l.s.did(opLockWithdrawn)
	}
}

// sectionsOver checks the sections of a run that ends.
func (l *ledger) sectionsOver(b *store.Batch, r *run) {
	for id, x := range r.sections {
		if !x.over {
			l.s.did(opLockOutlived)
			l.sectionOver(b, r, id)
		}
	}
}

// locked checks which section holds an entity after a batch, and which calls the batch applied.
// before is the row of the entity before the batch.
//
//arch:parameters all that a check of one batch compares
func (l *ledger) locked(b *store.Batch, n *holding, before *model.Entity, t *traces, taken []model.MailboxItem) {
	name := n.address.name
	had := map[int64]model.Link{}
	if before.Locked() {
		had[before.Epoch] = before.Holder
	}

	for i := range b.Messages {
		if m := &b.Messages[i].Message; m.Kind == model.MessageGrant && m.From.Address == name {
			l.grants(b, n, m, taken)
			had[m.Epoch] = n.owner
		}
	}

	if n.row.Locked() && (n.row.Holder != n.owner || n.row.Epoch != n.epoch) {
		l.fail("L22: %s is locked by %s of %s, which was not told", name, n.row.Holder.ID, short(n.row.Holder.Run))
	}
	freed := before.Locked() && (n.row.Holder != before.Holder || n.row.Epoch != before.Epoch)

	for epoch, section := range had {
		if n.row.Locked() && n.row.Epoch == epoch || l.released[lockOf{section, name}] {
			continue
		}
		if !l.s.unlocking(name) {
			l.fail("L30: %s is taken from %s of %s, which has not let go of it", name, section.ID, short(section.Run))
		}
		n.forced = max(n.forced, epoch)
	}

	plain := false
	for _, id := range t.applied {
		switch d := l.doings[id]; {
		case d.section == "":
			plain = true
			if before.Locked() && !freed {
				l.fail("L24: deed %x is applied to %s while %s of %s holds it", id, name, before.Holder.ID, short(before.Holder.Run))
			}
		case plain || before.Holder != (model.Link{Address: d.link.Address, Run: d.link.Run, ID: d.section}):
			l.fail("L24: deed %x is applied to %s, which its section %s does not hold", id, name, d.section)
		default:
			l.s.did(opDeedLocked)
		}
	}
}

// lockOf is the lock of a section on an entity.
type lockOf struct {
	section model.Link
	entity  model.Address
}

// grants checks a grant: its epoch is larger than all before it, and everything that arrived before
// its request has been handled.
func (l *ledger) grants(b *store.Batch, n *holding, m *model.Message, taken []model.MailboxItem) {
	section := model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}
	if m.Epoch == n.epoch && section == n.owner {
		return // a repeated request
	}
	if m.Epoch <= n.epoch {
		l.fail("L37: %s is granted with epoch %d after %d", n.address.name, m.Epoch, n.epoch)
	}
	n.epoch, n.owner = m.Epoch, section

	asked := int64(-1)
	for i := range taken {
		if it := &taken[i]; it.Message.Kind == model.MessageLock && it.Message.From == section {
			asked = it.Seq
		}
	}

	for i := range n.box {
		it := &n.box[i]
		fresh := slices.ContainsFunc(b.Mailbox, func(r store.MailboxRow) bool { return r.Address == n.address.name && r.Item.Seq == it.Seq })
		view := it.Message.Kind == model.MessageCall && it.Message.Name == doRead
		if before := asked < 0 && !fresh || it.Seq < asked; before && !view && it.Message.Section == "" {
			l.fail("L27: %s is granted to %s of %s while a %s waits that came before", n.address.name, m.ID, short(m.ToRun), it.Message.Kind)
		}
	}

	l.s.did(opGranted)
}

// lockArrived checks that a message about a lock has had its effect.
func (l *ledger) lockArrived(b *store.Batch, n *holding, m *model.Message) {
	waits := slices.ContainsFunc(n.box, func(it model.MailboxItem) bool {
		return it.Message.Kind == model.MessageLock && it.Message.From == m.From
	})
	holds := n.row.Locked() && n.row.Holder == m.From
	switch {
	case n.address.sick: // a quarantine delays messages, so a later request may be first
	case m.Kind == model.MessageRelease && (waits || holds):
		l.fail("L32: %s of %s has let go of %s, and holds it (%v) or waits for it (%v)", m.From.ID, short(m.From.Run), m.To, holds, waits)
	case m.Kind == model.MessageLock && !waits && !holds && !l.released[lockOf{m.From, m.To}] && n.owner != m.From:
		l.fail("L29: %s of %s has asked for %s, and neither holds it nor waits", m.From.ID, short(m.From.Run), m.To)
	}
}

// grantArrived checks that a section records the grant of its lock, or gives the lock back.
func (l *ledger) grantArrived(b *store.Batch, m *model.Message) {
	section := model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}
	if l.released[lockOf{section, m.From.Address}] {
		return
	}
	if r := l.runs[m.ToRun]; r != nil && r.open() && r.sections[m.ID] != nil {
		if x := r.sections[m.ID]; !x.over && slices.Contains(x.locks[:x.granted], m.From.Address) {
			return
		}
	}
	l.fail("L29: %s was granted to %s of %s, who does not know of it and has not given it back", m.From.Address, m.ID, short(m.ToRun))
}

// unlocking reports whether an operator has tried to unlock an entity.
func (s *Sim) unlocking(a model.Address) bool {
	return slices.ContainsFunc(s.ops, func(o *op) bool { return o.message.Kind == model.MessageUnlock && o.message.To == a && o.tries > 0 })
}
