package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// shell runs one lane, as the loop of a lane does in production: it passes inputs to the lane and
// carries out its effects.
type shell struct {
	s     *Sim
	inc   *incarnation
	index int
	lane  *lane.Lane
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
	// roundFunc and wakeFunc are the methods as values, made once.
	roundFunc, wakeFunc func()
	number              int64      // of the last batch that was sent
	sealed              model.Time // when that was
	// the store refused a batch, or the lane split one that never finished in time
	undone bool
	unsure bool // a refence got no answer, so the fence may have moved
	mailed int  // bytes of mail since the lane last had room
	// wakes a caller that waits for what the lane knows, also when the lane has stopped
	asked func()
	// moving has the shards that the lane is giving up, and since when.
	moving map[model.ShardID]model.Time
}

// posted is an input that waits for the lane, with its caller.
type posted struct {
	c  *call
	do func(now model.Time)
}

// refuse tells the waiting caller to ask another node.
func (o *posted) refuse() {
	if o.c != nil {
		o.c.finish(&lane.Answer{Err: lane.ErrNotOwner})
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
		sh.s.after(sh.s.between(0, sh.s.plan.loopDelay), sh.inc.p, sh.roundFunc)
	}
}

// round is one turn of the loop.
func (sh *shell) round() {
	if sh.dead {
		return
	}
	sh.pending = false
	full := sh.lane.Full()
	results := sh.results
	sh.results = nil
	var ops []posted
	if !full {
		ops, sh.ops = sh.ops, nil
	}

	if sh.s.plan.loopDelay > 0 && sh.s.chance(0.1) {
		// Inputs that arrive while the loop works wait for the next round.
		sh.working = true
		sh.s.after(sh.s.between(0, sh.s.plan.loopDelay), sh.inc.p, func() { sh.work(results, ops) })
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

	now := sh.inc.p.now()
	for _, do := range results {
		do(now)
	}

	for i, o := range ops {
		if i > 0 && sh.lane.Full() {
			sh.ops = append(slices.Clip(ops[i:]), sh.ops...) // they wait for the next round
			break
		}
		o.do(now)
	}

	sh.lane.Flush(now)
	sh.checkBounds()
	sh.out = sh.lane.Take(sh.out)
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

	if sh.again || (len(sh.ops) > 0 && !sh.lane.Full()) {
		sh.again = false
		sh.kick()
		return
	}

	sh.sleep(now)
}

// sleep sets the next wake-up.
func (sh *shell) sleep(now model.Time) {
	sh.wakeAt = 0
	at := sh.lane.Wake()
	if at == 0 {
		return
	}
	p := sh.inc.p
	wait := int64(float64(at-now)/p.rate) + 1

	if at <= now {
		if sh.idle++; sh.idle > 100 {
			sh.s.fail("lane %d of %s runs in circles", sh.index, sh.inc.name())
		}
		wait = 1
	}

	sh.wakeAt = sh.s.now + wait
	if sh.wakeAt != sh.alarm { // otherwise the alarm is already set
		sh.alarm = sh.wakeAt
		sh.s.at(sh.wakeAt, p, sh.wakeFunc)
	}
}

// wake runs at the time of a wake-up. The lane may have postponed the wake-up since.
func (sh *shell) wake() {
	if sh.s.now >= sh.wakeAt && sh.wakeAt != 0 && !sh.dead && !sh.pending && !sh.working {
		sh.wakeAt = 0
		sh.round()
	}
}

// die ends the lane with its incarnation.
func (sh *shell) die(why error) {
	if sh.dead {
		return
	}
	sh.lane.Die(why)
	sh.out = sh.lane.Take(sh.out)
	sh.dead = true
	_ = sh.carryOut(&sh.out) // it is dead
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
		if s.opts.Trace {
			s.logf("%s/%d commits batch %d: %s", sh.inc.name(), sh.index, b.Number, describeIf(s, b))
		}
		if b.Number == sh.number && b.At != sh.sealed {
			sh.undone = true
		}
		sh.number, sh.sealed = b.Number, b.At
		s.disk.commit(p, b, func(res store.Committed, err error) {
			sh.result(func(now model.Time) { sh.committed(now, res, err) })
		})
	}

	for i := range out.Calls {
		c := &out.Calls[i]
		s.mix(3, uint64(c.Kind), uint64(c.Worker), c.Generation)
		s.mixRun(c.Run)
		sh.checkCall(c)
		p.call(c)
	}

	p.callTasks(sh, out.TaskCalls)
	p.operate(sh, out.Operate)
	for i := range out.Answers {
		a := out.Answers[i]
		s.mix(4, uint64(a.Answer.Status))
		s.mixRun(a.Answer.Run)
		a.Token.(*call).finish(&a)
	}

	if out.Dead != nil || sh.dead {
		return out.Dead
	}

	if ref := out.Refence; ref != nil {
		s.disk.refence(p, *ref, func(epoch, landed int64, err error) {
			if err == nil && landed == sh.number {
				s.did(opLanded)
			} else if err == nil {
				s.did(opResent)
			} else {
				sh.unsure = true
			}
			sh.result(func(now model.Time) { sh.lane.FinishRefence(now, epoch, landed, err) })
		})
	}

	if len(out.Verify) > 0 {
		sh.verify(append([]store.StartRow(nil), out.Verify...))
	}
	for i := range out.Loads {
		sh.load(&out.Loads[i])
	}
	for i := range out.Mail {
		sh.mail(&out.Mail[i])
	}
	for _, h := range out.Hints {
		s.hint(h.Node)
	}

	if len(out.Freed) > 0 {
		if s.opts.Trace {
			s.logf("%s freed %v", sh.inc.name(), out.Freed)
		}
		sh.inc.freed(append([]model.ShardID(nil), out.Freed...))
	}

	return nil
}

