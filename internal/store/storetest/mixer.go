package storetest

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// mixer fills one random batch of a duel. A batch has at most one write per row of a table, as the
// port demands.
type mixer struct {
	*duel
	b    *store.Batch
	node model.NodeID
	// sent and received are the positions that the batch adds.
	sent, received map[[2]model.ShardID]int64
}

// seldom returns true one time in ten. The caller then adds a row that may not be valid.
func (m *mixer) seldom() bool { return m.rng.IntN(10) == 0 }

func (m *mixer) add() {
	rows := [...]func(){
		m.start, m.start, m.end, m.remove, m.mark, m.label, m.label, m.event, m.event, m.timer, m.timer, m.stop, m.stopAll,
		m.die, m.die, m.requeue, m.forget, m.datum, m.datum, m.line, m.line, m.entity, m.entity, m.call, m.call, m.take, m.message, m.message, m.cursor, m.consume, m.deferRequest, m.request, m.free,
	}
	rows[m.rng.IntN(len(rows))]()
}

// hasTouched reports whether the batch writes the row of a run already.
func (m *mixer) hasTouched(key store.RunKey) bool {
	return slices.Contains(m.b.Deletes, key) || slices.ContainsFunc(m.b.Closes, func(r store.CloseRow) bool { return r.RunKey == key }) ||
		slices.ContainsFunc(m.b.Marks, func(r store.MarkRow) bool { return r.RunKey == key }) ||
		slices.ContainsFunc(m.b.Starts, func(r store.StartRow) bool { return r.Replaces == key.Run })
}

// row returns the row of a run in the oracle, which is the store to compare with. It returns nil if
// there is no such row.
func (m *mixer) row(s Subject) *store.Execution {
	return try(m.stores[1].s.LoadExecution(m.Context(), s.Shard, s.Start.Address, s.Run)).or(m)
}

func (m *mixer) start() {
	a := m.addresses[m.rng.IntN(len(m.addresses))]
	if slices.ContainsFunc(m.b.Starts, func(r store.StartRow) bool { return r.Start.Address == a }) {
		return
	}
	s := m.SubjectOf(a)
	for range m.rng.IntN(3) {
		s.Start.Labels = model.SetLabel(s.Start.Labels, m.labelName(), fmt.Sprint(m.rng.IntN(3)+1))
	}
	m.runs = append(m.runs, s)
	old := try(m.stores[1].s.LoadExecution(m.Context(), s.Shard, a, model.RunID{})).or(m)

	switch {
	case old == nil || m.seldom():
		m.b.Starts = append(m.b.Starts, s.StartRow())
	case m.rng.IntN(2) == 0:
		// The port does not define which row Commit returns for an existing run that the same batch
		// changes.
		if !m.hasTouched(store.RunKey{Shard: s.Shard, Run: old.Start.Run}) {
			m.b.Starts = append(m.b.Starts, s.StartIfAbsent())
		}
	default:
		before := Subject{RunKey: store.RunKey{Shard: s.Shard, Run: old.Start.Run}, Start: old.Start}
		if m.hasTouched(before.RunKey) {
			return
		}
		m.b.Starts = append(m.b.Starts, s.Replace(before.Run))
		if old.Outcome.Status == model.Running && !m.seldom() {
			m.b.Closes = append(m.b.Closes, before.Close(model.Continued))
		}
	}
}

// change picks a run whose row may change. ok is false if the batch already writes the row of that
// run.
func (m *mixer) change() (s Subject, ok bool) {
	for range 20 {
		s = m.run()
		taken := slices.ContainsFunc(m.b.Starts, func(r store.StartRow) bool { return r.IfAbsent && r.Start.Address == s.Start.Address })
		if m.hasTouched(s.RunKey) || taken {
			continue
		}
		if e := m.row(s); (e != nil && e.Outcome.Status == model.Running) || m.seldom() {
			return s, true
		}
	}
	return s, false
}

func (m *mixer) end() {
	if s, ok := m.change(); ok {
		status := model.Completed + model.Status(m.rng.IntN(3))
		m.b.Closes = append(m.b.Closes, s.Close(status))
	}
}

