package cluster

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/disk"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// shell runs one lane, as the loop of a lane does in production: it passes inputs to the lane and
// carries out its effects.
type shell struct {
	s     *Cluster
	inc   *incarnation
	index int
	Lane  *lane.Lane
	out   lane.Output

	ops     []posted
	results []func(now model.Time)
	pending bool  // a round is scheduled
	working bool  // a round has taken its inputs and is not done
	again   bool  // something has arrived during the work
	wakeAt  int64 // when the lane wants to wake; 0 means never
	alarm   int64 // the time of the last alarm that was set
	idle    int   // successive rounds with no input except a wake-up
	dead    bool
	// roundFunc and wakeFunc are the methods round and wake as values, so that they are allocated
	// only once.
	roundFunc, wakeFunc func()
	number              int64      // of the last batch that was sent
	sealed              model.Time // when that batch was sent
	*oracle.LaneLog

	unsure bool // a refence got no answer, so the fence may have moved
	mailed int  // bytes of mail since the lane last had room
	// asked wakes a caller that has asked the lane a question. The shell also calls it when the
	// lane has stopped.
	asked func()
}

// posted is an input that waits for the lane, with its caller.
type posted struct {
	c  *call
	do func(now model.Time)
}

// refuse answers the waiting caller that it must ask another node.
func (o *posted) refuse() {
	if o.c != nil {
		o.c.Finish(&lane.Answer{Err: lane.ErrNotOwner})
	}
}

// put adds an input that waits while the lane is full.
func (sh *shell) put(c *call, do func(now model.Time)) bool {
	if sh.dead {
		return false
	}
	sh.ops = append(sh.ops, posted{c, do})
	sh.kick()
	return true
}

// result adds an input that never waits.
func (sh *shell) result(do func(now model.Time)) {
	if !sh.dead {
		sh.results = append(sh.results, do)
		sh.kick()
	}
}

func (sh *shell) kick() {
	sh.idle = 0
	if sh.working {
		sh.again = true
		return
	}
	if !sh.pending {
		sh.pending = true
		sh.s.After(sh.s.Between(0, sh.s.Plan.LoopDelay), sh.inc.p.Process, sh.roundFunc)
	}
}

// round is one turn of the loop.
func (sh *shell) round() {
	if sh.dead {
		return
	}
	sh.pending = false
	full := sh.Lane.Full()
	results := sh.results
	sh.results = nil
	var ops []posted
	if !full {
		ops, sh.ops = sh.ops, nil
	}

	if sh.s.Plan.LoopDelay > 0 && sh.s.Chance(0.1) {
		// Inputs that arrive while the loop works wait for the next round.
		sh.working = true
		sh.s.After(sh.s.Between(0, sh.s.Plan.LoopDelay), sh.inc.p.Process, func() { sh.work(results, ops) })
		return
	}

	sh.work(results, ops)
}

// work hands the inputs of a round to the lane and carries out the effects.
func (sh *shell) work(results []func(model.Time), ops []posted) {
	sh.working = false
	if sh.dead {
		for _, o := range ops {
			o.refuse()
		}
		return
	}

	now := sh.inc.p.Now()
	for _, do := range results {
		do(now)
	}

	for i, o := range ops {
		if i > 0 && sh.Lane.Full() {
			sh.ops = append(slices.Clip(ops[i:]), sh.ops...) // these inputs wait for the next round
			break
		}
		o.do(now)
	}

	sh.Lane.Flush(now)
	sh.checkBounds()
	sh.out = sh.Lane.Take(sh.out)
	if sh.inc.board != nil {
		sh.inc.board.Propose()
	}

	if dead := sh.carryOut(&sh.out); dead != nil {
		sh.checkDeath(dead)
		sh.inc.end(dead)
		return
	}

	if sh.dead {
		return
	}

	if sh.again || (len(sh.ops) > 0 && !sh.Lane.Full()) {
		sh.again = false
		sh.kick()
		return
	}

	sh.sleep(now)
}

// sleep sets the next wake-up.
func (sh *shell) sleep(now model.Time) {
	sh.wakeAt = 0
	at := sh.Lane.Wake()
	if at == 0 {
		return
	}
	p := sh.inc.p
	wait := int64(float64(at-now)/p.rate) + 1

	if at <= now {
		if sh.idle++; sh.idle > 100 {
			sh.s.Fail("lane %d of %s runs in circles", sh.index, sh.inc.name())
		}
		wait = 1
	}

	sh.wakeAt = sh.s.Now + wait
	if sh.wakeAt != sh.alarm { // otherwise the alarm is already set
		sh.alarm = sh.wakeAt
		sh.s.At(sh.wakeAt, p.Process, sh.wakeFunc)
	}
}

