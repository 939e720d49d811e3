package disk

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// Disk is the store behind a faulty connection.
type Disk struct {
	s   *oracle.Oracle
	Mem *memory.Store
	// Away is the time before which no call reaches the store.
	Away int64
	// Poison has addresses whose rows the store refuses. Corrupt has addresses whose runs cannot be
	// read.
	Poison, Corrupt map[model.Address]bool
	Lasting         map[model.Address]bool // rows that are refused until everything else has ended
	PoisonMarks     bool
	locks           map[fenceKey]*lock
}

// fenceKey names a fence.
type fenceKey struct {
	node model.NodeID
	lane int
}

// lock is the row lock on a fence. A transaction that has started holds it until its end.
type lock struct {
	held    bool
	orphan  bool // no caller waits for the transaction that holds the lock
	waiting []func()
}

// New returns an empty store behind a connection.
func New(s *oracle.Oracle) *Disk {
	d := &Disk{s: s, Poison: map[model.Address]bool{}, Corrupt: map[model.Address]bool{}, Lasting: map[model.Address]bool{}, locks: map[fenceKey]*lock{}}
	d.Mem = memory.New(memory.Options{
		Shards: s.Plan.Shards, Groups: s.Plan.Groups, Cluster: "sim", Now: func() time.Time { return s.StoreTime().Std() },
	})
	s.Store = d.Mem
	return d
}

// Fate is what happens to a call.
type Fate uint8

// The fates of a call.
const (
	Fine        Fate = iota // it succeeds
	FailsBefore             // the caller gets an error, and the store did nothing
	LostRequest             // the caller does not know the outcome; the store did nothing
	LostReply               // the caller does not know the outcome; the store executed the call
	Late                    // the caller does not know the outcome; the call is executed later
)

// Request is one call of a process to the store.
type Request struct {
	Process *kernel.Process
	Name    string
	Fate    Fate
	// class is the class of the error if the call fails before it has an effect; zero means random.
	class store.Class
	// Exec executes the call at the store and then calls done.
	Exec func(done func())
	OK   func()
	Bad  func(error)

	disk *Disk
	back int64 // how long the answer is in flight
}

var errLost = errors.New("the connection was lost")

// Latency draws the latency of one direction.
func (d *Disk) Latency() int64 { return d.s.Between(20, d.s.Plan.Latency) }

// Call sends a request. Its result arrives as an event of the process.
func (d *Disk) Call(r *Request) {
	s := d.s
	there, back := d.Latency(), d.Latency()
	if !s.Healed && s.Chance(s.Plan.CallFails/2) {
		back += s.Between(0, s.Plan.Ttl.Microseconds()/2)
		s.Hurt(scenario.FaultSlowReply)
	}

	r.disk, r.back = d, back
	switch r.Fate {
	case FailsBefore:
		if r.class == 0 {
			r.class = kernel.OneOf(s, store.Retryable, store.Away)
		}
		r.fails(there+back, r.class)
		return
	case LostRequest:
		r.fails(there+back, store.Unknown)
		return
	case Late:
		r.fails(there+back, store.Unknown)
		there += s.Between(0, 4*s.Plan.Slow)
	case LostReply:
		r.fails(there+back+d.Latency(), store.Unknown)
	case Fine:
	}

	s.After(there, nil, r.arrives)
}

// fails reports a failure to the caller after a while.
func (r *Request) fails(after int64, class store.Class) {
	r.disk.s.After(after, r.Process, func() { r.Bad(store.Errorf(class, r.Name, "%w", errLost)) })
}

// arrives executes the request at the store.
func (r *Request) arrives() {
	d, s := r.disk, r.disk.s
	if r.Process.Dead && r.Process.Cut {
		s.Hurt(scenario.FaultCrashCut)
		return
	}
	if s.Now < d.Away {
		if r.Fate == Fine {
			s.Hurt(scenario.FaultStoreAway)
			r.fails(r.back, store.Away)
		}
		return
	}
	r.Exec(r.done)
}

// done sends the answer.
func (r *Request) done() {
	if r.Fate == Fine {
		r.disk.s.After(r.back, r.Process, r.OK)
	}
}

