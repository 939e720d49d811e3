package oracle

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// The rules for entities follow. The file internal/archtest/testdata/invariants.txt has their
// numbers. Each deed (a call of an entity, with its own id) is applied once (L3), on the state that
// the previous deed has left (L2). The deeds of one sender are applied in the order in which the
// sender made them (L4). The commit that applies a deed also stores the answer to the caller (L6).
// A failed deed has changed nothing (L5). Views see committed state, and a later view never sees an
// older state (L10). Only the commit that handles a mailbox item removes the item.

// holding is the expected content of the store for an entity.
type holding struct {
	Address *Address
	Row     model.Entity // zero if the store has no row
	state   *scenario.Account
	Box     []model.MailboxItem
	hands   []*scenario.Handover // the hand-overs that workers have reported
	states  []uint64             // stamps of the committed states, in order; zero for no state
	Shown   int                  // the index of the last state that a caller has seen
	epoch   int64                // the epoch of the last granted lock
	owner   model.Link           // the section that holds the lock
	forced  int64                // the epoch of the last lock that an operator has taken away
	// lines has the unhandled deeds of each sender, in order.
	lines map[model.Address][]uint64
}

// doing is what the ledger knows about a deed.
type doing struct {
	name    string
	to      model.Address
	amount  int64
	oneWay  bool
	brief   bool
	link    model.Link // the step that waits for the answer
	Section string     // the section that makes the call
	sender  model.Address

	named   bool // the call has a request id
	stored  bool
	applied bool
	order   int
	output  model.Payload
	refused bool // the deed was refused or has failed, and must never be applied

	kept  bool    // the call is or was in the store
	sent  custody // how owners had lost the shard before the call was stored
	since custody // how owners had lost the shard before the call came into the mailbox
	kills int     // how many processes the call has killed while it was in the store
	// losses is how many tellers have died while they had the call, and fatal how many of them the
	// call has killed while it was in the store.
	losses, fatal int
	aside         bool // the call was set aside
}

// changes reports whether the deed changes the state of an account.
func (d *doing) changes() bool {
	return d.name == scenario.DoAdd || d.name == scenario.DoPass || d.name == scenario.DoSpawn || d.name == scenario.DoDelete
}

func (l *ledger) HoldingOf(a model.Address) *holding {
	n := l.holdings[a]
	if n == nil {
		n = &holding{Address: l.Address(a), states: []uint64{0}, lines: map[model.Address][]uint64{}}
		l.holdings[a] = n
		l.HoldingOrder = append(l.HoldingOrder, n)
	}
	return n
}

// Meant records a call before its sender makes it.
func (l *ledger) Meant(m *model.Message) *doing {
	d, ok := scenario.DeedOf(m.Input)
	if !ok {
		l.Fail("L3: a call of %s with the input %x", m.To, m.Input.Data)
	}
	x := l.Doings[d.ID]
	if x == nil {
		x = &doing{name: m.Name, to: m.To, amount: d.Amount, oneWay: m.OneWay, brief: m.Brief, link: m.From, Section: m.Section}
		l.Doings[d.ID] = x
	}
	if m.RequestID != "" {
		l.requested[m.RequestID], x.named = d.ID, true
	}
	return x
}

// RecordReport records the report of a worker.
func (l *ledger) RecordReport(h *scenario.Handover) {
	n := l.HoldingOf(h.Entity)
	n.hands = append(n.hands, h)
}

// touched returns the entities of a batch, in order.
func (l *ledger) touched(b *store.Batch) (ns []*holding) {
	note := func(k store.EntityKey) {
		l.owns(b, k.Shard)
		n := l.HoldingOf(k.Address)
		if n.Address.Shard != k.Shard {
			l.Fail("I1: %s is written to shard %d", k.Address, k.Shard)
		}
		if !slices.Contains(ns, n) {
			ns = append(ns, n)
		}
	}
	for i := range b.Taken {
		note(b.Taken[i].EntityKey)
	}
	for i := range b.Mailbox {
		note(b.Mailbox[i].EntityKey)
	}
	for i := range b.Entities {
		note(b.Entities[i].Key())
	}

	for i := range b.Requests { // an entity that was created and removed leaves no other row
		if k := &b.Requests[i].RequestKey; k.Address.IsEntity() {
			note(store.EntityKey{Shard: k.Shard, Address: k.Address})
		}
	}

	for _, m := range sentIn(b) {
		if x := l.answers(m); x != nil {
			note(store.EntityKey{Shard: l.s.ShardOf(x.message.To), Address: x.message.To})
		}
		// a batch that locks and releases an entity has no other row of it
		if m.Kind == model.MessageGrant {
			note(store.EntityKey{Shard: l.s.ShardOf(m.From.Address), Address: m.From.Address})
		}
	}

	return ns
}