// wake runs at the time of a wake-up. The lane may have postponed the wake-up since.
func (sh *shell) wake() {
	if sh.s.Now >= sh.wakeAt && sh.wakeAt != 0 && !sh.dead && !sh.pending && !sh.working {
		sh.wakeAt = 0
		sh.round()
	}
}

// die ends the lane with its incarnation.
func (sh *shell) die(why error) {
	if sh.dead {
		return
	}
	sh.Lane.Die(why)
	sh.out = sh.Lane.Take(sh.out)
	sh.dead = true
	_ = sh.carryOut(&sh.out) // the lane is dead
	ops := sh.ops
	sh.ops, sh.results = nil, nil
	for _, o := range ops {
		o.refuse()
	}
	if sh.asked != nil {
		sh.asked()
	}
}

// carryOut carries out the effects of the lane.
func (sh *shell) carryOut(out *lane.Output) error {
	s, p := sh.s, sh.inc.p
	if b := out.Commit; b != nil && !sh.dead {
		if s.Tracing {
			s.Logf("%s/%d commits batch %d: %s", sh.inc.name(), sh.index, b.Number, disk.Describe(b))
		}
		if b.Number == sh.number && b.At != sh.sealed {
			sh.undone()
		}
		sh.number, sh.sealed = b.Number, b.At
		s.Disk.Commit(p.Process, b, func(res store.Committed, err error) {
			sh.result(func(now model.Time) { sh.finishCommit(now, res, err) })
		})
	}

	for i := range out.Calls {
		c := &out.Calls[i]
		s.Mix(3, uint64(c.Kind), uint64(c.Worker), c.Generation)
		s.MixRun(c.Run)
		sh.checkCall(c)
		p.call(c)
	}

	p.callTasks(sh, out.TaskCalls)
	p.operate(sh, out.Operate)
	for i := range out.Answers {
		a := out.Answers[i]
		s.Mix(4, uint64(a.Answer.Status))
		s.MixRun(a.Answer.Run)
		a.Token.(*call).Finish(&a)
	}

	if out.Dead != nil || sh.dead {
		return out.Dead
	}

	if ref := out.Refence; ref != nil {
		s.Disk.Refence(p.Process, *ref, func(epoch, landed int64, err error) {
			if err == nil && landed == sh.number {
				s.Did(scenario.OpLanded)
			} else if err == nil {
				s.Did(scenario.OpResent)
			} else {
				sh.unsure = true
			}
			sh.result(func(now model.Time) { sh.Lane.FinishRefence(now, epoch, landed, err) })
		})
	}

	if len(out.Verify) > 0 {
		sh.verify(append([]store.StartRow(nil), out.Verify...))
	}
	sh.loadAll(out.Loads)
	for i := range out.Mail {
		sh.mail(&out.Mail[i])
	}
	for _, h := range out.Hints {
		s.hint(h.Node)
	}

	if len(out.Freed) > 0 {
		if s.Tracing {
			s.Logf("%s freed %v", sh.inc.name(), out.Freed)
		}
		sh.inc.dropShards(append([]model.ShardID(nil), out.Freed...))
	}

	return nil
}

func (sh *shell) finishCommit(now model.Time, res store.Committed, err error) {
	if err != nil {
		if sh.s.Tracing {
			sh.s.Logf("%s/%d commit failed: %v", sh.inc.name(), sh.index, err)
		}
		if store.ClassOf(err) == store.Refused {
			sh.undone()
			sh.s.Did(scenario.OpCareful)
		}
	}
	sh.Lane.FinishCommit(now, res, err)
}

// undone notes the time at which the lane applies inputs again.
func (sh *shell) undone() { sh.Undone, sh.Clock = sh.s.Now, sh.inc.p.Now() }

func (sh *shell) verify(starts []store.StartRow) {
	s := sh.s
	rows := make([]*store.Execution, len(starts))
	var err error
	reply := func(rows []*store.Execution, err error) {
		sh.result(func(now model.Time) { sh.Lane.FinishVerify(now, rows, err) })
	}
	f := disk.Fine

	if !s.Healed && s.Chance(0.3) {
		f = disk.FailsBefore
		s.Hurt(scenario.FaultVerifyFails)
	}

	s.Disk.Call(&disk.Request{
		Process: sh.inc.p.Process, Name: "verify", Fate: f,
		Exec: func(done func()) {
			s.Did(scenario.OpVerify)
			for i := range starts {
				if rows[i], err = s.Disk.Mem.LoadExecution(context.Background(), starts[i].Shard, starts[i].Start.Address, model.RunID{}); err != nil {
					break
				}
			}
			done()
		},
		OK: func() { reply(rows, err) }, Bad: func(e error) { reply(nil, e) },
	})
}

// reading is a read in flight for a lane.
type reading struct {
	disk.Request

	sh   *shell
	load lane.Load
	at   model.Time
	res  lane.LoadResult
	hand func(now model.Time) // handIn as a value, made once
}