// remove deletes a closed run. Now and then it deletes an open run, or a run that is gone.
func (m *mixer) remove() {
	for range 20 {
		s := m.run()
		if m.hasTouched(s.RunKey) || slices.Contains(m.b.Deletes, s.RunKey) {
			continue
		}
		if e := m.row(s); (e != nil && e.Outcome.Status.Closed()) || m.seldom() {
			m.b.Deletes = append(m.b.Deletes, s.RunKey)
			return
		}
	}
}

func (m *mixer) mark() {
	if s, ok := m.change(); ok {
		r := s.Unpark()
		if m.rng.IntN(2) == 0 {
			r = s.Park()
		}
		m.b.Marks = append(m.b.Marks, r)
	}
}

func (m *mixer) labelName() string { return string(rune('a' + m.rng.IntN(3))) }

func (m *mixer) label() {
	s := m.run()
	if m.row(s) == nil && !m.seldom() {
		return
	}
	l := model.Label{Name: m.labelName()}
	if m.rng.IntN(3) > 0 {
		l.Value = fmt.Sprint(m.rng.IntN(3) + 1)
	}
	if !slices.ContainsFunc(m.b.Labels, func(r store.LabelRow) bool { return r.RunKey == s.RunKey && r.Label.Name == l.Name }) {
		m.b.Labels = append(m.b.Labels, store.LabelRow{RunKey: s.RunKey, Label: l})
	}
}

func (m *mixer) event() {
	s := m.run()
	next := int64(1)
	if events := try(m.stores[1].s.LoadEvents(m.Context(), s.RunKey, 0, 1000, 1<<30)).or(m); len(events) > 0 {
		next = events[len(events)-1].Seq + 1
	}
	for _, e := range m.b.Events {
		if e.RunKey == s.RunKey {
			next++
		}
	}
	if m.seldom() {
		next = max(1, next-1)
	}
	m.b.Events = append(m.b.Events, s.Event(next))
}

func (m *mixer) timer() {
	s, id := m.run(), fmt.Sprint("t", m.rng.IntN(4))
	timers := try(m.stores[1].s.LoadRunTimers(m.Context(), s.RunKey)).or(m)
	same := func(t store.Timer) bool { return t.Run == s.Run && t.ID == id }
	if slices.ContainsFunc(m.b.Timers, same) || (slices.ContainsFunc(timers, same) && !m.seldom()) {
		return
	}
	m.b.Timers = append(m.b.Timers, s.Timer(id, Noon+model.Time(m.rng.IntN(20))))
}

func (m *mixer) stop() {
	s := m.run()
	timers := try(m.stores[1].s.LoadRunTimers(m.Context(), s.RunKey)).or(m)
	id := "t9"
	switch {
	case len(timers) > 0:
		id = timers[m.rng.IntN(len(timers))].ID
	case !m.seldom():
		return
	}
	if !slices.ContainsFunc(m.b.StopTimers, func(k store.TimerKey) bool { return k.Run == s.Run && k.ID == id }) {
		m.b.StopTimers = append(m.b.StopTimers, s.Stop(id))
	}
}

func (m *mixer) stopAll() {
	if s := m.run(); !slices.Contains(m.b.StopAll, s.RunKey) {
		m.b.StopAll = append(m.b.StopAll, s.StopAll())
	}
}

func (m *mixer) pair() [2]model.ShardID {
	return [2]model.ShardID{m.shards[m.rng.IntN(len(m.shards))], m.shards[m.rng.IntN(len(m.shards))]}
}

func (m *mixer) message() {
	pair := m.pair()
	next := max(m.sent[pair], m.duel.sent[pair]) + 1
	if next > m.duel.received[pair]+1 && m.seldom() {
		next-- // a position that is taken and not swept
	}
	m.sent[pair] = next
	m.b.Messages = append(m.b.Messages, Message(pair[0], pair[1], next))
}

func (m *mixer) cursor() {
	pair := m.pair()
	if _, twice := m.received[pair]; twice {
		return
	}
	prev, sent := m.duel.received[pair], m.duel.sent[pair]
	if sent == prev {
		return
	}
	next := prev + 1 + m.rng.Int64N(sent-prev)
	if m.seldom() {
		prev++
	}
	m.received[pair] = next
	m.b.Cursors = append(m.b.Cursors, store.CursorRow{To: pair[0], From: pair[1], Prev: prev, Next: next})
}