// Draw decides the fate of a call that is not a commit.
func (d *Disk) Draw(fails, lost scenario.FaultKind, mayBeLate bool) Fate {
	s := d.s
	if s.Healed || !s.Chance(s.Plan.CallFails) {
		return Fine
	}
	if s.Chance(0.4) {
		s.Hurt(fails)
		return FailsBefore
	}
	s.Hurt(lost)
	f := kernel.OneOf(s, LostReply, LostReply, LostRequest)
	if mayBeLate && s.Chance(0.4) {
		f = Late
	}
	return f
}

func (d *Disk) lock(k fenceKey) *lock {
	l := d.locks[k]
	if l == nil {
		l = &lock{}
		d.locks[k] = l
	}
	return l
}

// hold waits for the lock of a fence, and then calls do. The function do has to release the lock.
func (l *lock) hold(do func(*lock)) {
	if l.held {
		l.waiting = append(l.waiting, func() { l.hold(do) })
		return
	}
	l.held = true
	do(l)
}

// release unlocks the fence for the next transaction in line.
func (l *lock) release() {
	l.held, l.orphan = false, false
	for !l.held && len(l.waiting) > 0 {
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		next()
	}
}

// HoldAll runs do when no fence of the node is locked.
func (d *Disk) HoldAll(node model.NodeID, do func()) {
	for i := range d.s.Plan.Lanes {
		k := fenceKey{node, i}
		if l := d.lock(k); l.held {
			if l.orphan {
				d.s.Hurt(scenario.FaultLateWaited)
			}
			l.waiting = append(l.waiting, func() { d.HoldAll(node, do) })
			return
		}
	}
	do()
}

// transaction is a batch in flight to the store.
type transaction struct {
	Request

	batch  *store.Batch
	takes  int64 // how long the store needs for the transaction
	orphan bool  // its sender will not wait for the end
	lock   *lock // the lock of the fence of its lane
	res    store.Committed
	err    error
}

// Commit sends a batch.
func (d *Disk) Commit(p *kernel.Process, b *store.Batch, reply func(store.Committed, error)) {
	s := d.s
	x := &transaction{batch: b.Clone()} // the lane reuses the memory of its batch
	x.Process, x.Name, x.Exec = p, "commit", x.begin
	x.OK, x.Bad = func() { reply(x.res, x.err) }, func(e error) { reply(store.Committed{}, e) }

	switch {
	case d.timesOut(x.batch):
		x.Fate = LostRequest
	case s.Healed:
	case s.Chance(s.Plan.CommitFails):
		x.Fate, x.class = FailsBefore, store.Retryable
		s.Hurt(scenario.FaultCommitRetryable)
		if s.Chance(0.5) {
			x.class = store.Away
			s.Hurt(scenario.FaultCommitAway)
		}
	case s.Chance(s.Plan.CommitUnknown):
		x.orphan = true
		switch s.Pick(5) {
		case 0:
			x.Fate = LostRequest
			s.Hurt(scenario.FaultUnknownLost)
		case 1:
			x.Fate = LostReply
			s.Hurt(scenario.FaultUnknownApplied)
		case 2, 3: // starts in time, and takes long
			x.Fate = LostReply
			x.takes = s.Between(0, 2*s.Plan.Slow)
			s.Hurt(scenario.FaultUnknownApplied)
		case 4:
			x.Fate = Late
		}
	case s.Chance(s.Plan.CommitSlow):
		x.takes = s.Between(0, s.Plan.Slow)
		s.Hurt(scenario.FaultCommitSlow)
	}

	d.Call(&x.Request)
}

// begin lets the transaction wait for the lock of its fence.
func (x *transaction) begin(func()) {
	x.disk.lock(fenceKey{x.batch.Lane.Node, x.batch.Lane.Lane}).hold(x.proceed)
}

// proceed runs when the transaction has the lock. It schedules the end of the transaction.
func (x *transaction) proceed(l *lock) {
	x.lock, l.orphan = l, x.orphan
	if x.takes == 0 {
		x.finish()
	} else {
		x.disk.s.After(x.takes, nil, x.finish)
	}
}

// finish commits the transaction and answers.
func (x *transaction) finish() {
	s := x.disk.s
	if x.Process.Dead && x.Process.Cut && x.takes > 0 {
		x.err = store.Errorf(store.Unknown, "commit", "rolled back") // the sender is gone
	} else {
		x.res, x.err = x.disk.apply(x.batch)
		if x.Fate == Late || (x.orphan && x.takes > 0) {
			if x.err == nil {
				s.Hurt(scenario.FaultLateLanded)
			} else if store.ClassOf(x.err) == store.Fenced {
				s.Hurt(scenario.FaultLateExcluded)
			}
		}
	}
	x.done()
	x.lock.release()
}

