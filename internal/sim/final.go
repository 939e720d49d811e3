package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// finished reports whether everything has ended: there is no open run, no waiting user, and no
// message in flight.
func (s *Sim) finished() bool {
	if s.ledger.open > 0 || len(s.ledger.inbox) > 0 {
		return false
	}

	for _, u := range s.users {
		if u.busy {
			return false
		}
	}

	for _, o := range s.ops {
		if !o.done {
			return false
		}
	}

	for _, c := range s.ledger.pairs {
		if c.next < int64(len(c.rows)) {
			return false
		}
	}

	for _, p := range s.procs {
		if p == nil || p.inc == nil {
			return false
		}

		for _, w := range p.workers {
			if len(w.held) > 0 {
				return false
			}
		}

		for _, h := range p.hands {
			if len(h.held)+len(h.reported) > 0 {
				return false
			}
		}

		for _, t := range p.tellers {
			if len(t.held) > 0 {
				return false
			}
		}
	}

	for _, n := range s.ledger.holdingOrder {
		if len(n.box) > 0 {
			return false
		}
	}

	return true
}

// dump adds the state of all lanes to the trace.
func (s *Sim) dump() {
	for _, p := range s.procs {
		if p != nil && p.inc != nil {
			for _, sh := range p.inc.shells {
				s.logf("lane %d of %s: %d and %d inputs wait; %s", sh.index, p.inc.name(), len(sh.ops), len(sh.results), sh.lane)
			}
		}
	}
}

// failStuck fails with a list of what has not ended.
func (s *Sim) failStuck() {
	var t strings.Builder
	for _, r := range s.ledger.order {
		if r.open() {
			if r.start.Task != nil {
				fmt.Fprintf(&t, "\n  task %s of %s is open: %d events, parked %v, blocked %v, %+v%s", short(r.id), r.address.name, len(r.events), r.parked, r.blocked, *r.tasks[model.TaskStep], s.explain(r, model.TaskStep))
				continue
			}
			m := s.replay(r)
			fmt.Fprintf(&t, "\n  run %s of %s is open: %d events, parked %v, blocked %v, timers %d, block %d", short(r.id), r.address.name, len(r.events), r.parked, r.blocked, len(r.timers), m.pc)
			if m.end == nil && m.pc < len(m.p.blocks) {
				fmt.Fprintf(&t, " (%s)", blockNames[m.p.blocks[m.pc].kind])
			}
			for id, k := range r.tasks {
				if !k.over {
					fmt.Fprintf(&t, "\n    task %s: %+v%s", id, *k, s.explain(r, id))
				}
			}
		}
	}

	for _, o := range s.ops {
		if !o.done {
			fmt.Fprintf(&t, "\n  %s has not ended", o)
		}
	}

	for k, c := range s.ledger.pairs {
		if c.next < int64(len(c.rows)) {
			fmt.Fprintf(&t, "\n  messages from shard %d to shard %d: %d of %d consumed", k[1], k[0], c.next, len(c.rows))
		}
	}

	for _, n := range s.ledger.holdingOrder {
		if len(n.box) > 0 {
			fmt.Fprintf(&t, "\n  %d items wait for %s, the first is a %s; it is locked by %s of %s", len(n.box), n.address.name, n.box[0].Message.Kind, n.row.Holder.ID, short(n.row.Holder.Run))
		}
	}

	for id := range s.ledger.inbox {
		fmt.Fprintf(&t, "\n  request %s waits", short(id))
	}

	for _, p := range s.procs {
		for _, w := range p.workers {
			for id := range w.held {
				fmt.Fprintf(&t, "\n  worker %d of %s holds %s", w.id, p.name(), short(id))
			}
		}
		for _, h := range p.hands {
			for _, ref := range h.refs() {
				fmt.Fprintf(&t, "\n  %s executes claim %d of %s", h.offer.Name, ref.Claim, short(ref.Run))
			}
			for ref := range h.reported {
				fmt.Fprintf(&t, "\n  %s has reported claim %d of %s, and hears nothing", h.offer.Name, ref.Claim, short(ref.Run))
			}
		}
	}

	if s.opts.Trace {
		s.dump()
	}
	s.fail("E42: stuck %d s after everything has healed:%s", s.plan.patience/second, t.String())
}

// explain returns why a task waits, according to the boards.
func (s *Sim) explain(r *run, id string) (text string) {
	for _, p := range s.procs {
		if p != nil && p.inc != nil {
			if why, ok := p.inc.board.Explain(r.ref(id, 0).TaskRef); ok {
				text += fmt.Sprintf("; on %s it waits for %+v", p.inc.name(), why)
			}
		}
	}
	return text
}

