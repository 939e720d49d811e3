package oracle

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// A section is the part of workflow code that holds locks of entities. The rules are: an entity has
// at most one holder, and a section that has received a lock keeps the lock until the section
// releases it (L22, L24, L29). A section asks the entities one after the other, in an order that is
// the same for all sections (L25), and entities grant in the order of the requests (L27). The
// fencing tokens grow (L37). Between the grant and the release of its lock, the entity runs only
// calls of the section, and it runs calls of the section at no other time (L24, L36). The commit
// that ends a section, or its run, releases everything that the section asked for (L28, L32).

// locking is a section in the ledger.
type locking struct {
	locks   []model.Address
	granted int
	over    bool
}

// asked returns the entities that have granted a lock to the section, and the next entity, which
// may also have granted its lock.
func (x *locking) asked() []model.Address { return x.locks[:min(x.granted+1, len(x.locks))] }

func sends(b *store.Batch, kind model.MessageKind, to model.Address, from model.Link) bool {
	return sendsAny(b, func(m *model.Message) bool { return m.Kind == kind && m.To == to && m.From == from })
}

// lockAsked records the start of a section.
func (l *ledger) lockAsked(b *store.Batch, r *Run, e *model.Event) {
	if r.sections == nil {
		r.sections = map[string]*locking{}
	}
	if r.sections[e.ID] != nil {
		l.Fail("L23: section %s of %s begins twice", e.ID, r.ID)
	}

	for i := range e.Locks[1:] {
		if e.Locks[i].Key >= e.Locks[i+1].Key {
			l.Fail("L25: section %s of %s locks %s before %s", e.ID, r.ID, e.Locks[i].Key, e.Locks[i+1].Key)
		}
	}

	r.sections[e.ID] = &locking{locks: e.Locks}
	if !sends(b, model.MessageLock, e.Locks[0], r.link(e.ID)) {
		l.Fail("L29: section %s of %s asks for nothing", e.ID, r.ID)
	}
	l.s.Did(scenario.OpLockAsked)
}

func (r *Run) link(id string) model.Link {
	return model.Link{Address: r.Address.Name, Run: r.ID, ID: id}
}

// lockGranted checks an event that says that a lock was granted to a section. The section must hold
// that lock.
func (l *ledger) lockGranted(b *store.Batch, r *Run, e *model.Event) {
	x := r.sections[e.ID]
	if x == nil || x.over || x.granted == len(x.locks) || x.locks[x.granted] != e.Target {
		l.Fail("L23: section %s of %s is granted %s, which it does not wait for", e.ID, r.ID, e.Target)
	}
	n := l.HoldingOf(e.Target)
	if (n.Row.Holder != r.link(e.ID) || n.Row.Epoch != e.Ref) && n.forced < e.Ref && !isGranted(b, r.link(e.ID), e) {
		l.Fail("L22: section %s of %s has %s, which %s of %s holds", e.ID, r.ID, e.Target, n.Row.Holder.ID, scenario.Short(n.Row.Holder.Run))
	}
	x.granted++
	l.s.Did(scenario.OpLockGranted)
	if x.granted == len(x.locks) {
		l.s.Did(scenario.OpLocked)
	} else if !sends(b, model.MessageLock, x.locks[x.granted], r.link(e.ID)) {
		l.Fail("L29: section %s of %s has %d of its locks and does not ask for the next", e.ID, r.ID, x.granted)
	}
}

// sectionOver checks that the commit that ends a section releases all its locks.
func (l *ledger) sectionOver(b *store.Batch, r *Run, id string) {
	x := r.sections[id]
	if x == nil || x.over {
		return
	}
	x.over = true
	for _, a := range x.asked() {
		if !sends(b, model.MessageRelease, a, r.link(id)) {
			l.Fail("L28: section %s of %s is over and does not let go of %s", id, r.ID, a)
		}
	}
	if x.granted < len(x.locks) {
		l.s.Did(scenario.OpLockWithdrawn)
	}
}

// sectionsOver checks the sections of a run that ends.
func (l *ledger) sectionsOver(b *store.Batch, r *Run) {
	for id, x := range r.sections {
		if !x.over {
			l.s.Did(scenario.OpLockOutlived)
			l.sectionOver(b, r, id)
		}
	}
}