// apply commits a batch, in the store and in the ledger.
func (d *Disk) apply(b *store.Batch) (store.Committed, error) {
	s := d.s
	if a := d.poisoned(b); a != nil && d.stands(b) {
		s.Hurt(scenario.FaultPoison)
		d.notePassed(b)
		if s.Tracing {
			s.Logf("store    refuses batch %d of %s: poison of %s", b.Number, s.Ledger.Name(b.Lane.Node), a.Name)
		}
		return store.Committed{}, store.Errorf(store.Refused, "commit", "row of %s is poison", a.Name)
	}

	if d.tooLarge(b) && d.stands(b) {
		s.Hurt(scenario.FaultLargeRefused)
		d.notePassed(b)
		return store.Committed{}, store.Errorf(store.Refused, "commit", "%d bytes are too many", batchSize(b))
	}

	res, err := d.Mem.Commit(context.Background(), b)
	mixBatch(s.Kernel, b, err)
	if err != nil {
		if s.Tracing {
			s.Logf("store    refuses batch %d of %s: %v", b.Number, s.Ledger.Name(b.Lane.Node), err)
		}
		if store.ClassOf(err) == store.Refused {
			s.Fail("the store refuses batch %d of %s: %v", b.Number, s.Ledger.Name(b.Lane.Node), err)
		}
		return res, err
	}

	if s.Tracing {
		s.Logf("store    batch %d of %s: %s", b.Number, s.Ledger.Name(b.Lane.Node), Describe(b))
	}
	s.Ledger.Apply(b, res)

	return res, nil
}

// notePassed counts a refused batch that has a passed message, which is a message that takes effect
// in the batch that sends it.
func (d *Disk) notePassed(b *store.Batch) {
	if len(b.Passed) > 0 {
		d.s.Did(scenario.OpPassedInRefused)
	}
}

// stands reports whether the fence of the lane is still the one that the batch names. If not, the
// store refuses the batch.
func (d *Disk) stands(b *store.Batch) bool {
	m := d.s.Ledger.Nodes[b.Lane.Node]
	return m != nil && m.Alive && m.Fence[b.Lane.Lane] == b.Lane.Epoch && m.Batch[b.Lane.Lane]+1 == b.Number
}

// poisoned returns an address of the batch whose rows cannot be written, or nil.
func (d *Disk) poisoned(b *store.Batch) *oracle.Address {
	if len(d.Poison)+len(d.Lasting) == 0 {
		return nil
	}
	l := d.s.Ledger

	bad := func(a *oracle.Address) bool { return a != nil && d.poisonous(a.Name) }
	for _, k := range b.Deletes {
		if a := l.AddressOf(b, k.Run); bad(a) {
			return a
		}
	}

	for i := range b.Starts {
		if a := l.Address(b.Starts[i].Start.Address); bad(a) {
			return a
		}
	}

	for i := range b.Closes {
		if a := l.AddressOf(b, b.Closes[i].Run); bad(a) {
			return a
		}
	}

	for i := range b.Events {
		if a := l.AddressOf(b, b.Events[i].Run); bad(a) {
			return a
		}
	}

	for i := range b.Timers {
		if a := l.AddressOf(b, b.Timers[i].Run); bad(a) {
			return a
		}
	}

	for i := range b.Taken {
		if a := l.Address(b.Taken[i].Address); bad(a) {
			return a
		}
	}

	for i := range b.Mailbox {
		if a := l.Address(b.Mailbox[i].Address); bad(a) {
			return a
		}
	}

	for i := range b.Entities {
		if a := l.Address(b.Entities[i].Entity.Address); bad(a) {
			return a
		}
	}

	if d.PoisonMarks {
		for i := range b.Marks {
			if a := l.AddressOf(b, b.Marks[i].Run); bad(a) {
				return a
			}
		}
	}

	return nil
}

