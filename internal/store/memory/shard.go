package memory

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// shard is the rows of one shard.
type shard struct {
	id model.ShardID
	// runs has everything that is keyed by a run; current has the last run of every address. Both
	// are only looked up, never ranged over.
	runs    map[model.RunID]*run
	current map[model.Address]*run
	// runnable are the open runs that are not parked, by id.
	runnable ordered[*run]
	// started are the runs that have a row, by id; leaving are the closed ones that have a time of
	// their own, by that time.
	started, leaving ordered[*run]

	timers ordered[*store.Timer]
	// in and out are the ways of messages to and from this shard, sorted by the other shard.
	in, out []*way
	inbox   ordered[*store.InboxRow]
	// replies are the remembered requests: for looking up, and by age.
	replies map[requestKey]*store.Reply
	byAge   ordered[*store.Reply]
	// dead are the dead letters: for looking up (nil until there is one), and by age.
	dead      map[store.DeadKey]*store.DeadRow
	deadByAge ordered[*store.DeadRow]
	// lines are all log lines by age.
	lines ordered[*store.LogRow]
	// mailboxes are those of entities for which something waits, by address.
	mailboxes ordered[*mailbox]
	// garbage are deleted runs whose events are still there, oldest first.
	garbage []*run
}

// requestKey names a remembered request inside of a shard.
type requestKey struct {
	address model.Address
	id      string
}

// run is everything that is keyed by a run: its row, if it was started, its events in order, its
// timers sorted by id, and what its tasks left.
type run struct {
	key     store.RunKey
	started bool
	row     store.Execution
	events  []model.Event
	timers  []*store.Timer
	labels  []model.Label // never changed in place
	// data and logs is what tasks reported, by task and name, and logged, in order.
	data []store.TaskDatum
	logs []*store.LogRow
}

func (r *run) open() bool     { return r.started && r.row.Outcome.Status == model.Running }
func (r *run) runnable() bool { return r.open() && !r.row.Parked }

// way is the messages from one shard to another, with the cursor of the receiver.
type way struct {
	to, from model.ShardID
	// rows are sorted by position; those up to received are gone after a sweep.
	rows []store.MessageRow
	// received is the cursor, zero before the first advance; sent is the last position ever taken.
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

// run is what the shard has about a run, made when there is nothing yet.
func (s *shard) run(id model.RunID) *run {
	r := s.runs[id]
	if r == nil {
		r = &run{key: store.RunKey{Shard: s.id, Run: id}}
		s.runs[id] = r
	}
	return r
}

// settle puts a run into the runnable ones or takes it out, after its row has changed.
func (s *shard) settle(r *run) {
	if r.runnable() {
		s.runnable.insert(r)
	} else {
		s.runnable.remove(r)
	}
}

// remembers reports whether the answer to a request is remembered.
func (s *shard) remembers(m *model.Message) bool {
	if m.RequestID == "" {
		return false
	}
	_, ok := s.replies[requestKey{m.To, m.RequestID}]
	return ok
}

// refused reports whether the refusal of a request is remembered.
func (s *shard) refused(row *store.InboxRow) bool {
	_, ok := s.replies[requestKey{row.Message.To, model.RefusedIDs + row.ID.String()}]
	return ok
}

// timer is the place of a timer of a run.
func (r *run) timer(id string) (int, bool) {
	return slices.BinarySearchFunc(r.timers, id, func(t *store.Timer, id string) int { return cmp.Compare(t.ID, id) })
}

// event is the place of a position.
func (r *run) event(seq int64) (int, bool) {
	if n := len(r.events); n == 0 || r.events[n-1].Seq < seq {
		return n, false
	}
	return slices.BinarySearchFunc(r.events, seq, func(e model.Event, seq int64) int { return cmp.Compare(e.Seq, seq) })
}

// message is the place of a position.
func (w *way) message(seq int64) (int, bool) {
	if n := len(w.rows); n == 0 || w.rows[n-1].Seq < seq {
		return n, false
	}
	return slices.BinarySearchFunc(w.rows, seq, func(m store.MessageRow, seq int64) int { return cmp.Compare(m.Seq, seq) })
}

// waits reports whether a message is behind the cursor.
func (w *way) waits() bool { return len(w.rows) > 0 && w.rows[len(w.rows)-1].Seq > w.received }

// way is the way from one shard to another, made when there is none; nil when one of them does not
// exist.
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
