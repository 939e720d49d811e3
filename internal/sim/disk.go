package sim

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// disk is the store behind a faulty connection.
type disk struct {
	s   *Sim
	mem *memory.Store
	// away is until when no call reaches the store.
	away int64
	// poison has addresses whose rows the store refuses. corrupt has addresses whose runs cannot be
	// read.
	poison, corrupt map[model.Address]bool
	lasting         map[model.Address]bool // refused until everything else has ended
	poisonMarks     bool
	locks           map[fenceKey]*lock
	applying        *store.Batch
}

// fenceKey names a fence.
type fenceKey struct {
	node model.NodeID
	lane int
}

// lock is the row lock on a fence. A transaction that has started holds it until its end.
type lock struct {
	held    bool
	orphan  bool // no caller waits for its holder
	waiting []func()
}

var background = context.Background()

func newDisk(s *Sim) *disk {
	d := &disk{s: s, poison: map[model.Address]bool{}, corrupt: map[model.Address]bool{}, lasting: map[model.Address]bool{}, locks: map[fenceKey]*lock{}}
	d.mem = memory.New(memory.Options{
		Shards: s.plan.shards, Cluster: "sim", Now: func() time.Time { return s.storeTime().Std() },
	})
	return d
}

// fate is what happens to a call.
type fate uint8

const (
	fine        fate = iota
	failsBefore      // an error, and nothing was done
	lostRequest      // an unknown outcome, and nothing was done
	lostReply        // an unknown outcome, and it was done
	late             // an unknown outcome, and it is done later
)

// request is one call of a process to the store.
type request struct {
	p    *proc
	name string
	fate fate
	// class of the error if the call fails before it has an effect; zero means random.
	class store.Class
	// exec executes the call at the store and then calls done.
	exec func(done func())
	ok   func()
	bad  func(error)

	disk *disk
	back int64 // how long the answer is in flight
}

var errLost = errors.New("the connection was lost")

// latency draws the latency of one direction.
func (d *disk) latency() int64 { return d.s.between(20, d.s.plan.latency) }

// call sends a request. Its result arrives as an event of the process.
func (d *disk) call(r *request) {
	s := d.s
	there, back := d.latency(), d.latency()
	if !s.healed && s.chance(s.plan.callFails/2) {
		back += s.between(0, s.plan.ttl.Microseconds()/2)
		s.hurt(faultSlowReply)
	}

	r.disk, r.back = d, back
	switch r.fate {
	case failsBefore:
		if r.class == 0 {
			r.class = oneOf(s, store.Retryable, store.Away)
		}
		r.fails(there+back, r.class)
		return
	case lostRequest:
		r.fails(there+back, store.Unknown)
		return
	case late:
		r.fails(there+back, store.Unknown)
		there += s.between(0, 4*s.plan.slow)
	case lostReply:
		r.fails(there+back+d.latency(), store.Unknown)
	case fine:
	}

	s.after(there, nil, r.arrives)
}

// fails reports a failure to the caller after a while.
func (r *request) fails(after int64, class store.Class) {
	r.disk.s.after(after, r.p, func() { r.bad(store.Errorf(class, r.name, "%w", errLost)) })
}

// arrives executes the request at the store.
func (r *request) arrives() {
	d, s := r.disk, r.disk.s
	if r.p.dead && r.p.cut {
		s.hurt(faultCrashCut)
		return
	}
	if s.now < d.away {
		if r.fate == fine {
			s.hurt(faultStoreAway)
			r.fails(r.back, store.Away)
		}
		return
	}
	r.exec(r.done)
}

// done sends the answer.
func (r *request) done() {
	if r.fate == fine {
		r.disk.s.after(r.back, r.p, r.ok)
	}
}