// dead returns a dead task of the oracle, and whether the batch does not touch it yet.
func (m *mixer) dead() (row store.DeadRow, ok bool) {
	page := try(m.stores[1].s.ListDead(m.Context(), store.DeadQuery{Tenant: model.DefaultTenant, Limit: 20})).or(m)
	if len(page.Rows) == 0 {
		return row, false
	}
	row = page.Rows[m.rng.IntN(len(page.Rows))]
	return row, !slices.ContainsFunc(m.b.Dead, func(r store.DeadRow) bool { return r.DeadKey == row.DeadKey }) &&
		!slices.ContainsFunc(m.b.DeadMarks, func(r store.DeadMark) bool { return r.DeadKey == row.DeadKey }) && !slices.Contains(m.b.DeadDeletes, row.DeadKey)
}

func (m *mixer) die() {
	row := m.run().Dead(fmt.Sprint("task ", m.rng.IntN(9)), "charge", fmt.Sprint("boom ", m.rng.IntN(3)), Noon+model.Time(m.rng.IntN(20)))
	known := try(m.stores[1].s.LoadDead(m.Context(), row.DeadKey)).or(m)
	if slices.ContainsFunc(m.b.Dead, func(r store.DeadRow) bool { return r.DeadKey == row.DeadKey }) || (known != nil && !m.seldom()) {
		return
	}
	m.b.Dead = append(m.b.Dead, row)
}

func (m *mixer) requeue() {
	row, ok := m.dead()
	if !ok {
		return
	}
	mark, _ := Requeue(row, Noon+model.Time(m.rng.IntN(20)))
	if m.seldom() {
		mark.Prev++
	}
	m.b.DeadMarks = append(m.b.DeadMarks, mark)
}

func (m *mixer) forget() {
	row, ok := m.dead()
	if !ok {
		return
	}
	if m.seldom() {
		row.Task = "nobody"
	}
	m.b.DeadDeletes = append(m.b.DeadDeletes, row.DeadKey)
}

func (m *mixer) datum() {
	d := m.run().Datum(fmt.Sprint("task ", m.rng.IntN(2)), []string{"", "x"}[m.rng.IntN(2)], fmt.Sprint(m.rng.IntN(100)))
	d.Deleted = m.rng.IntN(4) == 0
	if !slices.ContainsFunc(m.b.TaskData, func(o store.TaskDatum) bool { return o.RunKey == d.RunKey && o.Task == d.Task && o.Name == d.Name }) {
		m.b.TaskData = append(m.b.TaskData, d)
	}
}

func (m *mixer) line() {
	n := int32(len(m.b.Logs))
	m.b.Logs = append(m.b.Logs, m.run().Line("task 1", Noon+model.Time(m.rng.IntN(10)), n, fmt.Sprint("line ", n)))
}

// counter returns one of a few entities; some of them have rows.
func (m *mixer) counter() Counter {
	a := m.addresses[m.rng.IntN(len(m.addresses))]
	return Counter{store.EntityKey{Shard: a.Shard(m.Store.Info().Shards), Address: a}}
}

// loadEntity returns the stored state of an entity in the oracle.
func (m *mixer) loadEntity(c Counter) store.LoadedEntity {
	return try(m.stores[1].s.LoadEntity(m.Context(), c.EntityKey, 1000, 1<<30)).or(m)
}

// entity inserts, changes, locks or removes an entity, now and then with a wrong version.
func (m *mixer) entity() {
	c := m.counter()
	if slices.ContainsFunc(m.b.Entities, func(r store.EntityRow) bool { return r.Key() == c.EntityKey }) {
		return
	}
	version := int64(0)
	if n := m.loadEntity(c).Entity; n != nil {
		version = n.Version
	}
	if m.seldom() {
		version = max(0, version+int64(m.rng.IntN(3)-1))
	}
	row := c.Set(version+1, fmt.Sprint(m.rng.IntN(100)))

	switch n := m.rng.IntN(4); {
	case n == 0:
		row = c.Lock(version+1, "section")
	case n == 1 && (version > 0 || m.seldom()):
		row = c.Remove(version)
	}

	m.b.Entities = append(m.b.Entities, row)
}