// entities applies a batch to the entities of the ledger.
func (l *ledger) entities(b *store.Batch) {
	for _, n := range l.touched(b) {
		t := l.traces(b, n)
		t.came = l.came(b, n)
		// A failed deed has no effect, so its order does not matter.
		for id := range t.answers {
			if t.answers[id].Failure != nil {
				l.leaveLine(n, id, false)
			}
		}

		taken := l.mailbox(b, n)
		for i := range taken {
			t.taken = append(t.taken, itemDeed(&taken[i]))
		}

		before, rows := n.Row, 0
		for i := range b.Entities {
			if b.Entities[i].Entity.Address == n.Address.Name {
				l.change(b, n, &b.Entities[i], t)
				rows++
			}
		}

		if rows > 1 {
			l.Fail("L7: a batch writes the row of %s %d times", n.Address.Name, rows)
		}

		// an entity that the batch creates and removes has no row
		if n.Row.Version == before.Version && n.state == nil {
			t.rowless = true
			path, _ := search{l: l, n: n, t: t}.path(nil, nil, nil)
			l.follow(b, n, path, t)
		}

		l.checkLocks(b, n, &before, t, taken)
		for i := range taken {
			l.takenCall(b, n, &taken[i], t)
		}
	}
}

// traces has what the rows of a batch say about the deeds of an entity.
type traces struct {
	life    int64 // epoch of the node that commits
	answers map[uint64]model.Answer
	// taken are deeds that leave the mailbox.
	taken []uint64
	// came are deeds whose messages and requests the batch consumes.
	came []uint64
	// rowless says that the batch writes no row of the entity.
	rowless bool
	// applied are the deeds that the batch applies, in order.
	applied []uint64
}

// answers returns the call that a message answers. It returns nil if the message is not an answer
// to a call of an entity.
func (l *ledger) answers(m *model.Message) *sending {
	if x := l.sends[model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}]; m.Kind == model.MessageAnswer && x != nil && x.message.Kind == model.MessageCall {
		return x
	}
	return nil
}

// traces collects the answers of a batch to callers of an entity.
func (l *ledger) traces(b *store.Batch, n *holding) *traces {
	t := &traces{life: l.Nodes[b.Lane.Node].Epoch, answers: map[uint64]model.Answer{}}
	for i := range b.Requests {
		r := &b.Requests[i]
		id, ok := l.requested[r.ID]
		if r.Address != n.Address.Name || !ok {
			continue
		}
		a, err := model.DecodeAnswer(r.Body)
		if err != nil {
			l.Fail("L3: the answer to %s of %s: %v", r.ID, r.Address, err)
		}
		t.answers[id] = a
	}

	for _, m := range sentIn(b) {
		if x := l.answers(m); x != nil && x.message.To == n.Address.Name {
			d, _ := scenario.DeedOf(x.message.Input)
			t.answers[d.ID] = model.Answer{Output: m.Input, Failure: m.Failure}
		}
	}

	return t
}

// came returns the deeds whose messages and requests to an entity a batch consumes.
func (l *ledger) came(b *store.Batch, n *holding) (ids []uint64) {
	note := func(m *model.Message) {
		if m.Kind == model.MessageCall && m.To == n.Address.Name {
			d, _ := scenario.DeedOf(m.Input)
			ids = append(ids, d.ID)
		}
	}
	for _, k := range b.Inbox {
		if row := l.Inbox[k.ID]; row != nil {
			note(&row.Message)
		}
	}

	for i := range b.Passed {
		note(b.Passed[i].Message)
	}
	for _, c := range b.Cursors {
		rows := l.Channel(c.To, c.From).Rows
		for i := c.Prev; i < min(c.Next, int64(len(rows))); i++ {
			note(&rows[i].Message)
		}
	}

	return ids
}