func (sh *shell) committed(now model.Time, res store.Committed, err error) {
	if err != nil {
		if sh.s.opts.Trace {
			sh.s.logf("%s/%d commit failed: %v", sh.inc.name(), sh.index, err)
		}
		if store.ClassOf(err) == store.Refused {
			sh.undone = true
			sh.s.did(opCareful)
		}
	}
	sh.lane.FinishCommit(now, res, err)
}

func (sh *shell) verify(starts []store.StartRow) {
	s := sh.s
	rows := make([]*store.Execution, len(starts))
	var err error
	reply := func(rows []*store.Execution, err error) {
		sh.result(func(now model.Time) { sh.lane.FinishVerify(now, rows, err) })
	}
	f := fine

	if !s.healed && s.chance(0.3) {
		f = failsBefore
		s.hurt(faultVerifyFails)
	}

	s.disk.call(&request{
		p: sh.inc.p, name: "verify", fate: f,
		exec: func(done func()) {
			s.did(opVerify)
			for i := range starts {
				if rows[i], err = s.disk.mem.LoadExecution(background, starts[i].Shard, starts[i].Start.Address, model.RunID{}); err != nil {
					break
				}
			}
			done()
		},
		ok: func() { reply(rows, err) }, bad: func(e error) { reply(nil, e) },
	})
}

// reading is a read for a lane that is in flight.
type reading struct {
	request

	sh   *shell
	load lane.Load
	at   model.Time
	res  lane.LoadResult
	hand func(now model.Time) // handIn as a value, made once
}

// newReading returns an unused reading. Readings are reused, because simulations make hundreds of
// them and each is large.
func (s *Sim) newReading() *reading {
	if n := len(s.readings); n > 0 {
		r := s.readings[n-1]
		s.readings = s.readings[:n-1]
		return r
	}
	r := &reading{request: request{name: "load"}}
	r.exec, r.ok, r.bad, r.hand = r.read, r.reply, r.failed, r.handIn
	return r
}

// load starts a read for the lane.
func (sh *shell) load(ld *lane.Load) {
	s := sh.s
	s.mix(5, uint64(ld.Kind), ld.ID, uint64(ld.Shard))
	r := s.newReading()
	r.sh, r.load, r.at = sh, *ld, sh.inc.p.now()
	r.p, r.fate = sh.inc.p, fine
	if !s.healed && s.chance(s.plan.loadFails) {
		s.hurt(faultLoad)
		r.fate = failsBefore
	}
	s.disk.call(&r.request)
}

// read executes the read at the store.
func (r *reading) read(done func()) {
	s, ld, p := r.sh.s, &r.load, r.p
	if (ld.Kind == lane.LoadRun || ld.Kind == lane.LoadEntity) && s.disk.corrupt[ld.Address] {
		s.hurt(faultLoadCorrupt)
		r.res.Err = fault.New(fault.Corrupt, "row of %s cannot be understood", ld.Address)
		done()
		return
	}

	if r.res.Err = p.unreadable(ld); r.res.Err != nil {
		done()
		return
	}

	if ld.Kind == lane.LoadRun && !s.healed && s.chance(s.plan.tornRead) {
		s.hurt(faultTornRead)
		r.torn(&tornStore{Store: s.disk.mem}, done)
		return
	}

	r.res = engine.Read(background, s.disk.mem, *ld, r.at)
	p.spoil(ld, &r.res)
	done()
}

