package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// noteFacts adds the facts of a decision to the batch, or to the output when there is no batch.
func (l *Lane) noteFacts(b *building, e *entry, in input, d *core.Decision) {
	to := &l.out.Facts
	if b != nil {
		to = &b.facts
	}

	n := noter{to: to, e: e, before: l.snapshot.of(e, in), run: e.run()}
	if e.isEntity() {
		n.addEntity(in, d)
		return
	}

	switch in := in.(type) {
	case *turnInput:
		n.add(Fact{Kind: FactTurn})
		if d.Mark != nil && d.Mark.Blocked != nil {
			n.add(Fact{Kind: FactBlocked, Word: string(d.Mark.Blocked.Code)})
		}
	case *messageInput:
		n.addMessage(in.origin.message, d)
	default:
	}

	if s := d.Start; s != nil {
		n.run = s.Run
		n.addStart(s)
	}
	if d.Close != nil {
		n.run = d.Closed
		n.addClose(d.Close, d)
	}

	for i := range d.Events {
		n.addEvent(&d.Events[i])
	}
	for i := range d.Dead {
		n.addTask(Fact{Kind: FactDead}, d.Dead[i].Task.Spec)
	}

	if c := d.DeadTask; c != nil {
		switch {
		case c.Purged:
			n.add(Fact{Kind: FactPurged})
		case c.Next > c.Prev:
			n.addTask(Fact{Kind: FactRequeued}, &c.Body.Spec)
		}
	}
	if len(d.Deletes) > 0 {
		n.add(Fact{Kind: FactRemoved, N: len(d.Deletes)})
	}
}

// reportFacts adds the facts of a batch to the output. The lane calls it when the batch is durable
// or has nothing to wait for.
func (l *Lane) reportFacts(b *building, committed bool) {
	if !l.cfg.Watched {
		return
	}
	l.out.Facts = append(l.out.Facts, b.facts...)
	if committed {
		l.out.Facts = append(l.out.Facts, Fact{Kind: FactBatch, N: len(b.inputs)})
	}
}

// reportQuarantine reports that an address is quarantined, unless it is already.
func (l *Lane) reportQuarantine(e *entry, why *model.Reason) {
	if l.cfg.Watched && e.quarantine.why == nil {
		l.out.Facts = append(l.out.Facts, Fact{Kind: FactBlocked, Address: e.address, Word: string(why.Code)})
	}
}

// addTrace creates a trace for a start whose sender sent none, if the lane traces. The requeue of a
// task without a workflow is such a start. The requeue of a step has a trace.
func (l *Lane) addTrace(m *model.Message) {
	if l.cfg.NewTrace == nil || m.Trace != "" {
		return
	}
	if o := m.DeadTask; m.Kind == model.MessageStart || m.Kind == model.MessageRequeue && o.Do == model.DeadTaskRequeue && o.Ref.Alone() {
		m.Trace = l.cfg.NewTrace(m.To)
	}
}