// mailbox applies the mailbox items of an entity that a batch stores or removes. It returns the
// removed items.
func (l *ledger) mailbox(b *store.Batch, n *holding) (taken []model.MailboxItem) {
	var marked []int64
	for _, k := range b.Taken {
		if k.Address != n.Address.Name {
			continue
		}
		i := slices.IndexFunc(n.Box, func(it model.MailboxItem) bool { return it.Seq == k.Seq })
		if i < 0 {
			l.Fail("L3: item %d of %s is taken, and is not there", k.Seq, k.Address)
		}
		if l.marked(b, n, i) {
			marked = append(marked, k.Seq)
			continue
		}
		taken = append(taken, n.Box[i])
		n.Box = slices.Delete(n.Box, i, i+1)
	}

	for i := range b.Mailbox {
		r := &b.Mailbox[i]
		if r.Address != n.Address.Name || slices.Contains(marked, r.Item.Seq) {
			continue
		}
		if k := len(n.Box); k > 0 && n.Box[k-1].Seq >= r.Item.Seq {
			l.Fail("L4: item %d of %s is stored behind item %d", r.Item.Seq, r.Address, n.Box[k-1].Seq)
		}
		n.Box = append(n.Box, r.Item)
		l.s.Did(scenario.OpMailed)
		if r.Item.Message.Kind == model.MessageCall {
			d := l.Meant(&r.Item.Message)
			if !d.stored { // a read may wait in the mailbox twice
				d.stored, d.since = true, l.custody[n.Address.Shard]
			}
			l.storedIn(&r.Item.Message, n.Address.Shard)
		}
	}

	return taken
}

// change applies a row of an entity.
func (l *ledger) change(b *store.Batch, n *holding, row *store.EntityRow, t *traces) {
	next := row.Entity
	// The new version may be lower than the old one: versions start again at 1 after a delete.
	if row.Prev != n.Row.Version || next.Version < 1 {
		l.Fail("L2: %s goes from version %d to %d, and stands at %d", n.Address.Name, row.Prev, next.Version, n.Row.Version)
	}
	if row.Gone != next.Empty() {
		l.Fail("L8: the row of %s is removed (%v), and there is nothing in it (%v)", n.Address.Name, row.Gone, next.Empty())
	}
	if n.Address.Name.Stateless() {
		l.Fail("L8: %s is a service and has a row", n.Address.Name)
	}
	state := scenario.AccountOf(next.State, next.Exists)
	path, ok := l.pathTo(n, t, &next, state)
	l.checkStateEnd(n, &next, path)
	if !ok {
		l.Fail("L2: %s goes from state %d to %d, which no operation produced", n.Address.Name, scenario.StampOf(n.state), scenario.StampOf(state))
	}
	l.follow(b, n, path, t)
	n.Row, n.state = next, state

	if row.Gone {
		n.Row = model.Entity{}
		l.s.Did(scenario.OpEntityGone)
	}
}

// pathTo finds the hand-overs that lead to the state of a row. It first looks for a path without
// expired states. If there is none, it looks for a path on which the stored state expires, if its
// time is over. Next it also accepts a path on which states expire that the store never had. Last
// it looks for a path on which the stored state expires before its time, which breaks an invariant.
func (l *ledger) pathTo(n *holding, t *traces, next *model.Entity, state *scenario.Account) (path []*scenario.Handover, ok bool) {
	find := search{l: l, n: n, t: t, mayEnd: stateEnds{stored: n.mayEnd(next, l.s.FairTime())}}
	path, ok = find.path(n.state, state, nil)
	if l.s.Has(scenario.Expiring) && (!ok || l.lacks(path, t)) {
		find.mayEnd.others = true
		path, ok = find.path(n.state, state, nil)
	}
	if l.s.Has(scenario.Expiring) && !ok {
		find.mayEnd.stored = true
		path, ok = find.path(n.state, state, nil)
	}
	return path, ok
}