// checkLocks checks which section holds an entity after a batch, and which calls the batch applied.
// before is the row of the entity before the batch.
//
//arch:parameters all that a check of one batch compares
func (l *ledger) checkLocks(b *store.Batch, n *holding, before *model.Entity, t *traces, taken []model.MailboxItem) {
	name := n.Address.Name
	had := map[int64]model.Link{}
	var owners []model.Link // in order
	if before.Locked() {
		had[before.Epoch] = before.Holder
		owners = append(owners, before.Holder)
	}

	for _, m := range grantsIn(b, name) {
		l.grants(b, n, m, taken)
		if _, again := had[m.Epoch]; !again {
			owners = append(owners, n.owner)
		}
		had[m.Epoch] = n.owner
	}

	if n.Row.Locked() && (n.Row.Holder != n.owner || n.Row.Epoch != n.epoch) {
		l.Fail("L22: %s is locked by %s of %s, which was not told", name, n.Row.Holder.ID, scenario.Short(n.Row.Holder.Run))
	}
	freed := before.Locked() && (n.Row.Holder != before.Holder || n.Row.Epoch != before.Epoch)

	for epoch, section := range had {
		if n.Row.Locked() && n.Row.Epoch == epoch || l.released[lockOf{section, name}] {
			continue
		}
		if !l.s.unlocking(name) {
			l.Fail("L30: %s is taken from %s of %s, which has not let go of it", name, section.ID, scenario.Short(section.Run))
		}
		n.forced = max(n.forced, epoch)
	}

	// A section may get the lock, make calls and release the lock in one batch. So the deeds must
	// follow the order of the owners, and a plain deed comes between two owners.
	held := before.Locked()
	for _, id := range t.applied {
		d := l.Doings[id]
		if d.Section == "" {
			if before.Locked() && !freed {
				l.Fail("L24: deed %x is applied to %s while %s of %s holds it", id, name, before.Holder.ID, scenario.Short(before.Holder.Run))
			}
			if held {
				owners, held = owners[1:], false
			}
			continue
		}

		i := slices.Index(owners, model.Link{Address: d.link.Address, Run: d.link.Run, ID: d.Section})
		if i < 0 {
			l.Fail("L24: deed %x is applied to %s, which its section %s does not hold", id, name, d.Section)
		}
		owners, held = owners[i:], true
		l.s.Did(scenario.OpDeedLocked)
	}
}

// lockOf is the lock of a section on an entity.
type lockOf struct {
	section model.Link
	entity  model.Address
}

// grants checks a grant of a lock. The epoch of the grant must be larger than all earlier epochs,
// and the entity must have handled everything that arrived before the request for the lock.
func (l *ledger) grants(b *store.Batch, n *holding, m *model.Message, taken []model.MailboxItem) {
	section := model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}
	if m.Epoch == n.epoch && section == n.owner {
		return // a repeated request
	}
	if m.Epoch <= n.epoch {
		l.Fail("L37: %s is granted with epoch %d after %d", n.Address.Name, m.Epoch, n.epoch)
	}
	n.epoch, n.owner = m.Epoch, section

	asked := int64(-1)
	for i := range taken {
		if it := &taken[i]; it.Message.Kind == model.MessageLock && it.Message.From == section {
			asked = it.Seq
		}
	}

	for i := range n.Box {
		it := &n.Box[i]
		fresh := slices.ContainsFunc(b.Mailbox, func(r store.MailboxRow) bool { return r.Address == n.Address.Name && r.Item.Seq == it.Seq })
		view := it.Message.Kind == model.MessageCall && it.Message.Name == scenario.DoRead
		if before := asked < 0 && !fresh || it.Seq < asked; before && !view && it.Message.Section == "" {
			l.Fail("L27: %s is granted to %s of %s while a %s waits that came before", n.Address.Name, m.ID, scenario.Short(m.ToRun), it.Message.Kind)
		}
	}

	l.s.Did(scenario.OpGranted)
}

// lockArrived checks that a message about a lock has had its effect.
func (l *ledger) lockArrived(b *store.Batch, n *holding, m *model.Message) {
	waits := slices.ContainsFunc(n.Box, func(it model.MailboxItem) bool {
		return it.Message.Kind == model.MessageLock && it.Message.From == m.From
	})
	holds := n.Row.Locked() && n.Row.Holder == m.From
	// An operator may have taken the lock away in the same batch.
	granted := slices.ContainsFunc(b.Messages, func(r store.MessageRow) bool {
		g := &r.Message
		return g.Kind == model.MessageGrant && g.From.Address == m.To && model.Link{Address: g.To, Run: g.ToRun, ID: g.ID} == m.From
	})
	switch {
	case n.Address.Sick: // a quarantine delays messages, so a later request may be served first
	case m.Kind == model.MessageRelease && (waits || holds):
		l.Fail("L32: %s of %s has let go of %s, and holds it (%v) or waits for it (%v)", m.From.ID, scenario.Short(m.From.Run), m.To, holds, waits)
	case m.Kind == model.MessageLock && !waits && !holds && !granted && !l.released[lockOf{m.From, m.To}] && n.owner != m.From:
		l.Fail("L29: %s of %s has asked for %s, and neither holds it nor waits", m.From.ID, scenario.Short(m.From.Run), m.To)
	}
}

// grantArrived checks that a section records the grant of its lock, or gives the lock back.
func (l *ledger) grantArrived(b *store.Batch, m *model.Message) {
	section := model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}
	if l.released[lockOf{section, m.From.Address}] {
		return
	}
	if r := l.Runs[m.ToRun]; r != nil && r.Open() && r.sections[m.ID] != nil {
		if x := r.sections[m.ID]; !x.over && slices.Contains(x.locks[:x.granted], m.From.Address) {
			return
		}
	}
	l.Fail("L29: %s was granted to %s of %s, who does not know of it and has not given it back", m.From.Address, m.ID, scenario.Short(m.ToRun))
}

// unlocking reports whether an operator has tried to unlock an entity.
func (s *Oracle) unlocking(a model.Address) bool {
	return slices.ContainsFunc(s.Ops, func(o *Op) bool { return o.Message.Kind == model.MessageUnlock && o.Message.To == a && o.Tries > 0 })
}