// call adds a call to the mailbox of an entity, now and then at a position that may be taken.
func (m *mixer) call() {
	c := m.counter()
	last := int64(0)
	if items := m.loadEntity(c).Mailbox; len(items) > 0 {
		last = items[len(items)-1].Seq
	}

	for i := range m.b.Mailbox {
		if m.b.Mailbox[i].EntityKey == c.EntityKey {
			last = max(last, m.b.Mailbox[i].Item.Seq)
		}
	}

	row := c.Mail(last + 1)
	if m.seldom() {
		row = c.Mail(max(1, last))
	}
	if !slices.ContainsFunc(m.b.Mailbox, func(r store.MailboxRow) bool { return r.Key() == row.Key() }) {
		m.b.Mailbox = append(m.b.Mailbox, row)
	}
}

// take removes an item from a mailbox, now and then an item that does not exist.
func (m *mixer) take() {
	c := m.counter()
	key := c.Take(77)
	if items := m.loadEntity(c).Mailbox; len(items) > 0 {
		key = c.Take(items[m.rng.IntN(len(items))].Seq)
	} else if !m.seldom() {
		return
	}
	if !slices.Contains(m.b.Taken, key) {
		m.b.Taken = append(m.b.Taken, key)
	}
}

func (m *mixer) inbox() []store.InboxRow {
	return try(inboxOf(m.Context(), m.stores[1].s, m.shards, model.MaxTime, 1000)).or(m)
}

// writesRequest reports whether the batch writes a request already.
func (m *mixer) writesRequest(id model.RunID) bool {
	return slices.ContainsFunc(m.b.Inbox, func(k store.InboxKey) bool { return k.ID == id }) ||
		slices.ContainsFunc(m.b.Deferred, func(r store.InboxRow) bool { return r.ID == id })
}

func (m *mixer) consume() {
	waits := m.inbox()
	if len(waits) == 0 {
		return
	}
	r := waits[m.rng.IntN(len(waits))]
	if m.seldom() {
		r.ID = m.RunID()
	}
	if !m.writesRequest(r.ID) {
		m.b.Inbox = append(m.b.Inbox, Consume(r))
	}
}

func (m *mixer) deferRequest() {
	r := m.run().Request(m.RunID(), fmt.Sprint("request ", m.rng.IntN(20)))
	if waits := m.inbox(); len(waits) > 0 && m.rng.IntN(2) == 0 {
		r = waits[m.rng.IntN(len(waits))]
	}
	r.NotBefore, r.Seen = Noon+model.Time(m.rng.IntN(10)), false
	if !m.writesRequest(r.ID) {
		m.b.Deferred = append(m.b.Deferred, r)
	}
}

func (m *mixer) request() {
	if m.rng.IntN(3) == 0 {
		m.unremember()
		return
	}
	r := m.run().Reply(fmt.Sprint("request ", m.rng.IntN(20)), Noon+model.Time(m.rng.IntN(50)))
	known := try(m.stores[1].s.LoadReplies(m.Context(), []store.RequestKey{r.RequestKey})).or(m)
	twice := slices.ContainsFunc(m.b.Requests, func(o store.Reply) bool { return o.RequestKey == r.RequestKey })
	twice = twice || slices.Contains(m.b.Forgets, r.RequestKey)
	if twice || (len(known) > 0 && !m.seldom()) {
		return
	}
	m.b.Requests = append(m.b.Requests, r)
}

func (m *mixer) unremember() {
	k := m.run().Reply(fmt.Sprint("request ", m.rng.IntN(20)), Noon).RequestKey
	same := func(o store.RequestKey) bool { return o == k }
	if slices.ContainsFunc(m.b.Forgets, same) || slices.ContainsFunc(m.b.Requests, func(o store.Reply) bool { return same(o.RequestKey) }) {
		return
	}
	m.b.Forgets = append(m.b.Forgets, k)
}

func (m *mixer) free() {
	id := m.shards[m.rng.IntN(len(m.shards))]
	v := try(m.stores[1].s.Members(m.Context())).or(m)
	if slices.Contains(m.b.Free, id) || (v.Owners[id].Node != m.node && !m.seldom()) {
		return
	}
	m.b.Free = append(m.b.Free, id)
}