// comeToRest checks that lanes hold nothing in the end. A repeated report may wait for the end of a
// quarantine, and a start whose caller has given up may start something that has to end too.
func (s *Sim) comeToRest() {
	s.runUntil(s.now+s.plan.patience, func() bool { return s.finished() && s.holding() == "" && s.away() == "" })
	if !s.finished() {
		s.failStuck()
	}
	if what := s.holding(); what != "" {
		s.dumpIf()
		s.fail("L7: everything has ended, and %s", what)
	}
}

// holding returns a lane that still holds something, or an empty string.
func (s *Sim) holding() string {
	for _, p := range s.procs {
		if p == nil || p.inc == nil {
			return "a node is away"
		}
		for _, sh := range p.inc.shells {
			if n := sh.lane.Held(); n != 0 {
				return fmt.Sprintf("lane %d of %s holds %d bytes", sh.index, p.inc.name(), n)
			}
			u := sh.lane.Usage()
			if s.entities {
				u.Entries = 0 // entities stay in memory for a while
			}
			if u != (lane.Usage{}) {
				return fmt.Sprintf("lane %d of %s has %+v in memory", sh.index, p.inc.name(), u)
			}
		}
	}

	return ""
}

// checkEnd compares the store with the ledger, and both with the answers that users got.
func (s *Sim) checkEnd() {
	s.sweepAll()
	for _, r := range s.ledger.order {
		if r.deleted != 0 {
			s.checkDeleted(r)
		} else {
			s.checkRun(r)
		}
		if r.start.Task == nil {
			s.checkProgram(r)
		}
	}

	s.checkOps()
	s.checkSends()
	s.checkHoldings()
	s.checkBoards()
	s.checkLetters()
	all := make([]model.ShardID, s.plan.shards)
	for i := range all {
		all[i] = model.ShardID(i)
	}
	timers, _ := s.disk.mem.LoadTimers(background, all, store.TimerMark{}, model.MaxTime, 10)
	if len(timers) > 0 {
		s.fail("I8: timer %q of %s is left", timers[0].ID, short(timers[0].Run))
	}
	messages, _, _ := s.disk.mem.LoadMessages(background, all, 10, 1<<30)
	inbox, _, _ := s.disk.mem.LoadInbox(background, all, model.MaxTime, 10, 1<<30)
	runnable, _ := s.disk.mem.LoadRunnable(background, all, store.RunKey{}, 10)
	if len(messages)+len(inbox)+len(runnable) > 0 {
		s.fail("E42: %d messages, %d requests, %d runnable runs are left", len(messages), len(inbox), len(runnable))
	}
}

// checkRun compares a run with the store and with its program.
func (s *Sim) checkRun(r *run) {
	row, err := s.disk.mem.LoadExecution(background, r.address.shard, r.address.name, r.id)
	if err != nil || row == nil {
		s.fail("I4: %s is not in the store: %v", short(r.id), err)
	}
	if row.Outcome.Status != r.outcome.Status || row.Current != (r.address.current == r) {
		s.fail("I3: %s is %s in the store, %s by the ledger", short(r.id), row.Outcome.Status, r.outcome.Status)
	}
	events, err := s.disk.mem.LoadEvents(background, store.RunKey{Shard: r.address.shard, Run: r.id}, int64(len(r.start.Carried)), 1<<30, 1<<30)
	if err != nil || len(events)+len(r.start.Carried) != len(r.events) {
		s.fail("I4: %s has %d events in the store, %d by the ledger: %v", short(r.id), len(events)+len(r.start.Carried), len(r.events), err)
	}

	for i := range events {
		o := &r.events[len(r.start.Carried)+i]
		if e := &events[i]; e.Seq != o.Seq || e.Kind != o.Kind || e.ID != o.ID || e.At != o.At {
			s.fail("I4: event %d of %s is another one in the store", o.Seq, short(r.id))
		}
	}

	s.checkLabels(r)
}

// checkProgram compares the outcome of a run with its program.
func (s *Sim) checkProgram(r *run) {
	// The program must end in the same way if it runs over the history that the code had seen when
	// it returned.
	m := s.newMachine(&r.start)
	for i := range r.events {
		if m.end != nil {
			break
		}
		m.feed(&r.events[i])
	}

	switch {
	case m.broken != nil:
		s.fail("I13: history of %s: %v", short(r.id), m.broken)
	case r.outcome.Status == model.Terminated:
		return // at any place of its program
	case r.outcome.Status == model.Continued && r.outcome.Failure != nil:
		return // a reset ended it at any place of its program
	case m.end == nil:
		s.fail("I13: %s is %s, and its program has not ended", short(r.id), r.outcome.Status)
	case m.end.Status != r.outcome.Status || string(m.end.Output.Data) != string(r.outcome.Output.Data):
		s.fail("I13: %s is %s with %x, its program ends as %s with %x", short(r.id), r.outcome.Status, r.outcome.Output.Data, m.end.Status, m.end.Output.Data)
	}

	if r.outcome.Status == model.Continued {
		if next := s.ledger.runs[r.outcome.Next]; next == nil || !next.start.Input.Equal(m.end.Input) {
			s.fail("I2: %s continues with another input than its program says", short(r.id))
		}
	}
}