// Refence moves the fence of a lane to a new epoch.
func (d *Disk) Refence(p *kernel.Process, ref store.LaneRef, reply func(epoch, landed int64, err error)) {
	var epoch, landed int64
	var err error
	d.Call(&Request{
		Process: p, Name: "refence", Fate: d.Draw(scenario.FaultRefenceFails, scenario.FaultRefenceLost, false),
		Exec: func(done func()) {
			held := d.lock(fenceKey{ref.Node, ref.Lane})
			if held.held && held.orphan {
				d.s.Hurt(scenario.FaultLateWaited)
			}

			held.hold(func(l *lock) {
				epoch, landed, err = d.Mem.Refence(context.Background(), ref)
				if err == nil {
					d.s.Did(scenario.OpRefence)
					if m := d.s.Ledger.Nodes[ref.Node]; m != nil {
						m.Fence[ref.Lane] = epoch
					}
				}
				if d.s.Tracing {
					d.s.Logf("store    refence of %s: epoch %d, landed %d, %v", d.s.Ledger.Name(ref.Node), epoch, landed, err)
				}
				l.release()
				done()
			})
		},
		OK:  func() { reply(epoch, landed, err) },
		Bad: func(e error) { reply(0, 0, e) },
	})
}

// mixBatch folds a batch into the hash of the trace.
func mixBatch(s *kernel.Kernel, b *store.Batch, err error) {
	s.Mix(1, uint64(b.Number), uint64(b.Lane.Epoch), uint64(b.At), uint64(b.Rows()))
	for _, k := range b.Deletes {
		s.MixRun(k.Run)
	}
	for i := range b.Starts {
		s.MixRun(b.Starts[i].Start.Run)
	}
	for i := range b.Closes {
		s.MixRun(b.Closes[i].Run)
	}
	for i := range b.Marks {
		s.MixRun(b.Marks[i].Run)
	}

	for i := range b.Labels {
		s.MixRun(b.Labels[i].Run)
		s.MixText(b.Labels[i].Label.Name + "=" + b.Labels[i].Label.Value)
	}

	for i := range b.Events {
		e := &b.Events[i].Event
		s.MixRun(b.Events[i].Run)
		s.Mix(uint64(e.Kind), uint64(e.Seq), uint64(e.At))
		s.MixText(e.ID)
	}

	for i := range b.Dead {
		s.MixRun(b.Dead[i].Run)
		s.MixText(b.Dead[i].Task)
	}

	for i := range b.DeadMarks {
		s.MixRun(b.DeadMarks[i].Run)
		s.Mix(uint64(b.DeadMarks[i].Next))
	}

	for i := range b.DeadDeletes {
		s.MixRun(b.DeadDeletes[i].Run)
	}

	for i := range b.TaskData {
		s.MixRun(b.TaskData[i].Run)
		s.MixText(b.TaskData[i].Task + " " + b.TaskData[i].Name)
	}

	for i := range b.Logs {
		s.MixRun(b.Logs[i].Run)
		s.MixText(b.Logs[i].Text)
	}

	for i := range b.StopTimers {
		s.MixText(b.StopTimers[i].ID)
	}

	for i := range b.Timers {
		s.MixText(b.Timers[i].ID)
		s.Mix(uint64(b.Timers[i].Due))
	}

	for i := range b.Taken {
		s.MixText(b.Taken[i].Address.Key)
		s.Mix(uint64(b.Taken[i].Seq))
	}

	for i := range b.Mailbox {
		s.MixText(b.Mailbox[i].Address.Key)
		s.Mix(uint64(b.Mailbox[i].Item.Seq), uint64(b.Mailbox[i].Item.Message.Kind))
	}

	for i := range b.Entities {
		s.MixText(b.Entities[i].Entity.Address.Key)
		s.Mix(uint64(b.Entities[i].Entity.Version), uint64(b.Entities[i].Entity.Epoch))
	}

	for i := range b.Messages {
		s.Mix(uint64(b.Messages[i].Message.Kind), uint64(b.Messages[i].To), uint64(b.Messages[i].From), uint64(b.Messages[i].Seq))
	}
	for i := range b.Passed {
		s.Mix(uint64(b.Passed[i].Message.Kind), uint64(b.Passed[i].From))
	}
	for i := range b.Cursors {
		s.Mix(uint64(b.Cursors[i].To), uint64(b.Cursors[i].From), uint64(b.Cursors[i].Next))
	}
	for i := range b.Inbox {
		s.MixRun(b.Inbox[i].ID)
	}
	for i := range b.Requests {
		s.MixText(b.Requests[i].ID)
	}
	for i := range b.Forgets {
		s.MixText(b.Forgets[i].ID)
	}
	if err != nil {
		s.Mix(2, uint64(store.ClassOf(err)))
	}
}

// poisonous reports whether rows of an address are refused.
func (d *Disk) poisonous(a model.Address) bool { return d.Poison[a] || d.Lasting[a] }
