package sim

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// What must hold for entities, by the numbers in internal/archtest/testdata/invariants.txt: each
// deed is applied once (L3), on the state that the one before it has left (L2), in the order of its
// sender (L4), and the same commit stores the answer to the caller (L6). A failed deed has changed
// nothing (L5). Views see committed state, and never less than before (L10). Only the commit that
// handles a mailbox item takes it.

// holding is the expected content of the store for an entity.
type holding struct {
	address *address
	row     model.Entity // zero if there is none
	state   *account
	box     []model.MailboxItem
	hands   []*handover // reported by workers
	states  []uint64    // stamps of the committed states, in order; zero for no state
	shown   int         // the last one of them that a caller has seen
	epoch   int64       // of the last granted lock
	owner   model.Link  // the section that holds the lock
	forced  int64       // the epoch of the last lock that an operator has taken away
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
	link    model.Link // the step that waits for it
	section string     // the section that makes the call
	sender  model.Address

	named   bool // the call has a request id
	stored  bool
	applied bool
	order   int
	output  model.Payload
	refused bool // it was refused or has failed, and must never be applied
}

// changes reports whether the deed changes the state of an account.
func (d *doing) changes() bool {
	return d.name == doAdd || d.name == doPass || d.name == doSpawn || d.name == doDelete
}

func (l *ledger) holdingOf(a model.Address) *holding {
	n := l.holdings[a]
	if n == nil {
		n = &holding{address: l.address(a), states: []uint64{0}, lines: map[model.Address][]uint64{}}
		l.holdings[a] = n
		l.holdingOrder = append(l.holdingOrder, n)
	}
	return n
}

// meant records a call before its sender makes it.
func (l *ledger) meant(m *model.Message) *doing {
	d, ok := deedOf(m.Input)
	if !ok {
		l.fail("L3: a call of %s with the input %x", m.To, m.Input.Data)
	}
	x := l.doings[d.id]
	if x == nil {
		x = &doing{name: m.Name, to: m.To, amount: d.amount, oneWay: m.OneWay, brief: m.Brief, link: m.From, section: m.Section}
		l.doings[d.id] = x
	}
	if m.RequestID != "" {
		l.requested[m.RequestID], x.named = d.id, true
	}
	return x
}

// handed records the report of a worker.
func (l *ledger) handed(h *handover) {
	n := l.holdingOf(h.entity)
	n.hands = append(n.hands, h)
}