// labels returns the labels of the start of a run, with the changes of its history.
func (r *run) labels() []model.Label {
	labels := r.start.Labels
	for i := range r.events {
		if e := &r.events[i]; e.Kind == model.EventLabeled {
			labels = model.SetLabel(labels, e.Name, string(e.Output.Data))
		}
	}
	return labels
}

// checkLabels checks that a query finds a run by the labels of its history, and that the next run
// of the chain starts with them.
func (s *Sim) checkLabels(r *run) {
	rows, err := s.disk.mem.LoadLabels(background, []store.RunKey{{Shard: r.address.shard, Run: r.id}})
	if err != nil {
		s.fail("labels of %s: %v", short(r.id), err)
	}
	var stored []model.Label
	for i := range rows {
		stored = append(stored, rows[i].Label)
	}
	if want := r.labels(); !slices.Equal(stored, want) {
		s.fail("I4: %s is found by the labels %v, its history says %v", short(r.id), stored, want)
	}
	if next := s.ledger.runs[r.outcome.Next]; next != nil && next.start.Source.IsZero() && !slices.Equal(next.start.Labels, r.labels()) {
		s.fail("I2: %s continues with the labels %v, it had %v", short(r.id), next.start.Labels, r.labels())
	}
}

// checkOps compares the answers that users got with the store.
func (s *Sim) checkOps() {
	for _, o := range s.ops {
		var ids []model.Payload
		switch o.message.Kind {
		case model.MessageSignal:
			ids = append(ids, o.message.Input)
		case model.MessageStart:
			for i := range o.message.With {
				ids = append(ids, o.message.With[i].Input)
			}
		default:
		}

		for _, p := range ids {
			got := s.ledger.signals[signalID(p)]
			if o.acked && got == nil {
				s.fail("I4: %s was accepted and is not in a history", o)
			}
			if o.misuses && got != nil && !o.forgotten() {
				s.fail("A1: %s is in a history, and its id belongs to another request", o)
			}
			if o.refused != nil && o.tries == 1 && o.shadow == nil && !o.repeated(s) && got != nil {
				s.fail("I10: %s was refused (%v) and is in a history", o, o.refused)
			}
		}
	}

	s.checkOrder()
}

// repeated reports whether another op repeats this one.
func (o *op) repeated(s *Sim) bool {
	for _, x := range s.ops {
		if x.shadow == o {
			return true
		}
	}
	return false
}

// checkOrder checks that signals of one user to one address arrive in order: a signal that was
// accepted before the user sent another one comes before it.
func (s *Sim) checkOrder() {
	type sent struct {
		o     *op
		order int
	}

	last := map[model.Address][]sent{}
	for _, o := range s.ops {
		if o.message.Kind != model.MessageSignal || !o.acked {
			continue
		}
		got := s.ledger.signals[signalID(o.message.Input)]
		if got.address.sick {
			continue // a quarantine delays messages
		}
		for _, before := range last[o.message.To] {
			if before.o.user == o.user && before.o.ended <= o.invoked && before.order > got.order {
				s.fail("I11: %s was received after %s, which was sent later", before.o, o)
			}
		}
		last[o.message.To] = append(last[o.message.To], sent{o, got.order})
	}
}

// leaveAll shuts all nodes down in good order and checks that nothing is left of them.
func (s *Sim) leaveAll() {
	down := func() bool {
		for _, p := range s.procs {
			if p != nil {
				return false
			}
		}
		return true
	}

	s.leaving = true
	var last []*incarnation
	for _, p := range s.procs {
		if p == nil {
			continue // it was leaving when the faults ended, and has not been started again
		}
		last = append(last, p.inc)
		s.at(s.now, p, p.leave)
	}

	s.runUntil(s.now+20*second, down)
	if !down() {
		if s.opts.Trace {
			s.dump()
		}
		s.fail("a node does not come to its end")
	}

	v, err := s.disk.mem.Members(background)
	if err != nil {
		s.fail("members: %v", err)
	}

	for _, o := range v.Owners {
		if m := s.ledger.nodes[o.Node]; m != nil && m.alive && m.inc != nil && !m.inc.lost && slices.Contains(last, m.inc) {
			s.fail("shard %d still belongs to %s", o.Shard, s.ledger.name(o.Node))
		}
	}

	s.checkLeft(last)
	s.stats.Seeds, s.stats.Events = 1, s.steps
}
