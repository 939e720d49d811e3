package oracle

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// A message between two shards of a lane may take effect in the batch that sends it. Such a message
// is called passed, and it has no row. The rules are: the lane owns both shards, no earlier message
// between the two shards is on its way, and the effects are in the same batch. An operation of
// an account may run ahead: it may begin before the batch that sends its call is durable. No other
// call may. If a call has waited for a lock, the batch that releases the lock must be durable
// before the call begins.

// sentIn returns the messages that a batch sends: first the passed messages, then the messages with
// a row.
func sentIn(b *store.Batch) (all []*model.Message) {
	for i := range b.Passed {
		all = append(all, b.Passed[i].Message)
	}
	for i := range b.Messages {
		all = append(all, &b.Messages[i].Message)
	}
	return all
}

// sendsAny reports whether a batch sends a message that the given function accepts.
func sendsAny(b *store.Batch, is func(*model.Message) bool) bool {
	return slices.ContainsFunc(sentIn(b), is)
}

// grantsIn returns the grants of an entity in a batch, in order.
func grantsIn(b *store.Batch, entity model.Address) []*model.Message {
	grants := slices.DeleteFunc(sentIn(b), func(m *model.Message) bool { return m.Kind != model.MessageGrant || m.From.Address != entity })
	slices.SortStableFunc(grants, func(x, y *model.Message) int { return cmp.Compare(x.Epoch, y.Epoch) })
	return grants
}

// isGranted reports whether a batch grants the lock that one of its events records.
func isGranted(b *store.Batch, section model.Link, e *model.Event) bool {
	return slices.ContainsFunc(b.Passed, func(p store.PassedMessage) bool {
		m := p.Message
		return m.Kind == model.MessageGrant && m.From.Address == e.Target && m.Epoch == e.Ref && section == model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}
	})
}

// pass records the passed messages of a batch before its other rows, because events of the batch
// may be their effects.
func (l *ledger) pass(b *store.Batch) {
	for i := range b.Passed {
		p := &b.Passed[i]
		to := l.s.ShardOf(p.Message.To)
		l.owns(b, p.From)
		l.owns(b, to)

		c, next := l.Channel(to, p.From), int64(0)
		next = c.Next
		for _, row := range b.Cursors {
			if row.To == to && row.From == p.From {
				next = row.Next
			}
		}
		if next < int64(len(c.Rows)) {
			l.Fail("L4: a %s to %s takes effect while message %d of its channel is on its way", p.Message.Kind, p.Message.To, next+1)
		}
		for _, row := range b.Messages[:p.Behind] {
			if row.To == to && row.From == p.From {
				l.Fail("L4: a %s to %s takes effect before a %s that was sent first", p.Message.Kind, p.Message.To, row.Message.Kind)
			}
		}
		l.note(p.Message)
		l.s.Did(scenario.OpPassedInside)
	}
}

// arrivedInside checks that the passed messages of a batch have had their effects in the same
// batch.
func (l *ledger) arrivedInside(b *store.Batch) {
	for i := range b.Passed {
		m := b.Passed[i].Message
		if m.Kind == model.MessageAnswer {
			l.answerCounts(m)
		}
		l.effect(b, m)
	}
}

// CheckBegun checks a call that a worker of entities gets from a node. The batch that sends the
// call must be durable, unless the call may run ahead. If the call has waited for a lock, the
// release of the lock must be durable too.
func (s *Oracle) CheckBegun(node model.NodeID, entity model.Address, c *model.OperationCall) {
	l := s.Ledger
	x, _ := scenario.DeedOf(c.Input)
	d := l.Doings[x.ID]
	if d == nil {
		if entity.Stateless() {
			s.Fail("L2: deed %x (%s) of %s begins before the batch that sends its call is durable", x.ID, c.Name, entity)
		}
		s.Did(scenario.OpRanAhead)
		return
	}
	if l.Owner[s.ShardOf(entity)] != node {
		return // the node was paused past its lease, and commits nothing
	}
	n := l.HoldingOf(entity)
	if d.Section == "" && c.Name != scenario.DoRead && n.Row.Locked() && !l.released[lockOf{n.Row.Holder, entity}] && !s.unlocking(entity) {
		s.Fail("L24: deed %x (%s) of %s begins while %s of %s holds its lock", x.ID, c.Name, entity, n.Row.Holder.ID, scenario.Short(n.Row.Holder.Run))
	}
}