// torn executes a read whose parts happen at different times.
func (r *reading) torn(t *tornStore, done func()) {
	t.call, t.budget = 0, 1
	res := engine.Read(background, t, r.load, r.p.now())
	if !t.stopped {
		r.res = res
		done()
		return
	}
	t.stopped = false
	s := r.sh.s
	s.after(s.between(1, 3*millisecond), nil, func() { r.torn(t, done) })
}

func (r *reading) failed(err error) {
	r.res = lane.LoadResult{Err: err}
	r.reply()
}

func (r *reading) reply() { r.sh.result(r.hand) }

// handIn passes the result to the lane. A call that was not lost has one answer, so the reading can
// be reused after it.
func (r *reading) handIn(now model.Time) {
	r.sh.mails(r.res.Messages, r.res.Inbox)
	r.sh.lane.FinishLoad(now, r.load.ID, r.res)
	if r.fate == fine {
		r.res = lane.LoadResult{}
		r.sh.s.readings = append(r.sh.s.readings, r)
	}
}

// mail passes on a message for a shard of another lane or node. The message is only a hint, because
// the store has it too.
func (sh *shell) mail(row *store.MessageRow) {
	s := sh.s
	sh.checkMail(row)
	if !s.healed && s.chance(s.plan.mailLost) {
		s.hurt(faultMailLost)
		return
	}
	if sh.inc.owner[row.To] {
		other, m := sh.inc.shells[int(row.To)%len(sh.inc.shells)], *row
		other.result(func(model.Time) {
			other.mails([]store.MessageRow{m}, nil)
			other.lane.Messages([]store.MessageRow{m})
		})
		return
	}
	s.hintMail(row.To)
}

func (s *Sim) hintIsLost() bool {
	if s.healed || !s.chance(s.plan.hintLost) {
		return false
	}
	s.hurt(faultHintLost)
	return true
}

// hintMail notifies the owner of a shard of mail.
func (s *Sim) hintMail(shard model.ShardID) {
	for _, p := range s.procs {
		if p == nil || s.hintIsLost() {
			continue
		}
		s.after(s.disk.latency(), p, func() {
			if p.inc != nil && p.inc.owner[shard] {
				sh := p.inc.shells[int(shard)%len(p.inc.shells)]
				sh.result(func(model.Time) { sh.lane.MailWaits() })
			}
		})
	}
}

// hint notifies a node that something it waits for has happened.
func (s *Sim) hint(node model.NodeID) {
	for _, p := range s.procs {
		if p == nil || s.hintIsLost() {
			continue
		}
		s.after(s.disk.latency(), p, func() {
			if p.inc != nil && p.inc.self.ID == node {
				p.clerk.look()
			}
		})
	}
}

func describeIf(s *Sim, b *store.Batch) string {
	if !s.opts.Trace {
		return ""
	}
	return describe(b)
}