// lacks reports whether a batch answers a call that is not on the path, or takes from the mailbox a
// one-way call that is not on the path. Such a call led to a state that expired in the same batch
// that produced it.
func (l *ledger) lacks(path []*scenario.Handover, t *traces) bool {
	isMissing := func(id uint64, oneWay bool) bool {
		d := l.Doings[id]
		if d == nil || d.oneWay != oneWay || d.applied || !d.changes() || d.name == scenario.DoDelete {
			return false
		}
		return !slices.ContainsFunc(path, func(h *scenario.Handover) bool {
			return slices.ContainsFunc(h.Calls, func(c scenario.Made) bool { return c.ID == id })
		})
	}

	for id := range t.answers {
		if t.answers[id].Failure == nil && isMissing(id, false) {
			return true
		}
	}
	return slices.ContainsFunc(t.taken, func(id uint64) bool { return isMissing(id, true) })
}

// follow applies the hand-overs that a batch makes durable.
func (l *ledger) follow(b *store.Batch, n *holding, path []*scenario.Handover, t *traces) {
	for _, h := range path {
		h.Committed = true
		if isStateEnd(h) {
			l.destroyed += h.Base.Sum
			l.s.Did(scenario.OpEntityExpired)
		}
		for i := range h.Calls {
			l.recordCall(b, n, h, &h.Calls[i], t)
		}
		// a later call of the hand-over has seen the change, even if the last call deletes the
		// entity
		if slices.ContainsFunc(h.Calls, func(c scenario.Made) bool { return c.Changed && c.Name != scenario.DoDelete }) {
			n.reaches(h.Stamp)
		}
		n.reaches(scenario.StampOf(h.End))
	}
}

// hasMail reports whether a deed waits in the mailbox.
func (n *holding) hasMail(deed uint64) bool {
	return slices.ContainsFunc(n.Box, func(it model.MailboxItem) bool { return itemDeed(&it) == deed })
}

// reaches adds a committed state.
func (n *holding) reaches(stamp uint64) {
	if last := n.states[len(n.states)-1]; last != stamp {
		n.states = append(n.states, stamp)
	}
}

// search looks for the hand-overs of an entity that a batch makes durable.
type search struct {
	l      *ledger
	n      *holding
	t      *traces
	mayEnd stateEnds
}

// path finds the hand-overs that lead from one state to another and that follow the hand-overs in
// before. It returns the longest path on which the batch has an answer for every call with a
// waiting caller.
func (s search) path(from, to *scenario.Account, before []*scenario.Handover) (best []*scenario.Handover, ok bool) {
	ok = scenario.StampOf(from) == scenario.StampOf(to)
	for _, h := range s.n.hands {
		after := len(before) == 0 || before[len(before)-1].Stamp < h.Stamp
		if h.Committed || !after || scenario.StampOf(h.Base) != scenario.StampOf(from) || scenario.StampOf(h.End) == scenario.StampOf(from) && from != nil || !s.l.fits(s.n, h, s.t) || overlap(before, h) {
			continue
		}
		if rest, found := s.path(h.End, to, append(slices.Clone(before), h)); found && (!ok || len(rest)+1 >= len(best)) {
			best, ok = append([]*scenario.Handover{h}, rest...), true
		}
	}

	if from != nil && s.l.s.Has(scenario.Expiring) && (len(before) == 0 && s.mayEnd.stored || len(before) > 0 && s.mayEnd.others) {
		if rest, found := s.path(nil, to, before); found && (!ok || len(rest) > len(best)) {
			best, ok = append([]*scenario.Handover{stateEnd(from)}, rest...), true
		}
	}
	return best, ok
}

// overlap reports whether a hand-over repeats calls of earlier hand-overs.
func overlap(before []*scenario.Handover, h *scenario.Handover) bool {
	return slices.ContainsFunc(before, func(o *scenario.Handover) bool {
		return slices.ContainsFunc(o.Calls, func(c scenario.Made) bool {
			return slices.ContainsFunc(h.Calls, func(d scenario.Made) bool { return d.ID == c.ID && c.Changed })
		})
	})
}