// draw decides the fate of a call that is not a commit.
func (d *disk) draw(fails, lost faultKind, mayBeLate bool) fate {
	s := d.s
	if s.healed || !s.chance(s.plan.callFails) {
		return fine
	}
	if s.chance(0.4) {
		s.hurt(fails)
		return failsBefore
	}
	s.hurt(lost)
	f := oneOf(s, lostReply, lostReply, lostRequest)
	if mayBeLate && s.chance(0.4) {
		f = late
	}
	return f
}

func (d *disk) lock(k fenceKey) *lock {
	l := d.locks[k]
	if l == nil {
		l = &lock{}
		d.locks[k] = l
	}
	return l
}

// hold runs do while the fence of a lane is locked; do has to release the lock.
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

// holdAll runs do when no fence of the node is locked.
func (d *disk) holdAll(node model.NodeID, do func()) {
	for i := range d.s.plan.lanes {
		k := fenceKey{node, i}
		if l := d.lock(k); l.held {
			if l.orphan {
				d.s.hurt(faultLateWaited)
			}
			l.waiting = append(l.waiting, func() { d.holdAll(node, do) })
			return
		}
	}
	do()
}

// transaction is a batch in flight to the store.
type transaction struct {
	request

	batch  *store.Batch
	takes  int64 // how long the store needs for it
	orphan bool  // its sender will not wait for it
	lock   *lock // of the fence of its lane
	res    store.Committed
	err    error
}

// commit sends a batch.
func (d *disk) commit(p *proc, b *store.Batch, reply func(store.Committed, error)) {
	s := d.s
	x := &transaction{batch: b.Clone()} // the lane reuses the memory of its batch
	x.p, x.name, x.exec = p, "commit", x.begin
	x.ok, x.bad = func() { reply(x.res, x.err) }, func(e error) { reply(store.Committed{}, e) }

	switch {
	case d.timesOut(x.batch):
		x.fate = lostRequest
	case s.healed:
	case s.chance(s.plan.commitFails):
		x.fate, x.class = failsBefore, store.Retryable
		s.hurt(faultCommitRetryable)
		if s.chance(0.5) {
			x.class = store.Away
			s.hurt(faultCommitAway)
		}
	case s.chance(s.plan.commitUnknown):
		x.orphan = true
		switch s.pick(5) {
		case 0:
			x.fate = lostRequest
			s.hurt(faultUnknownLost)
		case 1:
			x.fate = lostReply
			s.hurt(faultUnknownApplied)
		case 2, 3: // starts in time, and takes long
			x.fate = lostReply
			x.takes = s.between(0, 2*s.plan.slow)
			s.hurt(faultUnknownApplied)
		case 4:
			x.fate = late
		}
	case s.chance(s.plan.commitSlow):
		x.takes = s.between(0, s.plan.slow)
		s.hurt(faultCommitSlow)
	}

	d.call(&x.request)
}

// begin lets the transaction wait for the lock of its fence.
func (x *transaction) begin(func()) {
	x.disk.lock(fenceKey{x.batch.Lane.Node, x.batch.Lane.Lane}).hold(x.locked)
}

// locked runs when the transaction has the lock. It lets the transaction take its time.
func (x *transaction) locked(l *lock) {
	x.lock, l.orphan = l, x.orphan
	if x.takes == 0 {
		x.finish()
	} else {
		x.disk.s.after(x.takes, nil, x.finish)
	}
}

// finish commits the transaction and answers.
func (x *transaction) finish() {
	s := x.disk.s
	if x.p.dead && x.p.cut && x.takes > 0 {
		x.err = store.Errorf(store.Unknown, "commit", "rolled back") // its sender is gone
	} else {
		x.res, x.err = x.disk.apply(x.batch)
		if x.fate == late || (x.orphan && x.takes > 0) {
			if x.err == nil {
				s.hurt(faultLateLanded)
			} else if store.ClassOf(x.err) == store.Fenced {
				s.hurt(faultLateExcluded)
			}
		}
	}
	x.done()
	x.lock.release()
}