// newReading returns an unused reading. Readings are reused, because simulations make hundreds of
// them and each is large.
func (s *Cluster) newReading() *reading {
	if n := len(s.readings); n > 0 {
		r := s.readings[n-1]
		s.readings = s.readings[:n-1]
		return r
	}
	r := &reading{Request: disk.Request{Name: "load"}}
	r.Exec, r.OK, r.Bad, r.hand = r.read, r.reply, r.fail, r.handIn
	return r
}

// load starts a read for the lane.
func (sh *shell) load(ld *lane.Load) {
	s := sh.s
	s.Mix(5, uint64(ld.Kind), ld.ID, uint64(ld.Shard))
	r := s.newReading()
	r.sh, r.load, r.at = sh, *ld, sh.inc.p.Now()
	r.Process, r.Fate = sh.inc.p.Process, disk.Fine
	if !s.Healed && s.Chance(s.Plan.LoadFails) {
		s.Hurt(scenario.FaultLoad)
		r.Fate = disk.FailsBefore
	}
	s.Disk.Call(&r.Request)
}

// read executes the read at the store.
func (r *reading) read(done func()) {
	s, ld, p := r.sh.s, &r.load, r.sh.inc.p
	if r.res.Err = p.unreadable(ld); r.res.Err != nil {
		done()
		return
	}

	if ld.Kind == lane.LoadRun && !s.Healed && s.Chance(s.Plan.TornRead) {
		s.Hurt(scenario.FaultTornRead)
		r.torn(&disk.TornStore{Store: s.Disk.Mem}, done)
		return
	}

	r.res = engine.Read(context.Background(), s.Disk.Mem, *ld, r.at)
	p.spoil(ld, &r.res)
	p.damage(ld, &r.res)
	done()
}

// torn executes a read whose parts happen at different times.
func (r *reading) torn(t *disk.TornStore, done func()) {
	t.Call, t.Budget = 0, 1
	res := engine.Read(context.Background(), t, r.load, r.sh.inc.p.Now())
	if !t.Stopped {
		r.res = res
		done()
		return
	}
	t.Stopped = false
	s := r.sh.s
	s.After(s.Between(1, 3*kernel.Millisecond), nil, func() { r.torn(t, done) })
}

func (r *reading) fail(err error) {
	r.res = lane.LoadResult{Err: err}
	r.reply()
}

func (r *reading) reply() { r.sh.result(r.hand) }

// handIn passes the result to the lane. The store answers such a call only once, so the reading is
// free after that.
func (r *reading) handIn(now model.Time) {
	r.sh.mails(r.res.Messages, r.res.Inbox)
	r.sh.Lane.FinishLoad(now, r.load.ID, r.res)
	if r.Fate == disk.Fine {
		r.res = lane.LoadResult{}
		r.sh.s.readings = append(r.sh.s.readings, r)
	}
}

// mail passes on a message for a shard of another lane or node. The message is only a hint, because
// the store has it too.
func (sh *shell) mail(row *store.MessageRow) {
	s := sh.s
	sh.checkMail(row)
	if !s.Healed && s.Chance(s.Plan.MailLost) {
		s.Hurt(scenario.FaultMailLost)
		return
	}
	if sh.inc.Owner[row.To] {
		other, m := sh.inc.Shells[int(row.To)%len(sh.inc.Shells)], *row
		other.result(func(model.Time) {
			other.mails([]store.MessageRow{m}, nil)
			other.Lane.Messages([]store.MessageRow{m})
		})
		return
	}
	if !sh.inc.note(row) {
		s.hintMail(row.To, (*lane.Lane).MailWaitsFor)
	}
}

func (s *Cluster) hintIsLost() bool {
	if s.Healed || !s.Chance(s.Plan.HintLost) {
		return false
	}
	s.Hurt(scenario.FaultHintLost)
	return true
}

// hintMail notifies the owner of a shard of mail.
func (s *Cluster) hintMail(shard model.ShardID, waits func(*lane.Lane, model.ShardID)) {
	for _, p := range s.Procs {
		if p == nil || s.hintIsLost() {
			continue
		}
		s.After(s.Disk.Latency(), p.Process, func() {
			if p.Inc != nil && p.Inc.Owner[shard] {
				sh := p.Inc.Shells[int(shard)%len(p.Inc.Shells)]
				sh.result(func(model.Time) { waits(sh.Lane, shard) })
			}
		})
	}
}

// hint notifies a node that something it waits for has happened.
func (s *Cluster) hint(node model.NodeID) {
	for _, p := range s.Procs {
		if p == nil || s.hintIsLost() {
			continue
		}
		s.After(s.Disk.Latency(), p.Process, func() {
			if p.Inc != nil && p.Inc.self.ID == node {
				p.clerk.look()
			}
		})
	}
}
