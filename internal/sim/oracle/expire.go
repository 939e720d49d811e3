package oracle

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some seeds states of accounts expire. Rule X1 says: a state leaves the store only because of
// an operation, or after its time is over. No operation gets a state whose time is over. In the end
// every state whose time is over has left the store. The timer that the row names is the timer in
// the store.

// stateEnd returns an entry of a path that stands for the end of a state. A path is the list of
// hand-overs that lead from one state of an entity to another; its other entries are hand-overs.
func stateEnd(of *scenario.Account) *scenario.Handover { return &scenario.Handover{Base: of} }

func isStateEnd(h *scenario.Handover) bool { return h.Stamp == 0 }

// stateEnds says which states may expire on a path: the stored state, and other states that the
// same batch has produced.
type stateEnds struct{ stored, others bool }

// mayEnd reports whether the stored state may expire in a commit that stores the next row. That is
// allowed if the time of the state is over, and if no section holds the lock of the entity both
// before and after the commit.
func (n *holding) mayEnd(next *model.Entity, now model.Time) bool {
	return n.Row.Expires != 0 && n.Row.Expires <= now && !(n.Row.Locked() && next.Holder == n.Row.Holder)
}

// checkStateEnd checks that a stored state ends after its time, and not while it is locked.
func (l *ledger) checkStateEnd(n *holding, next *model.Entity, path []*scenario.Handover) {
	if len(path) == 0 || !isStateEnd(path[0]) {
		return
	}
	if at := n.Row.Expires; at == 0 || at > l.s.FairTime() {
		l.Fail("X1: the state of %s is gone at %d, and lives until %d", n.Address.Name, l.s.FairTime(), at)
	}
	if n.Row.Locked() && next.Holder == n.Row.Holder {
		l.Fail("X1: the state of %s is gone, and it is locked", n.Address.Name)
	}
}

// IsOver reports whether a state is the stored state, and has expired.
func (n *holding) IsOver(stamp uint64, now model.Time) bool {
	return scenario.StampOf(n.state) == stamp && n.Row.Expired(now)
}

// Expires reports whether the state of the entity will expire.
func (n *holding) Expires() bool { return n.Row.Expires != 0 }

// checkAlarms checks that the store has the timers that the rows of a batch name.
func (l *ledger) checkAlarms(b *store.Batch) {
	for i := range b.Entities {
		n := l.HoldingOf(b.Entities[i].Entity.Address)
		if due := l.alarms[n.Address.Name]; due != n.Row.Alarm {
			l.Fail("X1: %s has a timer for %d, and its row names %d", n.Address.Name, due, n.Row.Alarm)
		}
	}
}

// stopAlarm removes the timer of an entity. It returns false if the timer belongs to a run.
func (l *ledger) stopAlarm(row *store.TimerKey) bool {
	for _, n := range l.HoldingOrder {
		if a := n.Address.Name; a.TimerRun() == row.Run {
			if l.alarms[a] == 0 {
				l.Fail("X1: timer %q of %s is stopped and was not open", row.ID, a)
			}
			delete(l.alarms, a)
			return true
		}
	}
	return false
}

// startAlarm adds the timer of an entity. It returns false if the timer belongs to a run.
func (l *ledger) startAlarm(row *store.Timer) bool {
	if !row.Address.IsEntity() {
		return false
	}
	if row.Address.TimerRun() != row.Run || l.alarms[row.Address] != 0 {
		l.Fail("X1: timer %q of %s is started twice, or under another id", row.ID, row.Address)
	}
	l.alarms[row.Address] = row.Due
	return true
}