// fits reports whether a batch has the answers to the calls of a hand-over that changes something.
// A node commits only its own hand-overs: the hand-overs of earlier nodes are lost.
func (l *ledger) fits(n *holding, h *scenario.Handover, t *traces) bool {
	if h.Life != t.life {
		return false
	}

	changed, told := false, !t.rowless && (h.Base != nil || h.End != nil) // the row shows it
	for i := range h.Calls {
		c := &h.Calls[i]
		changed = changed || c.Changed
		d := l.Doings[c.ID]
		// a read may wait in the mailbox twice
		if d == nil || c.Changed && (d.applied || d.refused || n.hasMail(c.ID)) {
			return false
		}
		told = told || slices.Contains(t.taken, c.ID) || slices.Contains(t.came, c.ID)
		if t.rowless && (h.Base != nil || h.End != nil) && d.sender.IsZero() && !d.named {
			told = true // such a call leaves no trace in the store
		}
		a, answered := t.answers[c.ID]
		if d.oneWay || d.brief {
			// If a client's call went directly to the owner, and the owner executed it immediately,
			// the batch may have only the request id of the call, or nothing if the call has no id.
			// Any other call that leaves nothing in the batch was undone.
			traced := answered || slices.Contains(t.taken, c.ID) || slices.Contains(t.came, c.ID)
			if c.Changed && !traced && (d.named || !d.sender.IsZero()) {
				return false
			}
			told = told || answered
			continue
		}

		told = true
		if !answered || !a.Output.Equal(c.Result.Output) || (a.Failure == nil) != (c.Result.Failure == nil) {
			return false
		}
	}

	return changed && told
}

// recordCall records a call that the batch makes durable.
//
//arch:parameters all that a check of one call compares
func (l *ledger) recordCall(b *store.Batch, n *holding, h *scenario.Handover, c *scenario.Made, t *traces) {
	d := l.Doings[c.ID]
	if d == nil || d.to != n.Address.Name || d.name != c.Name {
		l.Fail("L3: %s executes %x (%s), which no caller has requested", n.Address.Name, c.ID, c.Name)
	}
	if c.Changed && n.hasMail(c.ID) {
		l.Fail("L6: deed %x (%s) is applied to %s and stays in its mailbox", c.ID, c.Name, n.Address.Name)
	}

	if !c.Changed {
		l.leaveLine(n, c.ID, false)
		return
	}

	switch {
	case d.applied:
		l.Fail("L3: deed %x (%s) is applied to %s a second time", c.ID, c.Name, n.Address.Name)
	case d.refused:
		l.Fail("L5: deed %x (%s) is applied to %s, although a caller was told that it is not", c.ID, c.Name, n.Address.Name)
	}

	l.doneDeeds++
	d.applied, d.output, d.order = true, c.Result.Output, l.doneDeeds
	t.applied = append(t.applied, c.ID)
	l.leaveLine(n, c.ID, true)
	l.s.Did(scenario.OpApplied)

	switch c.Name {
	case scenario.DoDelete:
		l.destroyed += h.SumBefore(c)
		l.s.Did(scenario.OpEntityDeleted)
	case scenario.DoAdd:
		if d.sender.IsEntity() {
			l.onItsWay -= c.Amount
		} else {
			l.paid += c.Amount
		}
	case scenario.DoPass:
		l.onItsWay += c.Amount
	}

	for i := range c.Result.Messages {
		m := &c.Result.Messages[i]
		if !sendsAny(b, func(o *model.Message) bool { return o.Kind == m.Kind && o.To == m.To && o.Input.Equal(m.Input) }) {
			l.Fail("L6: deed %x (%s) of %s is durable, and the %s that it sends to %s is not", c.ID, c.Name, n.Address.Name, m.Kind, m.To)
		}
	}
}

func itemDeed(it *model.MailboxItem) uint64 {
	if it.Message.Kind != model.MessageCall {
		return 0
	}
	d, _ := scenario.DeedOf(it.Message.Input)
	return d.ID
}

// takenCall checks that a call that leaves the mailbox was handled. It was handled if it is
// applied, or if its caller gets an answer.
func (l *ledger) takenCall(b *store.Batch, n *holding, it *model.MailboxItem, t *traces) {
	if it.Message.Kind != model.MessageCall {
		return
	}
	id := itemDeed(it)
	d := l.Doings[id]
	_, told := t.answers[id]

	// The store has messages of steps and entities in the order of their arrival. A request of a
	// client may have arrived earlier than the place of its row says.
	barrier := slices.ContainsFunc(n.Box, func(o model.MailboxItem) bool { return o.Message.Kind == model.MessageLock && o.Seq < it.Seq })
	switch {
	case l.convicted(b, n, id):
	case d.applied && d.Section == "" && barrier && !d.sender.IsZero() && !n.Address.Sick:
		l.Fail("L27: deed %x of %s is applied to %s before a lock that was asked for first", id, d.sender, n.Address.Name)
	case !d.oneWay && !told:
		l.Fail("L3: deed %x (%s) leaves the mailbox of %s, and its caller gets no answer", id, d.name, n.Address.Name)
	case d.oneWay && d.changes() && d.name != scenario.DoDelete && !d.applied:
		l.Fail("L3: deed %x (%s) leaves the mailbox of %s and is not applied", id, d.name, n.Address.Name)
	}

	l.leaveLine(n, id, false)
}

