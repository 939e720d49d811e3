package sim

import (
	"encoding/binary"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// ledger is the expected content of the store. The simulator applies every accepted write to it and
// checks the write.
type ledger struct {
	s         *Sim
	runs      map[model.RunID]*run
	order     []*run
	addresses map[model.Address]*address
	signals   map[uint64]*received // by the id in the payload
	pairs     map[[2]model.ShardID]*channel
	inbox     map[model.RunID]*store.InboxRow
	replies   map[store.RequestKey]string
	replied   map[store.RequestKey]model.Time // when, by the clocks of their nodes
	// requests whose id is too old, or whose caller has the answer
	forgotten map[store.RequestKey]bool
	told      map[string]bool    // drawn request ids whose caller has the answer
	updates   map[string]*update // by the id of the request
	// owner of each shard according to the store; zero if the shard is free.
	owner []model.NodeID
	nodes map[model.NodeID]*member
	asked map[model.Link]bool // steps that have started a child
	sends map[model.Link]*sending
	sent0 []model.Link // the keys of sends, in order
	open  int
	dying []store.DeadKey // tasks that fail permanently in the batch that is being applied

	letters      map[store.DeadKey]*letter
	letterOrder  []*letter
	requeues     map[model.RunID]*requeued
	requeueOrder []*requeued
	holdings     map[model.Address]*holding
	holdingOrder []*holding
	doings       map[uint64]*doing
	requested    map[string]uint64 // deeds by the ids of their requests
	released     map[lockOf]bool   // by messages
	doneDeeds    int
	paid         int64 // into accounts
	onItsWay     int64 // in flight from one to another
	destroyed    int64 // with accounts that were deleted

	tenure []int // how many owners each shard has had
	begun  []begun
	made   int          // tasks
	tally  [endings]int // of them, by how they ended
}

// member is a node as the store knows it.
type member struct {
	alive bool
	// betrayed is until when the node may trust its lease although it was declared dead while it
	// lived.
	betrayed int64
	epoch    int64
	inc      *incarnation // nil if the answer to its registration was lost
	batch    []int64      // last batch of each lane
	fence    []int64      // epoch of the fence of each lane
}

// address is everything that happened under a key.
type address struct {
	name    model.Address
	shard   model.ShardID
	current *run
	runs    []*run
	sick    bool // its rows were poisoned or corrupt at some time, so a quarantine is allowed
	// quarantined is true from a quarantine until the next write.
	quarantined bool
}

// run is a run as the store has it.
type run struct {
	id       model.RunID
	address  *address
	start    model.Start
	events   []model.Event // 1, 2, …; carried ones included
	outcome  model.Outcome
	timers   []store.Timer
	parked   bool
	blocked  *model.Reason
	asks     [maxBlocks + 1][maxAsks]history
	fresh    int // answers that claimed to have started it
	settled  map[string]string
	cancel   bool
	provided *op // the last input that the helper sent it
	paused   bool
	pauses   int
	resumed  *op   // the last attempt of the helper to resume it
	shown    int64 // the last event that an answer to a query included
	// the input at the start of its chain, or of the chain that it was copied from
	origin   model.Payload
	pin      string
	replaced *run  // the run that was current when it started
	stranded bool  // was seen waiting for a worker of its version
	deleted  int64 // when it was deleted; 0 if it exists
	tasks    map[string]*errandState
	sections map[string]*locking

	condemned bool // a user has asked to delete it
}

func (r *run) open() bool { return !r.outcome.Status.Closed() }

// history is the recorded state of one ask.
type history struct {
	outcome, withdrawn, started, sent, answered, taken, fired, closed, noted bool
	attempts                                                                 int
}

// received is a signal in a history.
type received struct {
	address *address
	order   int // among the signals of the address
}

// channel is the ordered messages between two shards.
type channel struct {
	rows []store.MessageRow
	next int64 // cursor
}

func newLedger(s *Sim) *ledger {
	return &ledger{
		s: s, runs: map[model.RunID]*run{}, addresses: map[model.Address]*address{}, signals: map[uint64]*received{},
		pairs: map[[2]model.ShardID]*channel{}, inbox: map[model.RunID]*store.InboxRow{}, replies: map[store.RequestKey]string{}, replied: map[store.RequestKey]model.Time{}, forgotten: map[store.RequestKey]bool{}, told: map[string]bool{}, updates: map[string]*update{},
		owner: make([]model.NodeID, s.plan.shards), nodes: map[model.NodeID]*member{}, asked: map[model.Link]bool{}, sends: map[model.Link]*sending{},
		tenure: make([]int, s.plan.shards), letters: map[store.DeadKey]*letter{}, requeues: map[model.RunID]*requeued{},
		holdings: map[model.Address]*holding{}, doings: map[uint64]*doing{}, requested: map[string]uint64{}, released: map[lockOf]bool{},
	}
}

func (l *ledger) address(a model.Address) *address {
	x := l.addresses[a]
	if x == nil {
		x = &address{name: a, shard: a.Shard(l.s.plan.shards)}
		l.addresses[a] = x
	}
	return x
}

func (l *ledger) fail(format string, args ...any) { l.s.fail(format, args...) }

// signalID is the id in the payload of a signal.
func signalID(p model.Payload) uint64 {
	if len(p.Data) != 8 && (p.Encoding != heavyEncoding || len(p.Data) < 8) {
		return 0
	}
	return binary.BigEndian.Uint64(p.Data)
}

func signalPayload(id uint64) model.Payload {
	return model.Payload{Data: binary.BigEndian.AppendUint64(nil, id)}
}

// addressOf returns the address of a run, which the batch may start.
func (l *ledger) addressOf(b *store.Batch, id model.RunID) *address {
	if r := l.runs[id]; r != nil {
		return r.address
	}
	for i := range b.Starts {
		if b.Starts[i].Start.Run == id {
			return l.address(b.Starts[i].Start.Address)
		}
	}
	return nil
}

// owns checks that only the owner of a shard writes to it (I1).
func (l *ledger) owns(b *store.Batch, shard model.ShardID) {
	if l.owner[shard] != b.Lane.Node {
		l.fail("I1: %s writes to shard %d, which belongs to %s", l.name(b.Lane.Node), shard, l.name(l.owner[shard]))
	}
	if int(shard)%l.s.plan.lanes != b.Lane.Lane {
		l.fail("I1: lane %d writes to shard %d of another lane", b.Lane.Lane, shard)
	}
}

func (l *ledger) name(id model.NodeID) string {
	if id.IsZero() {
		return "nobody"
	}
	if m := l.nodes[id]; m != nil && m.inc != nil {
		return m.inc.name()
	}
	return id.String()
}

// apply applies a batch that the store has accepted.
func (l *ledger) apply(b *store.Batch, res store.Committed) {
	n := l.nodes[b.Lane.Node]
	switch {
	case n == nil || !n.alive:
		l.fail("I1: a batch of %s landed after it was fenced", l.name(b.Lane.Node))
	case n.fence[b.Lane.Lane] != b.Lane.Epoch:
		l.fail("I1: a batch of epoch %d landed after the fence had moved to %d", b.Lane.Epoch, n.fence[b.Lane.Lane])
	case n.batch[b.Lane.Lane]+1 != b.Number:
		l.fail("L1: batch %d of lane %d landed after batch %d", b.Number, b.Lane.Lane, n.batch[b.Lane.Lane])
	}

	n.batch[b.Lane.Lane] = b.Number
	existing := map[int]bool(nil)
	for _, x := range res.Existing {
		if existing == nil {
			existing = map[int]bool{}
		}
		existing[x.Index] = true
	}

	for _, k := range b.Deletes {
		l.delete(b, k)
	}

	for i := range b.Closes {
		if !starts(b, b.Closes[i].Run) {
			l.close(b, &b.Closes[i])
		}
	}

	for i := range b.Starts {
		if !existing[i] {
			l.start(b, &b.Starts[i])
		}
	}

	for i := range b.Closes {
		if starts(b, b.Closes[i].Run) { // an import of a closed run
			l.closeImported(b, b.Closes[i].Run)
		}
	}

	for i := range b.Marks {
		l.mark(b, &b.Marks[i])
	}
	for i := range b.Events {
		l.event(b, &b.Events[i])
	}
	for i := range b.StopTimers {
		l.stopTimer(b, &b.StopTimers[i])
	}
	for i := range b.Timers {
		l.startTimer(b, &b.Timers[i])
	}

	for _, k := range b.StopAll {
		l.owns(b, k.Shard)
		if r := l.runs[k.Run]; r != nil {
			r.timers = nil
		}
	}

	for i := range b.Taken {
		l.owns(b, b.Taken[i].Shard)
	}
	for i := range b.Mailbox {
		l.owns(b, b.Mailbox[i].Shard)
	}
	for i := range b.Entities {
		l.owns(b, b.Entities[i].Shard)
	}
	l.closedWhole(b)
	l.entities(b)
	l.deadLetters(b)
	l.limited(b)
	for i := range b.Messages {
		l.message(b, &b.Messages[i])
	}

	for i := range b.Requests {
		l.owns(b, b.Requests[i].Shard)
		l.reply(&b.Requests[i])
	}

	l.acknowledged(b.Forgets)
	for i := range b.Cursors {
		l.consume(b, &b.Cursors[i])
	}
	for i := range b.Inbox {
		l.serve(b, &b.Inbox[i])
	}
	for i := range b.Deferred {
		l.deferred(b, &b.Deferred[i])
	}

	for _, sh := range b.Free {
		l.owns(b, sh)
		l.owner[sh] = model.NodeID{}
		l.s.did(opFree)
	}
}

// close ends a run.
func (l *ledger) close(b *store.Batch, row *store.CloseRow) {
	l.owns(b, row.Shard)
	r := l.runs[row.Run]
	if r == nil || !r.open() {
		l.fail("I3: %s is closed a second time, or never began", row.Run)
	}
	r.outcome = row.Outcome
	if !starts(b, row.Run) {
		l.checkLeaves(r)
	}
	l.open--
	l.s.did(opClosed + opKind(row.Outcome.Status))
}

// closeImported ends a run that the same batch starts. A later run may already have replaced it.
func (l *ledger) closeImported(b *store.Batch, id model.RunID) {
	if i := slices.IndexFunc(b.Closes, func(c store.CloseRow) bool { return c.Run == id }); i >= 0 && l.runs[id].open() {
		l.close(b, &b.Closes[i])
	}
}

// start starts a run.
func (l *ledger) start(b *store.Batch, row *store.StartRow) {
	l.owns(b, row.Shard)
	st := &row.Start
	a := l.address(st.Address)
	if a.shard != row.Shard {
		l.fail("I1: %s is started in shard %d", st.Address, row.Shard)
	}
	if l.runs[st.Run] != nil {
		l.fail("I2: run %s is started a second time", st.Run)
	}
	var prev model.RunID

	if a.current != nil {
		prev = a.current.id
		if starts(b, prev) {
			l.closeImported(b, prev)
		}
		if a.current.open() {
			l.fail("I2: %s has two open runs", st.Address)
		}
	}

	if row.Replaces != prev {
		l.fail("I2: a start of %s replaces %s while %s is current", st.Address, row.Replaces, prev)
	}
	r := &run{id: st.Run, address: a, start: *st, outcome: model.Outcome{Status: model.Running}, origin: st.Input, replaced: a.current}

	if from := l.runs[st.Source.Run]; from != nil {
		r.origin = from.origin
	} else if from := l.runs[st.Previous]; from != nil {
		r.origin = from.origin
	}

	if x := l.requeuedFrom(b, st.Run); x != nil && l.runs[x.key.Run] != nil {
		r.origin = l.runs[x.key.Run].origin
	}

	for i := range st.Carried {
		e := st.Carried[i]
		if e.Seq != int64(i+1) || e.At < st.Zero() {
			l.fail("I3: carried event %d of %s has position %d", i+1, st.Run, e.Seq)
		}
		r.events = append(r.events, e)
		if e.Kind == model.EventSignalReceived && st.Previous.IsZero() && st.Source.IsZero() {
			l.signal(a, &e)
		}

		switch e.Kind { //nolint:exhaustive // the others mean nothing to the ledger
		case model.EventCancelRequest:
			r.cancel = true
		case model.EventPaused:
			r.paused = true
			l.s.did(opPausedOver)
		case model.EventUpdateReceived:
			l.s.did(opUpdateCarried)
			if e.Watcher.ID != "" {
				l.s.did(opCallCarried)
			}
		}

		if !st.Source.IsZero() {
			r.inheritTask(&e)
			r.inherit(&e)
		}
	}

	if st.Parent.ID != "" && st.Previous.IsZero() {
		if l.asked[st.Parent] {
			l.fail("E40: step %s of %s starts a second child", st.Parent.ID, short(st.Parent.Run))
		}
		l.asked[st.Parent] = true
	}

	switch {
	case !st.Source.IsZero():
		l.checkPast(b, r, a.current)
	case !st.Previous.IsZero():
		l.carriedTalk(a.current, r)
		l.carriedOver(a.current, r)
		l.s.did(opContinued)
	}

	l.runs[st.Run], a.current = r, r
	if st.Task != nil {
		l.startTask(b, r)
	}
	a.runs = append(a.runs, r)
	l.order = append(l.order, r)
	l.open++
}

// carriedOver checks that a run that continues another one has exactly its unread signals (I7 of
// the core).
func (l *ledger) carriedOver(old, next *run) {
	if old == nil || old.id != next.start.Previous || old.outcome.Status != model.Continued || old.outcome.Next != next.id {
		l.fail("I3: %s does not continue the run before it", next.id)
	}
	taken := map[int64]bool{}
	var left []uint64

	// The events of the closing batch are not in the ledger yet, so look at them too.
	for i := range old.events {
		if e := &old.events[i]; e.Kind == model.EventSignalTaken {
			taken[e.Ref] = true
		}
	}

	for _, e := range l.s.disk.applying.Events {
		if e.Run == old.id && e.Event.Kind == model.EventSignalTaken {
			taken[e.Event.Ref] = true
		}
	}

	note := func(e *model.Event) {
		if e.Kind == model.EventSignalReceived && !taken[e.Seq] {
			left = append(left, signalID(e.Input))
		}
	}
	for i := range old.events {
		note(&old.events[i])
	}

	for i := range l.s.disk.applying.Events {
		if e := &l.s.disk.applying.Events[i]; e.Run == old.id {
			note(&e.Event)
		}
	}

	for i := range next.start.Carried {
		if e := &next.start.Carried[i]; e.Kind == model.EventSignalReceived {
			if len(left) == 0 || left[0] != signalID(e.Input) {
				l.fail("I11: %s carries a signal that the run before did not leave, or out of order", next.id)
			}
			left = left[1:]
		}
	}

	if len(left) > 0 {
		l.fail("I11: %s loses %d signals of the run before", next.id, len(left))
	}
}

func (l *ledger) mark(b *store.Batch, row *store.MarkRow) {
	l.owns(b, row.Shard)
	r := l.runs[row.Run]
	if r == nil || !r.open() {
		l.fail("I3: the mark of %s changes, which is not open", row.Run)
	}
	r.parked, r.blocked = row.Parked, row.Blocked
	if row.Parked {
		l.s.did(opParked)
	}

	if row.Blocked != nil {
		switch row.Blocked.Code {
		case model.WaitPoison, model.WaitCorrupt, model.WaitNewer:
			if !r.address.sick {
				l.fail("I14: %s is quarantined, and there is nothing wrong with it: %s", r.address.name, row.Blocked)
			}
			l.s.did(opQuarantined)
			r.address.quarantined = true
		case model.WaitStuck:
			// how workers of the simulation report that they cannot run a workflow
			l.s.did(opBlocked)
		default:
			l.fail("run %s of %s is blocked: %s", row.Run, r.address.name, row.Blocked)
		}
	}
}

func (r *run) timer(id string) int {
	for i := range r.timers {
		if r.timers[i].ID == id {
			return i
		}
	}
	return -1
}

func (l *ledger) stopTimer(b *store.Batch, row *store.TimerKey) {
	l.owns(b, row.Shard)
	r := l.runs[row.Run]
	if r == nil || r.timer(row.ID) < 0 {
		l.fail("I8: timer %q of %s is stopped and was not open", row.ID, row.Run)
	}
	i := r.timer(row.ID)
	r.timers = append(r.timers[:i], r.timers[i+1:]...)
}

func (l *ledger) startTimer(b *store.Batch, row *store.Timer) {
	l.owns(b, row.Shard)
	r := l.runs[row.Run]
	if r == nil || r.timer(row.ID) >= 0 {
		l.fail("I8: timer %q of %s is started twice, or its run never began", row.ID, row.Run)
	}
	if r.address.name != row.Address {
		l.fail("I8: timer %q of %s names %s", row.ID, row.Run, row.Address)
	}
	if bi, ai, ok := parseAsk(row.ID); ok && (r.asks[bi][ai].fired || r.asks[bi][ai].withdrawn) && !stops(b, row.Run, row.ID) {
		l.fail("I8: timer %q of %s is started after it fired or was withdrawn", row.ID, row.Run)
	}
	r.timers = append(r.timers, *row)
	l.s.did(opTimerStarted)
}

// closedWhole checks that a close removes the timers and notifies everyone concerned: children by
// their policy, the parent and the watchers.
func (l *ledger) closedWhole(b *store.Batch) {
	for i := range b.Closes {
		r := l.runs[b.Closes[i].Run]
		l.endTasks(b, r)
		if starts(b, r.id) {
			continue // its source, or another store, has notified the parent
		}
		if len(r.timers) > 0 {
			l.fail("I8: %s was closed and its timer %q stays", r.id, r.timers[0].ID)
		}

		told := func(k model.MessageKind, to model.Address, id string) bool {
			return slices.ContainsFunc(b.Messages, func(m store.MessageRow) bool {
				// the message names an earlier run
				by := m.Message.From.Run == r.id || k == model.MessageCancel && m.Message.From.Address == r.address.name
				return m.Message.Kind == k && m.Message.To == to && m.Message.ID == id && by
			})
		}

		final := r.outcome.Status != model.Continued
		l.cutOff(b, r)
		l.sectionsOver(b, r)
		if p := r.start.Parent; final && p.ID != "" && !told(model.MessageClosed, p.Address, p.ID) {
			l.fail("E40: %s was closed and its parent is not told", r.id)
		}

		for i := range r.events {
			switch e := &r.events[i]; e.Kind {
			case model.EventChildStarted:
				bi, ai, _ := parseAsk(e.ID)
				h := &r.asks[bi][ai]
				if next := l.runs[r.outcome.Next]; next != nil && next.asks[bi][ai].started && !next.start.Source.IsZero() {
					continue // a reset has kept it
				}
				if e.Policy == model.CancelChild && !h.closed && !h.withdrawn && e.Input.Data != nil && !told(model.MessageCancel, e.Target, "") {
					l.fail("E40: %s was closed and its child %s is not canceled", r.id, e.Target)
				}
			case model.EventWatched:
				if final && !e.Blank() && !told(model.MessageClosed, e.Watcher.Address, e.Watcher.ID) {
					l.fail("E40: %s was closed and %s, who watches it, is not told", r.id, e.Watcher.Address)
				}
			default:
			}
		}
	}
}
