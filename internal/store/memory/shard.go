package memory

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// shard has the rows of one shard.
type shard struct {
	id model.ShardID
	// runs has everything that is keyed by a run. current has the last run of every address.
	// Results must not depend on the order of these maps, so that the store stays deterministic.
	runs    map[model.RunID]*run
	current map[model.Address]*run
	// runnable has the open runs that are not parked, sorted by id.
	runnable ordered[*run]
	// started has the runs that have a row, sorted by id. leaving has the closed runs that have
	// their own removal time, sorted by that time.
	started, leaving ordered[*run]

	timers ordered[*store.Timer]
	// in and out have the messages to and from this shard, sorted by the other shard.
	in, out []*way
	inbox   ordered[*store.InboxRow]
	// replies has the remembered requests by their keys. byAge has the same requests, sorted by
	// age.
	replies map[requestKey]*store.Reply
	byAge   ordered[*store.Reply]
	// dead has the dead tasks by their keys; it is nil until there is a dead task. deadByAge has
	// the same dead tasks, sorted by age.
	dead      map[store.DeadKey]*store.DeadRow
	deadByAge ordered[*store.DeadRow]
	// lines has all log lines by age.
	lines ordered[*store.LogRow]
	// mailboxes has the mailboxes that are not empty, by address.
	mailboxes ordered[*mailbox]
	// garbage has deleted runs whose events are still stored, oldest first.
	garbage []*run
}

// requestKey names a remembered request within a shard.
type requestKey struct {
	address model.Address
	id      string
}

// run has everything that is keyed by a run: its row (if it was started), its events in order, its
// timers sorted by id, and the data of its tasks.
type run struct {
	key     store.RunKey
	started bool
	row     store.Execution
	events  []model.Event
	timers  []*store.Timer
	labels  []model.Label // never changed in place
	// data has the values that tasks reported, by task and name. logs has the log lines of the
	// tasks, in order.
	data []store.TaskDatum
	logs []*store.LogRow
}

func (r *run) open() bool     { return r.started && r.row.Outcome.Status == model.Running }
func (r *run) runnable() bool { return r.open() && !r.row.Parked }

// way has the messages from one shard to another, and the cursor of the receiver.
type way struct {
	to, from model.ShardID
	// rows are sorted by position. A sweep removes the rows up to received.
	rows []store.MessageRow
	// received is the cursor of the receiver; it is zero until the cursor first advances. sent is
	// the position of the last message that was ever sent.
	received, sent int64
}

func newShard(id model.ShardID) *shard {
	return &shard{
		id:       id,
		runs:     make(map[model.RunID]*run),
		current:  make(map[model.Address]*run),
		runnable: ordered[*run]{compare: byRun},
		started:  ordered[*run]{compare: byRun},
		leaving:  ordered[*run]{compare: firstToLeave},
		timers:   ordered[*store.Timer]{compare: byDue},
		inbox:    ordered[*store.InboxRow]{compare: byRequest},
		replies:  make(map[requestKey]*store.Reply),
		byAge:    ordered[*store.Reply]{compare: oldestFirst},

		deadByAge: ordered[*store.DeadRow]{compare: longestDeadFirst},
		lines:     ordered[*store.LogRow]{compare: oldestLineFirst},
		mailboxes: ordered[*mailbox]{compare: byReceiver},
	}
}

func byRun(a, b *run) int { return a.key.Run.Compare(b.key.Run) }

func firstToLeave(a, b *run) int {
	return cmp.Or(cmp.Compare(a.row.Outcome.Leaves, b.row.Outcome.Leaves), byRun(a, b))
}

func newestFirst(a, b *run) int {
	return cmp.Or(cmp.Compare(b.row.Start.At, a.row.Start.At), b.key.Run.Compare(a.key.Run), cmp.Compare(a.key.Shard, b.key.Shard))
}

func byDue(a, b *store.Timer) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), a.Run.Compare(b.Run), cmp.Compare(a.ID, b.ID))
}

func byRequest(a, b *store.InboxRow) int { return a.ID.Compare(b.ID) }

func oldestFirst(a, b *store.Reply) int {
	return cmp.Or(
		cmp.Compare(a.At, b.At), cmp.Compare(a.Address.Tenant, b.Address.Tenant), cmp.Compare(a.Address.Type, b.Address.Type),
		cmp.Compare(a.Address.Key, b.Address.Key), cmp.Compare(a.ID, b.ID),
	)
}

// run returns what the shard stores about a run. If nothing is stored, it creates an empty value.
func (s *shard) run(id model.RunID) *run {
	r := s.runs[id]
	if r == nil {
		r = &run{key: store.RunKey{Shard: s.id, Run: id}}
		s.runs[id] = r
	}
	return r
}

// settle adds a run to runnable or removes it from there, after the row of the run has changed.
func (s *shard) settle(r *run) {
	if r.runnable() {
		s.runnable.insert(r)
	} else {
		s.runnable.remove(r)
	}
}

// hasReply reports whether the answer to a request is remembered.
func (s *shard) hasReply(m *model.Message) bool {
	if m.RequestID == "" {
		return false
	}
	_, ok := s.replies[requestKey{m.To, m.RequestID}]
	return ok
}

// hasRefusal reports whether the refusal of a request is remembered.
func (s *shard) hasRefusal(row *store.InboxRow) bool {
	_, ok := s.replies[requestKey{row.Message.To, model.RefusedIDs + row.ID.String()}]
	return ok
}

// timer returns the index of a timer.
func (r *run) timer(id string) (int, bool) {
	return slices.BinarySearchFunc(r.timers, id, func(t *store.Timer, id string) int { return cmp.Compare(t.ID, id) })
}

// event returns the index of the event at a position.
func (r *run) event(seq int64) (int, bool) {
	if n := len(r.events); n == 0 || r.events[n-1].Seq < seq {
		return n, false
	}
	return slices.BinarySearchFunc(r.events, seq, func(e model.Event, seq int64) int { return cmp.Compare(e.Seq, seq) })
}

// message returns the index of the message at a position.
func (w *way) message(seq int64) (int, bool) {
	if n := len(w.rows); n == 0 || w.rows[n-1].Seq < seq {
		return n, false
	}
	return slices.BinarySearchFunc(w.rows, seq, func(m store.MessageRow, seq int64) int { return cmp.Compare(m.Seq, seq) })
}

// hasMail reports whether there are messages that the receiver has not consumed.
func (w *way) hasMail() bool { return len(w.rows) > 0 && w.rows[len(w.rows)-1].Seq > w.received }

// way returns the way from one shard to another and creates it if necessary. It returns nil if one
// of the shards does not exist.
func (s *Store) way(to, from model.ShardID) *way {
	receiver, sender := s.shard(to), s.shard(from)
	if receiver == nil || sender == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(receiver.in, from, func(w *way, id model.ShardID) int { return cmp.Compare(w.from, id) })
	if found {
		return receiver.in[i]
	}
	w := &way{to: to, from: from}
	receiver.in = slices.Insert(receiver.in, i, w)
	i, _ = slices.BinarySearchFunc(sender.out, to, func(w *way, id model.ShardID) int { return cmp.Compare(w.to, id) })
	sender.out = slices.Insert(sender.out, i, w)
	return w
}