// apply commits a batch, in the store and in the ledger.
func (d *disk) apply(b *store.Batch) (store.Committed, error) {
	s := d.s
	if a := d.poisoned(b); a != nil && d.stands(b) {
		s.hurt(faultPoison)
		if s.opts.Trace {
			s.logf("store    refuses batch %d of %s: poison of %s", b.Number, s.ledger.name(b.Lane.Node), a.name)
		}
		return store.Committed{}, store.Errorf(store.Refused, "commit", "row of %s is poison", a.name)
	}

	if d.tooLarge(b) && d.stands(b) {
		s.hurt(faultLargeRefused)
		return store.Committed{}, store.Errorf(store.Refused, "commit", "%d bytes are too many", batchSize(b))
	}

	res, err := d.mem.Commit(background, b)
	s.mixBatch(b, err)
	if err != nil {
		if s.opts.Trace {
			s.logf("store    refuses batch %d of %s: %v", b.Number, s.ledger.name(b.Lane.Node), err)
		}
		if store.ClassOf(err) == store.Refused {
			s.fail("the store refuses batch %d of %s: %v", b.Number, s.ledger.name(b.Lane.Node), err)
		}
		return res, err
	}

	if s.opts.Trace {
		s.logf("store    batch %d of %s: %s", b.Number, s.ledger.name(b.Lane.Node), describe(b))
	}
	d.applying = b
	s.ledger.apply(b, res)
	d.applying = nil

	return res, nil
}

// stands reports whether the fence lets the batch pass. A fenced lane cannot reach its data.
func (d *disk) stands(b *store.Batch) bool {
	m := d.s.ledger.nodes[b.Lane.Node]
	return m != nil && m.alive && m.fence[b.Lane.Lane] == b.Lane.Epoch && m.batch[b.Lane.Lane]+1 == b.Number
}

// poisoned returns an address of the batch whose rows cannot be written, or nil.
func (d *disk) poisoned(b *store.Batch) *address {
	if len(d.poison)+len(d.lasting) == 0 {
		return nil
	}
	l := d.s.ledger

	bad := func(a *address) bool { return a != nil && d.poisonous(a.name) }
	for _, k := range b.Deletes {
		if a := l.addressOf(b, k.Run); bad(a) {
			return a
		}
	}

	for i := range b.Starts {
		if a := l.address(b.Starts[i].Start.Address); bad(a) {
			return a
		}
	}

	for i := range b.Closes {
		if a := l.addressOf(b, b.Closes[i].Run); bad(a) {
			return a
		}
	}

	for i := range b.Events {
		if a := l.addressOf(b, b.Events[i].Run); bad(a) {
			return a
		}
	}

	for i := range b.Timers {
		if a := l.addressOf(b, b.Timers[i].Run); bad(a) {
			return a
		}
	}

	for i := range b.Taken {
		if a := l.address(b.Taken[i].Address); bad(a) {
			return a
		}
	}

	for i := range b.Mailbox {
		if a := l.address(b.Mailbox[i].Address); bad(a) {
			return a
		}
	}

	for i := range b.Entities {
		if a := l.address(b.Entities[i].Entity.Address); bad(a) {
			return a
		}
	}

	if d.poisonMarks {
		for i := range b.Marks {
			if a := l.addressOf(b, b.Marks[i].Run); bad(a) {
				return a
			}
		}
	}

	return nil
}

// refence moves a fence.
func (d *disk) refence(p *proc, ref store.LaneRef, reply func(epoch, landed int64, err error)) {
	var epoch, landed int64
	var err error
	d.call(&request{
		p: p, name: "refence", fate: d.draw(faultRefenceFails, faultRefenceLost, false),
		exec: func(done func()) {
			held := d.lock(fenceKey{ref.Node, ref.Lane})
			if held.held && held.orphan {
				d.s.hurt(faultLateWaited)
			}

			held.hold(func(l *lock) {
				epoch, landed, err = d.mem.Refence(background, ref)
				if err == nil {
					d.s.did(opRefence)
					if m := d.s.ledger.nodes[ref.Node]; m != nil {
						m.fence[ref.Lane] = epoch
					}
				}
				if d.s.opts.Trace {
					d.s.logf("store    refence of %s: epoch %d, landed %d, %v", d.s.ledger.name(ref.Node), epoch, landed, err)
				}
				l.release()
				done()
			})
		},
		ok:  func() { reply(epoch, landed, err) },
		bad: func(e error) { reply(0, 0, e) },
	})
}

