package oracle

import (
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some seeds users make calls that kill the process that executes them. Rule K1 says: no owner
// sets a call aside before two owners have died while they executed only this call. Rule K2 says: a
// call in the store kills at most four processes. The first owner executes the call without a mark,
// perhaps before the commit that takes it from the inbox, so that the call is still in the inbox
// after the death of that owner. The second owner stores the call before it executes the call. The
// next two owners mark the call before they execute it. If an owner gives the shard up cleanly, the
// next owner does not know about earlier deaths. In that case the call may kill up to two more
// processes.
//
// Other such calls kill only the teller that executes them, as if the teller were a process of its
// own. Rule K3 says: no owner sets a call aside before three tellers have died while they had it.
// Rule K4 says: a call in the store kills at most three tellers. Each change of the owner may add
// one, because the last death before it may not be stored. So may each failure of the store,
// because the owner gives up hand-overs that depend on a refused commit, and does not count a death
// of a teller that still executes such a hand-over.

const (
	loneDeaths = 2 // owners that must have died before a call is set aside
	mostKills  = 4 // processes that a call may kill
	mostLosses = 3 // tellers that a call may kill
	uncounted  = 6 // further ones, because of failures of the store
)

// KillsTeller reports whether a killing call kills only its teller.
func KillsTeller(deed uint64) bool { return deed%2 == 1 }

// LoseTeller counts a teller that has died while it had calls.
func (l *ledger) LoseTeller(deeds []uint64) {
	for _, id := range deeds {
		if d := l.Doings[id]; d != nil {
			d.losses++
		}
	}
}

// CheckLoss counts a teller that a call has killed, and checks that the call has not killed too
// many (K4).
func (l *ledger) CheckLoss(a model.Address, deed uint64) {
	l.s.Did(scenario.OpTellerDied)
	n, d := l.HoldingOf(a), l.Doings[deed]
	if n.Address.Sick || !l.isKept(n, deed) {
		return // the number of losses of a call that is only in memory ends with its owner
	}
	d.fatal++
	c := l.custody[n.Address.Shard]
	if most := mostLosses + uncounted + c.died - d.sent.died + c.gaveUp - d.sent.gaveUp; d.fatal > most {
		l.Fail("K4: deed %x of %s has killed %d tellers, at most %d", deed, a, d.fatal, most)
	}
}

// custody counts how many owners of a shard have died, and how many have given the shard up.
type custody struct{ died, gaveUp int }

// pass counts the end of an ownership.
func (c *custody) pass(crashed bool) {
	if crashed {
		c.died++
	} else {
		c.gaveUp++
	}
}

// storedIn notes that a call is in the store from now on.
func (l *ledger) storedIn(m *model.Message, shard model.ShardID) {
	if x, ok := scenario.DeedOf(m.Input); ok && m.Kind == model.MessageCall {
		if d := l.Doings[x.ID]; d != nil && !d.kept {
			d.kept, d.sent = true, l.custody[shard]
		}
	}
}

// isKept reports whether a call waits in a mailbox, in an inbox, or in a channel between shards.
func (l *ledger) isKept(n *holding, deed uint64) bool {
	if n.hasMail(deed) {
		return true
	}
	is := func(m *model.Message) bool {
		x, _ := scenario.DeedOf(m.Input)
		return m.Kind == model.MessageCall && m.To == n.Address.Name && x.ID == deed
	}
	for _, row := range l.Inbox {
		if is(&row.Message) {
			return true
		}
	}
	for k, c := range l.Pairs {
		if k[0] != n.Address.Shard {
			continue
		}
		for i := range c.Rows[c.Next:] {
			if is(&c.Rows[c.Next+int64(i)].Message) {
				return true
			}
		}
	}
	return false
}

// CheckKill counts a process that a call has killed, and checks that the call has not killed too
// many (K2).
func (l *ledger) CheckKill(a model.Address, deed uint64) {
	l.s.Did(scenario.OpKilled)
	n, d := l.HoldingOf(a), l.Doings[deed]
	if n.Address.Sick || !l.isKept(n, deed) {
		return // a call that is not in the store is never executed again
	}
	d.kills++
	if most := mostKills + 2*(l.custody[n.Address.Shard].gaveUp-d.sent.gaveUp); d.kills > most {
		l.Fail("K2: deed %x of %s has killed %d processes, at most %d", deed, a, d.kills, most)
	}
}

// marked replaces an item of a mailbox that a batch only marks. It returns false if the batch takes
// the item out of the mailbox.
func (l *ledger) marked(b *store.Batch, n *holding, i int) bool {
	for j := range b.Mailbox {
		r := &b.Mailbox[j]
		if r.Address != n.Address.Name || r.Item.Seq != n.Box[i].Seq {
			continue
		}
		plain := func(m model.Message) model.Message {
			m.Deaths, m.Lone, m.By, m.Lost = 0, 0, model.NodeID{}, 0
			return m
		}
		was, is := plain(n.Box[i].Message), plain(r.Item.Message)
		if is.Kind != was.Kind || is.Name != was.Name || !is.Input.Equal(was.Input) || is.RequestID != was.RequestID || is.From != was.From {
			l.Fail("L3: item %d of %s changes from %v to %v", r.Item.Seq, r.Address, was, is)
		}
		n.Box[i] = r.Item
		l.s.Did(scenario.OpAccused)
		return true
	}
	return false
}

// isSetAside reports whether a row has a call that is set aside because owners or tellers have
// died.
func (l *ledger) isSetAside(row *store.InboxRow) bool {
	return l.s.Has(scenario.Killers) && row.NotBefore == model.MaxTime && row.Message.Kind == model.MessageCall &&
		(strings.Contains(row.Message.ID, "processes died") || isCondemned(row))
}

// isCondemned reports whether a row has a call that is set aside because tellers have died.
func isCondemned(row *store.InboxRow) bool {
	return strings.Contains(row.Message.ID, "workers disappeared")
}

// convicted checks a call that a batch sets aside because owners have died while they executed it
// (K1), or tellers while they had it (K3). It returns false if the batch does not set the call
// aside.
func (l *ledger) convicted(b *store.Batch, n *holding, id uint64) bool {
	for i := range b.Deferred {
		row := &b.Deferred[i]
		if x, _ := scenario.DeedOf(row.Message.Input); !l.isSetAside(row) || row.Message.To != n.Address.Name || x.ID != id {
			continue
		}
		d := l.Doings[id]
		died := l.custody[n.Address.Shard].died - d.since.died
		switch {
		case isCondemned(row):
			l.s.Did(scenario.OpCondemned)
			if d.losses < mostLosses {
				l.Fail("K3: deed %x of %s is set aside, and only %d tellers have died with it", id, n.Address.Name, d.losses)
			}
		case died < loneDeaths:
			l.Fail("K1: deed %x of %s is set aside, and only %d owners have died since it was stored", id, n.Address.Name, died)
		}
		if d.applied {
			l.Fail("K1: deed %x of %s is set aside, and it is applied", id, n.Address.Name)
		}

		d.aside = true
		if d.name == scenario.DoAdd && d.sender.IsEntity() {
			l.onItsWay -= d.amount
			l.destroyed += d.amount
		}
		if !isCondemned(row) {
			l.s.Did(scenario.OpConvicted)
		}
		return true
	}
	return false
}
