package oracle

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some simulations rows cannot be read. Some of these rows are from a newer build: processes are
// upgraded one after the other, and the old build does not know some kinds of messages and events.
// Other rows are damaged: requests in inboxes, and rows on the pages of timers, runnable runs,
// expired runs and mailboxes. The rules are: the owner processes the rows that come after an
// unreadable row. A row of a newer build takes effect once, when a newer build owns the shard.
// Until then, all executions that do not wait for the row continue. The owner sets a damaged
// request aside, so that its sender can send it again.

// NewKind gives an address an event of a kind that the old build does not know.
func (s *Oracle) NewKind() {
	if a := s.SickAddress(); s.Plan.Upgrades && !a.IsEntity() {
		s.Ledger.Address(a).Sick = true
		s.NewEvents[a] = true
	}
}

// IsDamaged decides whether the row of a user's request is damaged. The decision for a request
// never changes.
func (s *Oracle) IsDamaged(row *store.InboxRow) bool {
	bad, known := s.damaged[row.ID]
	if known || s.Healed {
		return bad
	}
	switch m := &row.Message; m.Kind { //nolint:exhaustive // senders cannot repeat other kinds
	case model.MessageSignal, model.MessageSettle, model.MessageCancel, model.MessagePause, model.MessageResume, model.MessageUpdate:
		bad = m.From.ID == "" && !m.To.IsEntity() && s.Chance(s.Plan.Damage)
	}
	s.damaged[row.ID] = bad
	if bad {
		s.Hurt(scenario.FaultDamaged)
	}
	return bad
}

// setAside checks a message that is set aside because it cannot be read. It returns false if the
// message can be read.
func (l *ledger) setAside(row *store.InboxRow) bool {
	switch {
	case l.s.isMessageAside(row):
		if row.NotBefore != model.MaxTime {
			l.Fail("I14: message %s is damaged, and is to be tried again", row.ID)
		}
		l.s.Did(scenario.OpMessageAside)
		return true
	case l.s.damaged[row.ID]:
		if row.NotBefore != model.MaxTime {
			l.Fail("I14: request %s is damaged, and is to be tried again", row.ID)
		}
		delete(l.Inbox, row.ID)
		l.s.Did(scenario.OpSetAside)
		return true
	case l.s.IsNew(&row.Message):
		l.Address(row.Message.To).Sick = true
		l.s.Did(scenario.OpPutOffNewer)
	}
	return false
}