// touched returns the entities of a batch, in order.
func (l *ledger) touched(b *store.Batch) (ns []*holding) {
	note := func(k store.EntityKey) {
		l.owns(b, k.Shard)
		n := l.holdingOf(k.Address)
		if n.address.shard != k.Shard {
			l.fail("I1: %s is written to shard %d", k.Address, k.Shard)
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

	for i := range b.Requests { // an entity that came and went leaves no other row
		if k := &b.Requests[i].RequestKey; k.Address.IsEntity() {
			note(store.EntityKey{Shard: k.Shard, Address: k.Address})
		}
	}

	for i := range b.Messages {
		if x := l.answers(&b.Messages[i].Message); x != nil {
			note(store.EntityKey{Shard: b.Messages[i].From, Address: x.message.To})
		}
	}

	return ns
}

// entities applies a batch to the entities of the ledger.
func (l *ledger) entities(b *store.Batch) {
	for _, n := range l.touched(b) {
		t := l.traces(b, n)
		taken := l.mailbox(b, n)
		for i := range taken {
			t.taken = append(t.taken, itemDeed(&taken[i]))
		}

		before, rows := n.row, 0
		for i := range b.Entities {
			if b.Entities[i].Entity.Address == n.address.name {
				l.change(b, n, &b.Entities[i], t)
				rows++
			}
		}

		if rows > 1 {
			l.fail("L7: a batch writes the row of %s %d times", n.address.name, rows)
		}

		// an entity that was created and removed leaves no row
		if n.row.Version == before.Version && n.state == nil {
			t.rowless, t.came = true, l.came(b, n)
			path, _ := l.path(n, t, nil, nil, nil)
			l.follow(b, n, path, t)
		}

		l.locked(b, n, &before, t, taken)
		for i := range taken {
			l.takenCall(b, n, &taken[i], t)
		}
	}
}

// traces has what a batch says about calls of an entity, by deed.
type traces struct {
	life    int64 // epoch of the node that commits
	answers map[uint64]model.Answer
	// taken are deeds that leave the mailbox.
	taken []uint64
	// rowless says that the batch writes no row of the entity. Then came has the deeds whose
	// messages and requests the batch consumes.
	rowless bool
	came    []uint64
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
	t := &traces{life: l.nodes[b.Lane.Node].epoch, answers: map[uint64]model.Answer{}}
	for i := range b.Requests {
		r := &b.Requests[i]
		id, ok := l.requested[r.ID]
		if r.Address != n.address.name || !ok {
			continue
		}
		a, err := model.DecodeAnswer(r.Body)
		if err != nil {
			l.fail("L3: the answer to %s of %s: %v", r.ID, r.Address, err)
		}
		t.answers[id] = a
	}

	for i := range b.Messages {
		m := &b.Messages[i].Message
		if x := l.answers(m); x != nil && x.message.To == n.address.name {
			d, _ := deedOf(x.message.Input)
			t.answers[d.id] = model.Answer{Output: m.Input, Failure: m.Failure}
		}
	}

	return t
}

// came returns the deeds whose messages and requests to an entity a batch consumes.
func (l *ledger) came(b *store.Batch, n *holding) (ids []uint64) {
	note := func(m *model.Message) {
		if m.Kind == model.MessageCall && m.To == n.address.name {
			d, _ := deedOf(m.Input)
			ids = append(ids, d.id)
		}
	}
	for _, k := range b.Inbox {
		if row := l.inbox[k.ID]; row != nil {
			note(&row.Message)
		}
	}

	for _, c := range b.Cursors {
		rows := l.channel(c.To, c.From).rows
		for i := c.Prev; i < min(c.Next, int64(len(rows))); i++ {
			note(&rows[i].Message)
		}
	}

	return ids
}

// mailbox applies the items of an entity that a batch stores and takes. It returns the taken ones.
func (l *ledger) mailbox(b *store.Batch, n *holding) (taken []model.MailboxItem) {
	for _, k := range b.Taken {
		if k.Address != n.address.name {
			continue
		}
		i := slices.IndexFunc(n.box, func(it model.MailboxItem) bool { return it.Seq == k.Seq })
		if i < 0 {
			l.fail("L3: item %d of %s is taken, and is not there", k.Seq, k.Address)
		}
		taken = append(taken, n.box[i])
		n.box = slices.Delete(n.box, i, i+1)
	}

	for i := range b.Mailbox {
		r := &b.Mailbox[i]
		if r.Address != n.address.name {
			continue
		}
		if k := len(n.box); k > 0 && n.box[k-1].Seq >= r.Item.Seq {
			l.fail("L4: item %d of %s is stored behind item %d", r.Item.Seq, r.Address, n.box[k-1].Seq)
		}
		n.box = append(n.box, r.Item)
		l.s.did(opMailed)
		if r.Item.Message.Kind == model.MessageCall {
			l.meant(&r.Item.Message).stored = true
		}
	}

	return taken
}

// change applies a row of an entity.
func (l *ledger) change(b *store.Batch, n *holding, row *store.EntityRow, t *traces) {
	next := row.Entity
	// the entity may have been deleted in between
	if row.Prev != n.row.Version || next.Version < 1 {
		l.fail("L2: %s goes from version %d to %d, and stands at %d", n.address.name, row.Prev, next.Version, n.row.Version)
	}
	if row.Gone != next.Empty() {
		l.fail("L8: the row of %s is removed (%v), and there is nothing in it (%v)", n.address.name, row.Gone, next.Empty())
	}
	if n.address.name.Stateless() {
		l.fail("L8: %s is a service and has a row", n.address.name)
	}
	state := accountOf(next.State, next.Exists)
	path, ok := l.path(n, t, n.state, state, nil)
	if !ok {
		l.fail("L2: %s goes from state %d to %d, which nobody has made of it", n.address.name, stampOf(n.state), stampOf(state))
	}
	l.follow(b, n, path, t)
	n.row, n.state = next, state

	if row.Gone {
		n.row = model.Entity{}
		l.s.did(opEntityGone)
	}
}

// follow applies the hand-overs that a batch makes durable.
func (l *ledger) follow(b *store.Batch, n *holding, path []*handover, t *traces) {
	for _, h := range path {
		h.committed = true
		for i := range h.calls {
			l.applied(b, n, h, &h.calls[i], t)
		}
		if last := n.states[len(n.states)-1]; last != stampOf(h.end) {
			n.states = append(n.states, stampOf(h.end))
		}
	}
}

// path finds the hand-overs that lead from one state to another: the longest path on which the
// batch has an answer for every call with a waiting caller.
//
//arch:parameters a search; before grows from call to call
func (l *ledger) path(n *holding, t *traces, from, to *account, before []*handover) (best []*handover, ok bool) {
	ok = stampOf(from) == stampOf(to)
	for _, h := range n.hands {
		after := len(before) == 0 || before[len(before)-1].stamp < h.stamp
		if h.committed || !after || stampOf(h.base) != stampOf(from) || stampOf(h.end) == stampOf(from) && from != nil || !l.fits(n, h, t) || overlap(before, h) {
			continue
		}
		if rest, found := l.path(n, t, h.end, to, append(slices.Clone(before), h)); found && (!ok || len(rest)+1 >= len(best)) {
			best, ok = append([]*handover{h}, rest...), true
		}
	}
	return best, ok
}

// overlap reports whether a hand-over repeats calls of earlier ones.
func overlap(before []*handover, h *handover) bool {
	return slices.ContainsFunc(before, func(o *handover) bool {
		return slices.ContainsFunc(o.calls, func(c made) bool {
			return slices.ContainsFunc(h.calls, func(d made) bool { return d.id == c.id && c.changed })
		})
	})
}

// fits reports whether a batch has the answers to the calls of a hand-over that changes something.
// A node commits only its own hand-overs: the hand-overs of earlier nodes are lost.
func (l *ledger) fits(n *holding, h *handover, t *traces) bool {
	if h.life != t.life {
		return false
	}

	changed, told := false, !t.rowless && (h.base != nil || h.end != nil) // the row has it
	for i := range h.calls {
		c := &h.calls[i]
		changed = changed || c.changed
		d := l.doings[c.id]
		if d == nil || (d.applied || d.refused) && c.changed || slices.ContainsFunc(n.box, func(it model.MailboxItem) bool { return itemDeed(&it) == c.id }) {
			return false
		}
		told = told || slices.Contains(t.taken, c.id) || slices.Contains(t.came, c.id)
		if t.rowless && (h.base != nil || h.end != nil) && d.sender.IsZero() && !d.named {
			told = true // such a call leaves no trace in the store
		}
		a, answered := t.answers[c.id]
		if d.oneWay || d.brief {
			// Of a client's call that came straight to its owner and was made at once, the batch
			// may hold only the request id.
			told = told || answered
			continue
		}

		told = true
		if !answered || !a.Output.Equal(c.result.Output) || (a.Failure == nil) != (c.result.Failure == nil) {
			return false
		}
	}

	return changed && told
}

// applied records a call that the batch makes durable.
//
//arch:parameters all that a check of one call compares
func (l *ledger) applied(b *store.Batch, n *holding, h *handover, c *made, t *traces) {
	d := l.doings[c.id]
	if d == nil || d.to != n.address.name || d.name != c.name {
		l.fail("L3: %s does %x (%s), which nobody has asked of it", n.address.name, c.id, c.name)
	}
	if slices.ContainsFunc(n.box, func(it model.MailboxItem) bool { return itemDeed(&it) == c.id }) {
		l.fail("L6: deed %x (%s) is applied to %s and stays in its mailbox", c.id, c.name, n.address.name)
	}

	if !c.changed {
		l.leaveLine(n, c.id, false)
		return
	}

	switch {
	case d.applied:
		l.fail("L3: deed %x (%s) is applied to %s a second time", c.id, c.name, n.address.name)
	case d.refused:
		l.fail("L5: deed %x (%s) is applied to %s, and somebody was told that it is not", c.id, c.name, n.address.name)
	}

	l.doneDeeds++
	d.applied, d.output, d.order = true, c.result.Output, l.doneDeeds
	t.applied = append(t.applied, c.id)
	l.leaveLine(n, c.id, true)
	l.s.did(opApplied)

	switch c.name {
	case doDelete:
		l.destroyed += h.sumBefore(c)
		l.s.did(opEntityDeleted)
	case doAdd:
		if d.sender.IsEntity() {
			l.onItsWay -= c.amount
		} else {
			l.paid += c.amount
		}
	case doPass:
		l.onItsWay += c.amount
	}

	for i := range c.result.Messages {
		m := &c.result.Messages[i]
		if !slices.ContainsFunc(b.Messages, func(r store.MessageRow) bool {
			return r.Message.Kind == m.Kind && r.Message.To == m.To && r.Message.Input.Equal(m.Input)
		}) {
			l.fail("L6: deed %x (%s) of %s is durable, and the %s that it sends to %s is not", c.id, c.name, n.address.name, m.Kind, m.To)
		}
	}
}

// sumBefore is the sum of an account before a call of a hand-over.
func (h *handover) sumBefore(c *made) (sum int64) {
	if h.base != nil {
		sum = h.base.sum
	}

	for i := range h.calls {
		o := &h.calls[i]
		switch {
		case o.id == c.id:
			return sum
		case !o.changed:
		case o.name == doDelete:
			sum = 0
		case o.name == doAdd:
			sum += o.amount
		case o.name == doPass:
			sum -= o.amount
		}
	}

	return sum
}

func itemDeed(it *model.MailboxItem) uint64 {
	if it.Message.Kind != model.MessageCall {
		return 0
	}
	d, _ := deedOf(it.Message.Input)
	return d.id
}

// takenCall checks that a call that leaves the mailbox was handled: it is applied, or its caller
// gets an answer.
func (l *ledger) takenCall(b *store.Batch, n *holding, it *model.MailboxItem, t *traces) {
	if it.Message.Kind != model.MessageCall {
		return
	}
	id := itemDeed(it)
	d := l.doings[id]
	_, told := t.answers[id]

	// The store keeps messages of steps and entities in order of arrival. A request of a client may
	// be older than its row.
	barrier := slices.ContainsFunc(n.box, func(o model.MailboxItem) bool { return o.Message.Kind == model.MessageLock && o.Seq < it.Seq })
	switch {
	case d.applied && d.section == "" && barrier && !d.sender.IsZero() && !n.address.sick:
		l.fail("L27: deed %x of %s is applied to %s before a lock that was asked for first", id, d.sender, n.address.name)
	case !d.oneWay && !told:
		l.fail("L3: deed %x (%s) leaves the mailbox of %s, and nobody is told what came of it", id, d.name, n.address.name)
	case d.oneWay && d.changes() && d.name != doDelete && !d.applied:
		l.fail("L3: deed %x (%s) leaves the mailbox of %s and is not applied", id, d.name, n.address.name)
	}

	l.leaveLine(n, id, false)
}

// answeredCall checks that the answer to a call matches its state.
func (l *ledger) answeredCall(id uint64, a *model.Answer) {
	d := l.doings[id]
	if a.Failure != nil {
		d.refused = true
		if d.applied {
			l.fail("L5: deed %x (%s) of %s is applied, and somebody is told that it failed: %s", id, d.name, d.to, a.Failure.Message)
		}
		l.leaveLine(l.holdingOf(d.to), id, false)
		l.s.did(opDeedFailed)
		return
	}

	if d.oneWay {
		return // the call is stored, which consume and serve check
	}

	switch {
	case d.name == doFail:
		l.fail("L5: deed %x of %s is meant to fail, and did not", id, d.to)
	case d.changes() && (d.applied || d.name != doDelete) && (!d.applied || !d.output.Equal(a.Output)):
		l.fail("L3: deed %x (%s) of %s is answered with %x; applied: %v, %x", id, d.name, d.to, a.Output.Data, d.applied, d.output.Data)
	}

	if !d.changes() {
		l.leaveLine(l.holdingOf(d.to), id, false)
	}
}

// stand adds a deed to the line of its sender.
func (l *ledger) stand(m *model.Message, sender model.Address) {
	d := l.meant(m)
	d.sender = sender
	x, _ := deedOf(m.Input)
	n := l.holdingOf(m.To)
	if m.Name == doAdd || m.Name == doPass || m.Name == doSpawn { // the others may leave no trace
		n.lines[sender] = append(n.lines[sender], x.id)
	}
}

// leaveLine removes a deed from the line of its sender. An applied deed must be the first.
func (l *ledger) leaveLine(n *holding, id uint64, first bool) {
	d := l.doings[id]
	if d == nil || d.sender.IsZero() {
		return
	}
	line := n.lines[d.sender]
	i := slices.Index(line, id)
	if i < 0 {
		return
	}
	if first && i > 0 && !n.address.sick {
		l.fail("L4: deed %x of %s is applied to %s before deed %x, which was sent first", id, d.sender, n.address.name, line[0])
	}
	n.lines[d.sender] = slices.Delete(line, i, i+1)
}

// sentToEntity records a message to an entity: a call of a step or of another entity.
func (l *ledger) sentToEntity(m *model.Message) {
	if m.Kind != model.MessageCall {
		return
	}
	d, _ := deedOf(m.Input)
	sender := m.From.Address

	if m.From.ID == "" {
		if l.doings[d.id] != nil {
			l.fail("L6: %s sends deed %x to %s a second time", entityOf(d.source), d.id, m.To)
		}
		sender = entityOf(d.source)
		l.s.did(opPassed)
		if sender.Stateless() {
			l.onItsWay += d.amount
			l.paid += d.amount
		}
	} else {
		l.s.did(opDeedSent)
	}

	l.stand(m, sender)
}

// arrived checks that a message to an entity has had its effect.
func (l *ledger) arrived(b *store.Batch, m *model.Message) {
	n := l.holdingOf(m.To)
	switch m.Kind { //nolint:exhaustive // the others have none
	case model.MessageCall:
		d, _ := deedOf(m.Input)
		x := l.doings[d.id]
		waits := slices.ContainsFunc(n.box, func(it model.MailboxItem) bool { return itemDeed(&it) == d.id })
		if _, told := l.traces(b, n).answers[d.id]; !waits && !told && !x.applied && !x.brief && (x.changes() || !x.oneWay) {
			l.fail("L3: deed %x (%s) has come to %s, and neither waits there nor is applied", d.id, m.Name, m.To)
		}
	case model.MessageLock, model.MessageRelease, model.MessageUnlock, model.MessageMailbox:
		l.lockArrived(b, n, m)
	}
}

// seen returns the position of a state among the committed states, from the given position on. It
// returns -1 if the state was not committed.
func (n *holding) seen(stamp uint64, from int) int {
	for i := from; i < len(n.states); i++ {
		if n.states[i] == stamp {
			return i
		}
	}
	return -1
}

// checkOperate checks the operations that a lane hands to a worker of entities: views run on
// durable state (L10).
func (sh *shell) checkOperate(o *model.Operations) {
	s := sh.s
	if o.Entity.Stateless() || o.Calls[0].Name != doRead {
		return
	}
	n := s.ledger.holdingOf(o.Entity)
	if d, _ := deedOf(o.Calls[0].Input); s.ledger.doings[d.id] != nil && s.ledger.doings[d.id].section != "" {
		return // in a section a view is an ordinary call
	}
	if n.seen(stampOf(accountOf(o.State, o.Exists)), 0) < 0 {
		s.fail("L10: a view of %s is made on a state that is not in the store", o.Entity)
	}
}

// checkHoldings compares the store with the ledger at the end: no call waits, no entity is locked,
// and the sum of all money is right.
func (s *Sim) checkHoldings() {
	l := s.ledger
	var sum int64
	for _, n := range l.holdingOrder {
		a := n.address.name
		got, err := s.disk.mem.LoadEntity(background, store.EntityKey{Shard: n.address.shard, Address: a}, 10, 1<<20)
		if err != nil {
			s.fail("%s: %v", a, err)
		}
		if len(got.Mailbox)+len(n.box) > 0 {
			s.fail("E42: %d items, %d by the ledger, wait for %s", len(got.Mailbox), len(n.box), a)
		}
		if (got.Entity == nil) != (n.row.Version == 0) || got.Entity != nil && (got.Entity.Version != n.row.Version || !got.Entity.State.Equal(n.row.State)) {
			s.fail("L2: the row of %s is %+v in the store, %+v by the ledger", a, got.Entity, n.row)
		}
		if n.row.Locked() {
			s.fail("L28: %s is locked by %s of %s, and all runs are over", a, n.row.Holder.ID, short(n.row.Holder.Run))
		}

		for sender, line := range n.lines {
			if len(line) > 0 {
				s.fail("L3: deed %x, which %s has sent to %s, was never dealt with", line[0], sender, a)
			}
		}

		if n.state == nil {
			continue
		}
		sum += n.state.sum

		own := int64(0)
		for _, id := range n.state.deeds {
			switch d := l.doings[id]; d.name {
			case doAdd:
				own += d.amount
			case doPass:
				own -= d.amount
			}
		}

		if own != n.state.sum {
			s.fail("L2: the sum of %s is %d, what was applied to it makes %d", a, n.state.sum, own)
		}
	}

	if l.onItsWay != 0 || sum != l.paid-l.destroyed {
		s.fail("L40: the accounts have %d, %d is on its way; %d was paid in, %d was lost with accounts", sum, l.onItsWay, l.paid, l.destroyed)
	}
	s.checkDeeds()
}

// checkDeeds compares the answers that callers got with the applied deeds.
func (s *Sim) checkDeeds() {
	last := map[model.Address][]*op{}
	for _, o := range s.ops {
		if o.message.Kind != model.MessageCall {
			continue
		}
		id, _ := deedOf(o.message.Input)
		d := s.ledger.doings[id.id]
		if !d.changes() || d.name == doDelete {
			continue
		}

		switch {
		case o.acked && !d.applied:
			s.fail("L3: %s was accepted and never done", o)
		case o.refused != nil && o.tries == 1 && o.shadow == nil && !o.repeated(s) && d.applied:
			s.fail("L5: %s was refused (%v) and done", o, o.refused)
		}

		if !o.acked || s.ledger.address(o.message.To).sick {
			continue
		}

		for _, before := range last[o.message.To] {
			x, _ := deedOf(before.message.Input)
			if before.user == o.user && before.ended <= o.invoked && s.ledger.doings[x.id].order > d.order {
				s.fail("L4: %s was done after %s, which was sent later", before, o)
			}
		}

		last[o.message.To] = append(last[o.message.To], o)
	}
}