// answeredCall checks that the answer to a call agrees with what happened to the call.
func (l *ledger) answeredCall(id uint64, a *model.Answer) {
	d := l.Doings[id]
	if a.Failure != nil {
		d.refused = true
		if d.applied {
			l.Fail("L5: deed %x (%s) of %s is applied, although its caller is told that it failed: %s", id, d.name, d.to, a.Failure.Message)
		}
		l.leaveLine(l.HoldingOf(d.to), id, false)
		l.s.Did(scenario.OpDeedFailed)
		return
	}

	if d.oneWay {
		return // the call is stored, which consume and serve check
	}

	switch {
	case d.name == scenario.DoFail:
		l.Fail("L5: deed %x of %s is meant to fail, and did not", id, d.to)
	case d.changes() && (d.applied || d.name != scenario.DoDelete) && (!d.applied || !d.output.Equal(a.Output)):
		l.Fail("L3: deed %x (%s) of %s is answered with %x; applied: %v, %x", id, d.name, d.to, a.Output.Data, d.applied, d.output.Data)
	}

	if !d.changes() {
		l.leaveLine(l.HoldingOf(d.to), id, false)
	}
}

// stand adds a deed to the line of its sender.
func (l *ledger) stand(m *model.Message, sender model.Address) {
	d := l.Meant(m)
	d.sender = sender
	x, _ := scenario.DeedOf(m.Input)
	n := l.HoldingOf(m.To)
	// other operations may leave no trace
	if m.Name == scenario.DoAdd || m.Name == scenario.DoPass || m.Name == scenario.DoSpawn {
		n.lines[sender] = append(n.lines[sender], x.ID)
	}
}

// leaveLine removes a deed from the line of its sender. An applied deed must be the first in the
// line.
func (l *ledger) leaveLine(n *holding, id uint64, first bool) {
	d := l.Doings[id]
	if d == nil || d.sender.IsZero() {
		return
	}
	line := n.lines[d.sender]
	i := slices.Index(line, id)
	if i < 0 {
		return
	}
	if first && i > 0 && !n.Address.Sick {
		l.Fail("L4: deed %x of %s is applied to %s before deed %x, which was sent first", id, d.sender, n.Address.Name, line[0])
	}
	n.lines[d.sender] = slices.Delete(line, i, i+1)
}

// sentToEntity records a message to an entity: a call of a step or of another entity.
func (l *ledger) sentToEntity(m *model.Message) {
	if m.Kind != model.MessageCall {
		return
	}
	d, _ := scenario.DeedOf(m.Input)
	sender := m.From.Address

	if m.From.ID == "" {
		if l.Doings[d.ID] != nil {
			l.Fail("L6: %s sends deed %x to %s a second time", scenario.EntityOf(d.Source), d.ID, m.To)
		}
		sender = scenario.EntityOf(d.Source)
		l.s.Did(scenario.OpPassed)
		if sender.Stateless() {
			l.onItsWay += d.Amount
			l.paid += d.Amount
		}
	} else {
		l.s.Did(scenario.OpDeedSent)
	}

	l.stand(m, sender)
}

// checkArrival checks that a message to an entity has had its effect.
func (l *ledger) checkArrival(b *store.Batch, m *model.Message) {
	n := l.HoldingOf(m.To)
	switch m.Kind { //nolint:exhaustive // other kinds have no effect to check
	case model.MessageCall:
		d, _ := scenario.DeedOf(m.Input)
		x := l.Doings[d.ID]
		waits := slices.ContainsFunc(n.Box, func(it model.MailboxItem) bool { return itemDeed(&it) == d.ID })
		if _, told := l.traces(b, n).answers[d.ID]; !waits && !told && !x.applied && !x.brief && (x.changes() || !x.oneWay) {
			l.Fail("L3: deed %x (%s) has come to %s, and neither waits there nor is applied", d.ID, m.Name, m.To)
		}
	case model.MessageLock, model.MessageRelease, model.MessageUnlock, model.MessageMailbox:
		l.lockArrived(b, n, m)
	}
}

