package oracle

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// ledger is the expected content of the store. The simulator applies every accepted write to it and
// checks the write.
type ledger struct {
	s         *Oracle
	Runs      map[model.RunID]*Run
	Order     []*Run
	Addresses map[model.Address]*Address
	signals   map[uint64]*received // by the id in the payload
	Pairs     map[[2]model.ShardID]*channel
	Inbox     map[model.RunID]*store.InboxRow
	replies   map[store.RequestKey]string
	replied   map[store.RequestKey]model.Time // when a request was answered, by its node's clock
	// forgotten has requests whose id is too old, or whose caller has the answer.
	forgotten map[store.RequestKey]bool
	told      map[string]bool    // drawn request ids whose caller has the answer
	updates   map[string]*update // by the id of the request
	// Owner is the owner of each shard according to the store; zero if the shard is free.
	Owner []model.NodeID
	Nodes map[model.NodeID]*Member
	asked map[model.Link]bool // steps that have started a child
	sends map[model.Link]*sending
	sent0 []model.Link // the keys of sends, in order
	Open  int
	dying []store.DeadKey // tasks that fail permanently in the batch that is being applied

	deadTasks    map[store.DeadKey]*DeadTask
	DeadOrder    []*DeadTask
	requeues     map[model.RunID]*requeued
	requeueOrder []*requeued
	holdings     map[model.Address]*holding
	HoldingOrder []*holding
	alarms       map[model.Address]model.Time // timers of entities
	Doings       map[uint64]*doing
	requested    map[string]uint64 // deeds by the ids of their requests
	released     map[lockOf]bool   // locks that messages have released
	doneDeeds    int
	paid         int64 // money that was paid into accounts
	onItsWay     int64 // money in flight from one account to another
	destroyed    int64 // money in accounts that were deleted

	tenure  []int // how many owners each shard has had
	custody []custody
	begun   []begun
	made    int          // number of tasks
	tally   [endings]int // number of tasks by how they ended
}

// Member is a node as the store knows it.
type Member struct {
	Alive bool
	// Other nodes may have declared the node dead while it lived. Until the time Betrayed, such a
	// node may still trust its lease.
	Betrayed int64
	Epoch    int64
	Ttl      time.Duration // the length of its lease
	Life     *Life         // nil if the answer to its registration was lost
	Batch    []int64       // last batch of each lane
	Fence    []int64       // epoch of the fence of each lane
}

// Address is everything that happened under a key.
type Address struct {
	Name    model.Address
	Shard   model.ShardID
	Current *Run
	Runs    []*Run
	Sick    bool // its rows were poisoned or corrupt at some time, so a quarantine is allowed
	// quarantined is true from the start of a quarantine until the next write.
	quarantined bool
}

// Run is a run as the store has it.
type Run struct {
	ID       model.RunID
	Address  *Address
	Start    model.Start
	Events   []model.Event // the events 1, 2, …, including carried events
	outcome  model.Outcome
	Timers   []store.Timer
	Parked   bool
	Blocked  *model.Reason
	Asks     [scenario.MaxBlocks + 1][scenario.MaxAsks]history
	fresh    int // how many answers said that their request started this run
	settled  map[string]string
	Cancel   bool
	Provided *Op // the last input that the helper sent to the run
	Paused   bool
	pauses   int
	Resumed  *Op   // the last attempt of the helper to resume the run
	Shown    int64 // the last event that an answer to a query included
	// Origin is the input of the first run of the chain of this run, or of the chain from which
	// this run was copied.
	Origin   model.Payload
	Pin      string
	replaced *Run  // the run that was current when this run started
	Stranded bool  // a user has seen that the run waits for a worker of its version
	Deleted  int64 // when it was deleted; 0 if it exists
	Tasks    map[string]*errandState
	sections map[string]*locking

	condemned bool // a user has asked to delete the run
	unbegun   bool // the run was canceled before its start time
}

// Open reports whether the run has not ended.
func (r *Run) Open() bool { return !r.outcome.Status.Closed() }