// mixBatch folds a batch into the hash of the trace.
func (s *Sim) mixBatch(b *store.Batch, err error) {
	s.mix(1, uint64(b.Number), uint64(b.Lane.Epoch), uint64(b.At), uint64(b.Rows()))
	for _, k := range b.Deletes {
		s.mixRun(k.Run)
	}
	for i := range b.Starts {
		s.mixRun(b.Starts[i].Start.Run)
	}
	for i := range b.Closes {
		s.mixRun(b.Closes[i].Run)
	}
	for i := range b.Marks {
		s.mixRun(b.Marks[i].Run)
	}

	for i := range b.Labels {
		s.mixRun(b.Labels[i].Run)
		s.mixText(b.Labels[i].Label.Name + "=" + b.Labels[i].Label.Value)
	}

	for i := range b.Events {
		e := &b.Events[i].Event
		s.mixRun(b.Events[i].Run)
		s.mix(uint64(e.Kind), uint64(e.Seq), uint64(e.At))
		s.mixText(e.ID)
	}

	for i := range b.Dead {
		s.mixRun(b.Dead[i].Run)
		s.mixText(b.Dead[i].Task)
	}

	for i := range b.DeadMarks {
		s.mixRun(b.DeadMarks[i].Run)
		s.mix(uint64(b.DeadMarks[i].Next))
	}

	for i := range b.DeadDeletes {
		s.mixRun(b.DeadDeletes[i].Run)
	}

	for i := range b.TaskData {
		s.mixRun(b.TaskData[i].Run)
		s.mixText(b.TaskData[i].Task + " " + b.TaskData[i].Name)
	}

	for i := range b.Logs {
		s.mixRun(b.Logs[i].Run)
		s.mixText(b.Logs[i].Text)
	}

	for i := range b.StopTimers {
		s.mixText(b.StopTimers[i].ID)
	}

	for i := range b.Timers {
		s.mixText(b.Timers[i].ID)
		s.mix(uint64(b.Timers[i].Due))
	}

	for i := range b.Taken {
		s.mixText(b.Taken[i].Address.Key)
		s.mix(uint64(b.Taken[i].Seq))
	}

	for i := range b.Mailbox {
		s.mixText(b.Mailbox[i].Address.Key)
		s.mix(uint64(b.Mailbox[i].Item.Seq), uint64(b.Mailbox[i].Item.Message.Kind))
	}

	for i := range b.Entities {
		s.mixText(b.Entities[i].Entity.Address.Key)
		s.mix(uint64(b.Entities[i].Entity.Version), uint64(b.Entities[i].Entity.Epoch))
	}

	for i := range b.Messages {
		s.mix(uint64(b.Messages[i].Message.Kind), uint64(b.Messages[i].To), uint64(b.Messages[i].From), uint64(b.Messages[i].Seq))
	}
	for i := range b.Cursors {
		s.mix(uint64(b.Cursors[i].To), uint64(b.Cursors[i].From), uint64(b.Cursors[i].Next))
	}
	for i := range b.Inbox {
		s.mixRun(b.Inbox[i].ID)
	}
	for i := range b.Requests {
		s.mixText(b.Requests[i].ID)
	}
	for i := range b.Forgets {
		s.mixText(b.Forgets[i].ID)
	}
	if err != nil {
		s.mix(2, uint64(store.ClassOf(err)))
	}
}