// Seen returns the position of a state among the committed states, from the given position on. It
// returns -1 if the state was not committed.
func (n *holding) Seen(stamp uint64, from int) int {
	for i := from; i < len(n.states); i++ {
		if n.states[i] == stamp {
			return i
		}
	}
	return -1
}

// CheckHoldings compares the store with the ledger at the end: no call waits, no entity is locked,
// and the sum of all money is right.
func (s *Oracle) CheckHoldings() {
	l := s.Ledger
	var sum int64
	for _, n := range l.HoldingOrder {
		a := n.Address.Name
		got, err := s.Store.LoadEntity(context.Background(), store.EntityKey{Shard: n.Address.Shard, Address: a}, 10, 1<<20)
		if err != nil {
			s.Fail("%s: %v", a, err)
		}
		if len(got.Mailbox)+len(n.Box) > 0 {
			s.Fail("E42: %d items, %d by the ledger, wait for %s", len(got.Mailbox), len(n.Box), a)
		}
		if (got.Entity == nil) != (n.Row.Version == 0) || got.Entity != nil && (got.Entity.Version != n.Row.Version || !got.Entity.State.Equal(n.Row.State)) {
			s.Fail("L2: the row of %s is %+v in the store, %+v by the ledger", a, got.Entity, n.Row)
		}
		if n.Row.Locked() {
			s.Fail("L28: %s is locked by %s of %s, and all runs are over", a, n.Row.Holder.ID, scenario.Short(n.Row.Holder.Run))
		}

		for sender, line := range n.lines {
			if len(line) > 0 {
				s.Fail("L3: deed %x, which %s has sent to %s, was never dealt with", line[0], sender, a)
			}
		}

		if n.state == nil {
			continue
		}
		sum += n.state.Sum

		own := int64(0)
		for _, id := range n.state.Deeds {
			switch d := l.Doings[id]; d.name {
			case scenario.DoAdd:
				own += d.amount
			case scenario.DoPass:
				own -= d.amount
			}
		}

		if own != n.state.Sum {
			s.Fail("L2: the sum of %s is %d, what was applied to it makes %d", a, n.state.Sum, own)
		}
	}

	if l.onItsWay != 0 || sum != l.paid-l.destroyed {
		s.Fail("L40: the accounts have %d, %d is on its way; %d was paid in, %d was lost with accounts", sum, l.onItsWay, l.paid, l.destroyed)
	}
	s.checkDeeds()
}

// checkDeeds compares the answers that callers got with the applied deeds.
func (s *Oracle) checkDeeds() {
	last := map[model.Address][]*Op{}
	for _, o := range s.Ops {
		if o.Message.Kind != model.MessageCall {
			continue
		}
		id, _ := scenario.DeedOf(o.Message.Input)
		d := s.Ledger.Doings[id.ID]
		if !d.changes() || d.name == scenario.DoDelete {
			continue
		}

		switch {
		case o.Acked && !d.applied && !d.aside:
			s.Fail("L3: %s was accepted and never done", o)
		case o.Refused != nil && o.Tries == 1 && o.Shadow == nil && !s.isRepeated(o) && d.applied:
			s.Fail("L5: %s was refused (%v) and done", o, o.Refused)
		}

		// A late copy says nothing about the order, because the first copy may have been applied
		// long before. A call that was set aside has no place in the order.
		if !o.Acked || !d.applied || o.Shadow != nil || s.Ledger.Address(o.Message.To).Sick {
			continue
		}

		for _, before := range last[o.Message.To] {
			x, _ := scenario.DeedOf(before.Message.Input)
			if before.User == o.User && before.Ended <= o.Invoked && s.Ledger.Doings[x.ID].order > d.order {
				s.Fail("L4: %s was done after %s, which was sent later", before, o)
			}
		}

		last[o.Message.To] = append(last[o.Message.To], o)
	}
}