// history is the recorded state of one ask (a request of a program).
type history struct {
	outcome, withdrawn, started, sent, answered, taken, fired, closed, noted bool
	Attempts                                                                 int
}

// received is a signal in a history.
type received struct {
	address *Address
	order   int // its place among the signals of the address
}

// channel is the ordered messages between two shards.
type channel struct {
	Rows []store.MessageRow
	Next int64 // the cursor: how many messages the receiver has consumed
}

func newLedger(s *Oracle) *ledger {
	return &ledger{
		s: s, Runs: map[model.RunID]*Run{}, Addresses: map[model.Address]*Address{}, signals: map[uint64]*received{},
		Pairs: map[[2]model.ShardID]*channel{}, Inbox: map[model.RunID]*store.InboxRow{}, replies: map[store.RequestKey]string{}, replied: map[store.RequestKey]model.Time{}, forgotten: map[store.RequestKey]bool{}, told: map[string]bool{}, updates: map[string]*update{},
		Owner: make([]model.NodeID, s.Plan.Shards), Nodes: map[model.NodeID]*Member{}, asked: map[model.Link]bool{}, sends: map[model.Link]*sending{},
		tenure: make([]int, s.Plan.Shards), custody: make([]custody, s.Plan.Shards), deadTasks: map[store.DeadKey]*DeadTask{}, requeues: map[model.RunID]*requeued{},
		holdings: map[model.Address]*holding{}, alarms: map[model.Address]model.Time{}, Doings: map[uint64]*doing{}, requested: map[string]uint64{}, released: map[lockOf]bool{},
	}
}

func (l *ledger) Address(a model.Address) *Address {
	x := l.Addresses[a]
	if x == nil {
		x = &Address{Name: a, Shard: l.s.ShardOf(a)}
		l.Addresses[a] = x
	}
	return x
}

func (l *ledger) Fail(format string, args ...any) { l.s.Fail(format, args...) }

// AddressOf returns the address of a run, which may also be a run that the batch starts.
func (l *ledger) AddressOf(b *store.Batch, id model.RunID) *Address {
	if r := l.Runs[id]; r != nil {
		return r.Address
	}
	for i := range b.Starts {
		if b.Starts[i].Start.Run == id {
			return l.Address(b.Starts[i].Start.Address)
		}
	}
	return nil
}

// owns checks that only the owner of a shard writes to it (I1).
func (l *ledger) owns(b *store.Batch, shard model.ShardID) {
	if l.Owner[shard] != b.Lane.Node {
		l.Fail("I1: %s writes to shard %d, which belongs to %s", l.Name(b.Lane.Node), shard, l.Name(l.Owner[shard]))
	}
	if int(shard)%l.s.Plan.Lanes != b.Lane.Lane {
		l.Fail("I1: lane %d writes to shard %d of another lane", b.Lane.Lane, shard)
	}
}

func (l *ledger) Name(id model.NodeID) string {
	if id.IsZero() {
		return "no node"
	}
	if m := l.Nodes[id]; m != nil && m.Life != nil {
		return m.Life.Label
	}
	return id.String()
}

