package sim

import (
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// In some simulations rows cannot be read. Some are from a newer build: processes are upgraded one
// after the other, and the old build does not know some kinds of messages and events. Others are
// damaged: requests in inboxes, and rows on the pages of timers, runnable runs, expired runs and
// mailboxes. What must hold: the rows behind such a row are processed. A row of a newer build takes
// effect once, when a newer build owns the shard; until then all executions continue that do not
// wait for it. A damaged request is set aside, so that its sender can send it again.

// drawRows decides which rows cannot be read.
func (s *Sim) drawRows() {
	s.plan.upgrades, s.plan.newEvents, s.plan.damage, s.plan.badPages = s.chance(0.7), s.pick(3), s.rate(0.1), s.chance(0.4)
	s.plan.lateUpgrade = s.plan.upgrades && s.chance(0.4)
}

// isNew reports whether only a newer build can read a message. It depends only on the content of
// the message, so it is the same wherever the message is stored.
func (s *Sim) isNew(m *model.Message) bool {
	if !s.plan.upgrades || m.Kind == model.MessageNothing {
		return false
	}
	h := uint64(14695981039346656037)
	for _, t := range [...]string{m.To.Key, m.Name, m.ID, m.From.ID, string(m.From.Run[:]), string(m.Input.Data)} {
		for i := range len(t) {
			h = (h ^ uint64(t[i])) * 1099511628211
		}
	}
	return h>>20%10 == 0
}

// upgrade ends the processes of the old build one after the other. Processes that start from now on
// are of the newer build.
func (s *Sim) upgrade() {
	if !s.plan.upgrades || s.plan.lateUpgrade || s.upgraded {
		return
	}
	s.upgraded = true

	for i, p := range s.procs {
		if p != nil && !p.newer {
			s.after(int64(i)*s.between(50, 300)*millisecond, nil, func() {
				if p.dead || s.healed {
					return
				}
				s.hurt(faultUpgrade)
				p.crash()
				s.restart(p.slot)
			})
		}
	}
}

// newKind gives an address an event of a kind that the old build does not know.
func (s *Sim) newKind() {
	if a := s.sickAddress(); s.plan.upgrades && !a.IsEntity() {
		s.ledger.address(a).sick = true
		s.newEvents[a] = true
	}
}

// upgradeAll upgrades all processes to the newer build.
func (s *Sim) upgradeAll() {
	s.upgraded = true
	for _, p := range s.procs {
		if p != nil {
			p.newer = true
		}
	}
}

// unreadable returns the error of reading a run that has an event which the process does not know.
func (p *proc) unreadable(ld *lane.Load) error {
	if p.newer || ld.Kind != lane.LoadRun || !p.s.newEvents[ld.Address] {
		return nil
	}
	p.s.hurt(faultNewEvent)
	return fault.New(fault.Corrupt, "event 1 of %s: %w", ld.Address, model.ErrNewer)
}

// spoil replaces the rows in a result that the build of the process cannot read.
func (p *proc) spoil(ld *lane.Load, r *lane.LoadResult) {
	s := p.s
	if !s.hard(hardRows) || r.Err != nil {
		return
	}

	switch ld.Kind { //nolint:exhaustive // the others are about one run
	case lane.LoadRunnable, lane.LoadTimers, lane.LoadExpired, lane.LoadMailboxes:
		if s.plan.badPages {
			s.hurt(faultSkipped)
			var skipped store.Skipped
			skipped.Note(fault.New(fault.Corrupt, "an id is no id"))
			r.Err = skipped.Err("load")
		}
	case lane.LoadMail:
		for i := range r.Messages {
			r.Messages[i].Damaged = p.newKindOf(&r.Messages[i].Message)
		}
		for i := range r.Inbox {
			row := &r.Inbox[i]
			if row.Damaged = p.newKindOf(&row.Message); row.Damaged == nil && s.isDamaged(row) {
				row.Damaged = &model.Damaged{Raw: []byte("?"), Why: "the body is no message"}
				row.Message = model.Message{}
			}
		}
	}
}

// newKindOf returns how a process sees a message whose kind it does not know. It returns nil if the
// process knows the kind.
func (p *proc) newKindOf(m *model.Message) *model.Damaged {
	if p.newer || !p.s.isNew(m) {
		return nil
	}
	p.s.hurt(faultNewMessage)
	return &model.Damaged{Raw: model.AppendMessage(nil, m), Why: "a newer build has written it", Newer: true}
}

// isDamaged decides whether the row of a user's request is damaged. The decision for a request
// never changes.
func (s *Sim) isDamaged(row *store.InboxRow) bool {
	bad, known := s.damaged[row.ID]
	if known || s.healed {
		return bad
	}
	switch m := &row.Message; m.Kind { //nolint:exhaustive // senders cannot repeat the others
	case model.MessageSignal, model.MessageSettle, model.MessageCancel, model.MessagePause, model.MessageResume, model.MessageUpdate:
		bad = m.From.ID == "" && !m.To.IsEntity() && s.chance(s.plan.damage)
	}
	s.damaged[row.ID] = bad
	if bad {
		s.hurt(faultDamaged)
	}
	return bad
}

// setAside checks a message that is set aside because it cannot be read. It returns false if the
// message can be read.
func (l *ledger) setAside(row *store.InboxRow) bool {
	switch {
	case l.s.damaged[row.ID]:
		if row.NotBefore != model.MaxTime {
			l.fail("I14: request %s is damaged, and is to be tried again", row.ID)
		}
		delete(l.inbox, row.ID)
		l.s.did(opSetAside)
		return true
	case l.s.isNew(&row.Message):
		l.address(row.Message.To).sick = true
		l.s.did(opPutOffNewer)
	}
	return false
}