// describe lists the rows of a batch for the trace.
func describe(b *store.Batch) string {
	var t strings.Builder
	for _, k := range b.Deletes {
		fmt.Fprintf(&t, " delete(%s)", short(k.Run))
	}

	for i := range b.Starts {
		r := &b.Starts[i]
		fmt.Fprintf(&t, " start(%s %s ifabsent=%v)", r.Start.Address.Key, short(r.Start.Run), r.IfAbsent)
	}

	for i := range b.Closes {
		fmt.Fprintf(&t, " close(%s %s)", short(b.Closes[i].Run), b.Closes[i].Outcome.Status)
	}
	for i := range b.Marks {
		fmt.Fprintf(&t, " mark(%s parked=%v blocked=%v)", short(b.Marks[i].Run), b.Marks[i].Parked, b.Marks[i].Blocked != nil)
	}
	for i := range b.Labels {
		fmt.Fprintf(&t, " label(%s %s=%s)", short(b.Labels[i].Run), b.Labels[i].Label.Name, b.Labels[i].Label.Value)
	}

	for i := range b.Events {
		e := &b.Events[i]
		fmt.Fprintf(&t, " %s/%d:%s", short(e.Run), e.Event.Seq, e.Event.Kind)
		if e.Event.ID != "" {
			fmt.Fprintf(&t, "(%s)", e.Event.ID)
		}
		if e.Event.Kind == model.EventSignalReceived {
			fmt.Fprintf(&t, "(%x)", signalID(e.Event.Input))
		}
	}

	for i := range b.StopTimers {
		fmt.Fprintf(&t, " stop(%s %q)", short(b.StopTimers[i].Run), b.StopTimers[i].ID)
	}
	for i := range b.Timers {
		fmt.Fprintf(&t, " timer(%s %q due %.6f)", short(b.Timers[i].Run), b.Timers[i].ID, float64(b.Timers[i].Due-epoch)/1e6)
	}
	for _, k := range b.StopAll {
		fmt.Fprintf(&t, " stopall(%s)", short(k.Run))
	}
	for i := range b.Taken {
		fmt.Fprintf(&t, " taken(%s #%d)", b.Taken[i].Address.Key, b.Taken[i].Seq)
	}
	for i := range b.Mailbox {
		fmt.Fprintf(&t, " mailbox(%s #%d %s)", b.Mailbox[i].Address.Key, b.Mailbox[i].Item.Seq, b.Mailbox[i].Item.Message.Kind)
	}

	for i := range b.Entities {
		n := &b.Entities[i]
		fmt.Fprintf(&t, " entity(%s %d..%d gone=%v locked=%v)", n.Entity.Address.Key, n.Prev, n.Entity.Version, n.Gone, n.Entity.Locked())
	}

	for i := range b.Messages {
		m := &b.Messages[i]
		fmt.Fprintf(&t, " msg(%d>%d #%d %s %s)", m.From, m.To, m.Seq, m.Message.Kind, m.Message.To.Key)
	}

	for _, c := range b.Cursors {
		fmt.Fprintf(&t, " cursor(%d>%d %d..%d)", c.From, c.To, c.Prev, c.Next)
	}
	for _, k := range b.Inbox {
		fmt.Fprintf(&t, " inbox(%s)", short(k.ID))
	}
	for i := range b.Deferred {
		fmt.Fprintf(&t, " defer(%s %s %s)", short(b.Deferred[i].ID), b.Deferred[i].Message.Kind, b.Deferred[i].Message.To.Key)
	}
	for i := range b.Requests {
		fmt.Fprintf(&t, " request(%s %s)", b.Requests[i].Address.Key, b.Requests[i].ID)
	}
	for i := range b.Forgets {
		fmt.Fprintf(&t, " forget(%s %s)", b.Forgets[i].Address.Key, b.Forgets[i].ID)
	}
	if len(b.Free) > 0 {
		fmt.Fprintf(&t, " free%v", b.Free)
	}

	return t.String()
}

// short formats a run id for the trace: it is the counter in the id.
func short(id model.RunID) string {
	n := uint64(0)
	for _, b := range id[8:] {
		n = n<<8 | uint64(b)
	}
	return fmt.Sprintf("r%d", n)
}

// describeTurn lists the commands of a turn for the trace.
func describeTurn(t *model.Turn) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seen %d", t.Seen)
	for i := range t.Commands {
		c := &t.Commands[i]
		name := c.Event.Kind.String()
		switch c.Kind {
		case model.CommandStartTimer:
			name = fmt.Sprintf("start_timer due %.6f", float64(c.Event.Due-epoch)/1e6)
		case model.CommandStopTimer:
			name = "stop_timer"
		case model.CommandWithdraw:
			name = "withdraw"
		case model.CommandStartChild, model.CommandWatch:
			name = "child " + c.Event.Target.Key
		case model.CommandSend:
			name = "send " + c.Event.Target.Key
		case model.CommandRetry:
			name = "retry"
		case model.CommandAnswer:
			name = fmt.Sprintf("answer %d", c.Event.Ref)
		case model.CommandLock:
			name = fmt.Sprintf("lock %d", len(c.Event.Locks))
		case model.CommandUnlock:
			name = "unlock"
		case model.CommandRecord, model.CommandSchedule:
		}

		fmt.Fprintf(&b, " %s(%s)", name, c.Event.ID)
		if i+1 == t.Ahead {
			b.WriteString(" ahead:")
		}
	}

	if t.Close != nil {
		fmt.Fprintf(&b, " close %s", t.Close.Status)
	}
	return b.String()
}