// Apply applies a batch that the store has accepted.
func (l *ledger) Apply(b *store.Batch, res store.Committed) {
	n := l.Nodes[b.Lane.Node]
	switch {
	case n == nil || !n.Alive:
		l.Fail("I1: a batch of %s landed after it was fenced", l.Name(b.Lane.Node))
	case n.Fence[b.Lane.Lane] != b.Lane.Epoch:
		l.Fail("I1: a batch of epoch %d landed after the fence had moved to %d", b.Lane.Epoch, n.Fence[b.Lane.Lane])
	case n.Batch[b.Lane.Lane]+1 != b.Number:
		l.Fail("L1: batch %d of lane %d landed after batch %d", b.Number, b.Lane.Lane, n.Batch[b.Lane.Lane])
	}

	n.Batch[b.Lane.Lane] = b.Number
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
	l.pass(b)
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
		if r := l.Runs[k.Run]; r != nil {
			r.Timers = nil
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
	l.bornWhole(b)
	l.entities(b)
	l.checkAlarms(b)
	l.deadLetters(b)
	l.checkLimits(b)
	for i := range b.Messages {
		l.message(b, &b.Messages[i])
	}

	for i := range b.Requests {
		l.owns(b, b.Requests[i].Shard)
		l.reply(&b.Requests[i])
	}

	l.ApplyAcknowledgements(b.Forgets)
	l.arrivedInside(b)
	for i := range b.Cursors {
		l.consume(b, &b.Cursors[i])
	}
	for i := range b.Inbox {
		l.serve(b, &b.Inbox[i])
	}
	for i := range b.Deferred {
		l.checkDeferral(b, &b.Deferred[i])
	}

	for _, sh := range b.Free {
		l.owns(b, sh)
		l.Owner[sh] = model.NodeID{}
		l.s.Did(scenario.OpFree)
	}
}

// close ends a run.
func (l *ledger) close(b *store.Batch, row *store.CloseRow) {
	l.owns(b, row.Shard)
	r := l.Runs[row.Run]
	if r == nil || !r.Open() {
		l.Fail("I3: %s is closed a second time, or never began", row.Run)
	}
	r.outcome = row.Outcome
	if starts(b, row.Run) {
		l.endedElsewhere(r)
	} else {
		l.closeTerms(b, r)
		l.checkLeaves(b, r)
	}
	l.Open--
	l.s.Did(scenario.OpClosed + scenario.OpKind(row.Outcome.Status))
}

// closeImported ends a run that the same batch starts. A later run may already have replaced it.
func (l *ledger) closeImported(b *store.Batch, id model.RunID) {
	if i := slices.IndexFunc(b.Closes, func(c store.CloseRow) bool { return c.Run == id }); i >= 0 && l.Runs[id].Open() {
		l.close(b, &b.Closes[i])
	}
}

// start starts a run.
func (l *ledger) start(b *store.Batch, row *store.StartRow) {
	l.owns(b, row.Shard)
	st := &row.Start
	a := l.Address(st.Address)
	if a.Shard != row.Shard {
		l.Fail("I1: %s is started in shard %d", st.Address, row.Shard)
	}
	if l.Runs[st.Run] != nil {
		l.Fail("I2: run %s is started a second time", st.Run)
	}
	var prev model.RunID

	if a.Current != nil {
		prev = a.Current.ID
		if starts(b, prev) {
			l.closeImported(b, prev)
		}
		if a.Current.Open() {
			l.Fail("I2: %s has two open runs", st.Address)
		}
	}

	if row.Replaces != prev {
		l.Fail("I2: a start of %s replaces %s while %s is current", st.Address, row.Replaces, prev)
	}
	r := &Run{ID: st.Run, Address: a, Start: *st, outcome: model.Outcome{Status: model.Running}, Origin: st.Input, replaced: a.Current}

	if from := l.Runs[st.Source.Run]; from != nil {
		r.Origin = from.Origin
	} else if from := l.Runs[st.Previous]; from != nil {
		r.Origin = from.Origin
	}

	if x := l.requeuedFrom(b, st.Run); x != nil && l.Runs[x.key.Run] != nil {
		r.Origin = l.Runs[x.key.Run].Origin
	}

	for i := range st.Carried {
		e := st.Carried[i]
		if e.Seq != int64(i+1) || e.At < st.Zero() {
			l.Fail("I3: carried event %d of %s has position %d", i+1, st.Run, e.Seq)
		}
		r.Events = append(r.Events, e)
		if e.Kind == model.EventSignalReceived && st.Previous.IsZero() && st.Source.IsZero() {
			l.signal(a, &e)
		}

		switch e.Kind { //nolint:exhaustive // other kinds mean nothing to the ledger
		case model.EventCancelRequest:
			r.Cancel = true
		case model.EventPaused:
			r.Paused = true
			l.s.Did(scenario.OpPausedOver)
		case model.EventUpdateReceived:
			l.s.Did(scenario.OpUpdateCarried)
			if e.Waiter().ID != "" {
				l.s.Did(scenario.OpCallCarried)
			}
		}

		if !st.Source.IsZero() {
			r.inheritTask(&e)
			r.inherit(&e)
		}
	}

	if st.Parent.ID != "" && st.Previous.IsZero() {
		if l.asked[st.Parent] {
			l.Fail("E40: step %s of %s starts a second child", st.Parent.ID, scenario.Short(st.Parent.Run))
		}
		l.asked[st.Parent] = true
	}

	switch {
	case !st.Source.IsZero():
		l.checkPast(b, r, a.Current)
	case !st.Previous.IsZero():
		l.startTerms(r, a.Current)
		l.carriedTalk(b, a.Current, r)
		l.carriedOver(b, a.Current, r)
		l.s.Did(scenario.OpContinued)
	}

	if st.Previous.IsZero() || !st.Source.IsZero() {
		l.startTerms(r, nil)
	}
	l.Runs[st.Run], a.Current = r, r
	if st.Task != nil {
		l.startTask(b, r)
	}
	a.Runs = append(a.Runs, r)
	l.Order = append(l.Order, r)
	l.Open++
}

// carriedOver checks that a run that continues another run starts with exactly the unread signals
// of that run (I7 of the core).
func (l *ledger) carriedOver(b *store.Batch, old, next *Run) {
	if old == nil || old.ID != next.Start.Previous || old.outcome.Status != model.Continued || old.outcome.Next != next.ID {
		l.Fail("I3: %s does not continue the run before it", next.ID)
	}
	taken := map[int64]bool{}
	var left []uint64

	// The events of the closing batch are not in the ledger yet, so look at them too.
	for i := range old.Events {
		if e := &old.Events[i]; e.Kind == model.EventSignalTaken || e.Kind == model.EventSignalDropped {
			taken[e.Ref] = true
		}
	}

	for _, e := range b.Events {
		if e.Run == old.ID && (e.Event.Kind == model.EventSignalTaken || e.Event.Kind == model.EventSignalDropped) {
			taken[e.Event.Ref] = true
		}
	}

	note := func(e *model.Event) {
		if e.Kind == model.EventSignalReceived && !taken[e.Seq] {
			left = append(left, scenario.SignalID(e.Input))
		}
	}
	for i := range old.Events {
		note(&old.Events[i])
	}

	for i := range b.Events {
		if e := &b.Events[i]; e.Run == old.ID {
			note(&e.Event)
		}
	}

	for i := range next.Start.Carried {
		if e := &next.Start.Carried[i]; e.Kind == model.EventSignalReceived {
			if len(left) == 0 || left[0] != scenario.SignalID(e.Input) {
				l.Fail("I11: %s carries a signal that the run before did not leave, or out of order", next.ID)
			}
			left = left[1:]
		}
	}

	if len(left) > 0 {
		l.Fail("I11: %s loses %d signals of the run before", next.ID, len(left))
	}
}

func (l *ledger) mark(b *store.Batch, row *store.MarkRow) {
	l.owns(b, row.Shard)
	r := l.Runs[row.Run]
	if r == nil || !r.Open() {
		l.Fail("I3: the mark of %s changes, which is not open", row.Run)
	}
	r.Parked, r.Blocked = row.Parked, row.Blocked
	if row.Parked {
		l.s.Did(scenario.OpParked)
	}

	if row.Blocked != nil {
		switch row.Blocked.Code {
		case model.WaitPoison, model.WaitCorrupt, model.WaitNewer:
			if !r.Address.Sick {
				l.Fail("I14: %s is quarantined, but nothing has damaged it: %s", r.Address.Name, row.Blocked)
			}
			l.s.Did(scenario.OpQuarantined)
			r.Address.quarantined = true
		case model.WaitStuck:
			// workers of the simulation report in this way that they cannot run a workflow
			l.s.Did(scenario.OpBlocked)
		default:
			l.Fail("run %s of %s is blocked: %s", row.Run, r.Address.Name, row.Blocked)
		}
	}
}

func (r *Run) timer(id string) int {
	for i := range r.Timers {
		if r.Timers[i].ID == id {
			return i
		}
	}
	return -1
}

func (l *ledger) stopTimer(b *store.Batch, row *store.TimerKey) {
	l.owns(b, row.Shard)
	r := l.Runs[row.Run]
	if r == nil && l.stopAlarm(row) {
		return
	}
	if r == nil || r.timer(row.ID) < 0 {
		l.Fail("I8: timer %q of %s is stopped and was not open", row.ID, row.Run)
	}
	l.stopBegin(b, r, row.ID)
	i := r.timer(row.ID)
	r.Timers = append(r.Timers[:i], r.Timers[i+1:]...)
}

func (l *ledger) startTimer(b *store.Batch, row *store.Timer) {
	l.owns(b, row.Shard)
	if l.startAlarm(row) {
		return
	}
	r := l.Runs[row.Run]
	if r == nil || r.timer(row.ID) >= 0 {
		l.Fail("I8: timer %q of %s is started twice, or its run never began", row.ID, row.Run)
	}
	if r.Address.Name != row.Address {
		l.Fail("I8: timer %q of %s names %s", row.ID, row.Run, row.Address)
	}
	if bi, ai, ok := scenario.ParseAsk(row.ID); ok && (r.Asks[bi][ai].fired || r.Asks[bi][ai].withdrawn) && !stops(b, row.Run, row.ID) {
		l.Fail("I8: timer %q of %s is started after it fired or was withdrawn", row.ID, row.Run)
	}
	r.Timers = append(r.Timers, *row)
	l.s.Did(scenario.OpTimerStarted)
}

// closedWhole checks that a close removes the timers and notifies the children (according to their
// policy), the parent and the watchers.
func (l *ledger) closedWhole(b *store.Batch) {
	for i := range b.Closes {
		r := l.Runs[b.Closes[i].Run]
		l.endTasks(b, r)
		if starts(b, r.ID) {
			continue // the parent got the notice from the source of the copy, or in another store
		}
		if len(r.Timers) > 0 {
			l.Fail("I8: %s was closed and its timer %q stays", r.ID, r.Timers[0].ID)
		}

		told := func(k model.MessageKind, to model.Address, id string) bool {
			return sendsAny(b, func(m *model.Message) bool {
				// a cancel may name an earlier run of the address as its sender
				by := m.From.Run == r.ID || k == model.MessageCancel && m.From.Address == r.Address.Name
				return m.Kind == k && m.To == to && m.ID == id && by
			})
		}

		final := r.outcome.Status != model.Continued
		l.cutOff(b, r)
		l.sectionsOver(b, r)
		if p := r.Start.Parent; final && p.ID != "" && !told(model.MessageClosed, p.Address, p.ID) {
			l.Fail("E40: %s was closed and its parent is not told", r.ID)
		}

		for i := range r.Events {
			switch e := &r.Events[i]; e.Kind {
			case model.EventChildStarted:
				bi, ai, _ := scenario.ParseAsk(e.ID)
				h := &r.Asks[bi][ai]
				if next := l.Runs[r.outcome.Next]; next != nil && next.Asks[bi][ai].started && !next.Start.Source.IsZero() {
					continue // a reset has kept the child
				}
				if e.Policy == model.CancelChild && !h.closed && !h.withdrawn && e.Input.Data != nil && !told(model.MessageCancel, e.Target, "") {
					l.Fail("E40: %s was closed and its child %s is not canceled", r.ID, e.Target)
				}
			case model.EventWatched:
				if final && !e.Blank() && !told(model.MessageClosed, e.Waiter().Address, e.Waiter().ID) {
					l.Fail("E40: %s was closed and %s, who watches it, is not told", r.ID, e.Waiter().Address)
				}
			default:
			}
		}
	}
}
