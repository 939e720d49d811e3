package workload

import (
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	cutting "github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/cluster"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// misuse returns another signal under the request id of an accepted signal. It returns nil if there
// is no accepted signal whose request id the engine must still remember.
func (u *user) misuse() *action {
	s := u.s
	var first []*oracle.Op
	for _, o := range s.Ops {
		if m := &o.Message; o.Acked && m.Kind == model.MessageSignal && m.RequestID != "" && o.Shadow == nil && !o.Received && !s.IsForgotten(o) {
			first = append(first, o)
		}
	}

	if len(first) == 0 {
		return nil
	}
	used := kernel.OneOf(s, first...)
	used.Copied = true
	m := used.Message
	m.Input = u.signal()
	if s.Chance(0.5) {
		m.Name = kernel.OneOf(s, scenario.SignalNames[:]...)
	}
	id := m.RequestID
	o := u.op(m)
	o.Message.RequestID, o.Misuses = id, true
	s.Hurt(scenario.FaultMisuse)

	return o
}

// readAgain repeats a reset, as the service does, if the run has continued since the user read its
// history. The repetition uses the current history.
func (o *action) readAgain() bool {
	s, m := o.u.s, &o.Message
	if m.Past == nil || m.Past.Next == 0 || o.Shadow != nil || o.Reads == 3 {
		return false
	}
	r := s.Ledger.Runs[m.ToRun]
	if !r.Open() || r.Address.Current != r {
		return false
	}

	next := s.TakeOver(r, cutting.Reset)
	if next == nil {
		return false
	}
	o.Reads++
	if m.RequestID != "" { // the refusal is remembered under the request id
		next.RequestID = fmt.Sprintf("%s#%d", m.RequestID, o.Reads)
	}
	o.Message = *next
	s.Did(scenario.OpReadAgain)

	return true
}

// user makes one request after the other, through any live process.
type user struct {
	s     *Workload
	index int
	left  int // how many actions the user will still draw
	busy  bool
	sent  uint64
	era   string // the last era that a server has sent; empty for none
}

// action is a request of a user, together with everything that the user needs to make the request.
type action struct {
	*oracle.Op

	u      *user
	pinned *cluster.Proc               // the process that makes the first attempt
	set    func(p *cluster.Proc) error // changes a setting, for a request about settings
}

func (s *Workload) drawUsers() {
	s.helper = &user{s: s, index: 100}
	s.Visitor = s.helper
	for i := range s.Plan.Users {
		u := &user{s: s, index: i + 1, left: s.Plan.Actions}
		s.users = append(s.users, u)
		u.busy = true
		s.After(s.Between(0, 300)*kernel.Millisecond, nil, u.next)
	}
}

// next makes the next request.
func (u *user) next() {
	s := u.s
	u.busy = true
	if u.left == 0 {
		u.busy = false
		return
	}

	u.left--
	o := u.draw()
	if o.Message.RequestID != "" && !o.Misuses && !s.Opts.Calm && !s.Healed && s.Chance(0.3) {
		again := *o.Op
		again.Shadow, again.Index = o.Op, len(s.Ops)
		s.Ops = append(s.Ops, &again)
		o.Copied = true
		twin := *o
		twin.Op = &again
		s.After(s.Between(0, 2*kernel.Millisecond), nil, func() { twin.perform(func() {}) })
	}

	o.perform(func() { s.After(s.Between(0, 250)*kernel.Millisecond, nil, u.next) })
}

func (u *user) op(m model.Message) *action {
	o := &action{u: u, Op: &oracle.Op{User: u.index, Index: len(u.s.Ops), Message: m}}
	u.s.Ops = append(u.s.Ops, o.Op)
	if m.Kind != 0 && u.s.Chance(0.5) {
		o.Message.RequestID = u.requestID(o.Index)
	}
	return o
}

// requestID returns an id for a request. Clients of servers draw most ids themselves. Such an id
// names the last era that a server has sent to the client.
func (u *user) requestID(index int) string {
	id := fmt.Sprintf("req-%d", index)
	if u.s.Has(scenario.DrawnIDs) && u.s.Chance(0.8) {
		id = model.DrawnID(id, u.era)
	}
	return id
}

// hearEra notes the era that a server sends with its answer to a request under a drawn id.
func (o *action) hearEra(p *cluster.Proc, a *lane.Answer) {
	if !model.IsDrawnID(o.Message.RequestID) || fault.Is(a.Err, fault.Timeout) || errors.Is(a.Err, cluster.ErrCrashed) {
		return
	}
	if era := p.Era(o.Message.To); era != "" {
		o.u.era = era
	}
}

// confirm lets the server know that the user has the answer to a request under a drawn id, as
// internal/remote does. The receipt may get lost. If the user has sent the request twice, it sends
// no receipt, because a copy of the request may still be on its way.
func (o *action) confirm(p *cluster.Proc, a *lane.Answer) {
	s := o.u.s
	if !s.Has(scenario.Receipts) || a.Err != nil || o.Tries > 1 || o.Shadow != nil || o.Copied || o.Misuses || !model.IsDrawnID(o.Message.RequestID) || s.Chance(0.2) {
		return
	}
	o.Received = true
	s.After(s.Between(0, 100)*kernel.Millisecond, p.Process, func() { p.TakeReceipt(o.Message.RequestID) })
}

func (u *user) signal() model.Payload {
	u.sent++
	return scenario.SignalPayload(uint64(u.index)<<32 | u.sent)
}

// draw draws a request.
func (u *user) draw() *action {
	s := u.s
	if s.Has(scenario.RequestIDs) && s.Chance(0.2) {
		if o := u.misuse(); o != nil {
			return o
		}
	}

	if s.Has(scenario.Entities) && s.Chance(0.4) {
		return u.deed()
	}
	if s.Has(scenario.Tasks) && s.Chance(0.4) {
		return u.drawTask()
	}
	to := s.Address()

	if s.Chance(0.1) {
		to = s.ChildAddress()
	} else if len(s.Copies) > 0 && s.Chance(0.15) {
		to = kernel.OneOf(s, s.Copies...)
	}

	start := func() model.Message {
		program := 3 + slices.Index(scenario.RootKeys[:], to.Key)%4
		if slices.Index(scenario.RootKeys[:], to.Key) < 0 {
			program = 0
		}
		if s.Chance(0.08) {
			program = s.Pick(len(s.Programs)) // another input
		}
		m := model.Message{Kind: model.MessageStart, To: to, Input: scenario.Input(program, int(to.Key[1]-'0')%3, 0)}
		if s.Has(scenario.Labels) {
			m.Labels = []model.Label{{Name: "root", Value: to.Key}}
		}
		if a := s.Ledger.Addresses[to]; a != nil && a.Current != nil && slices.Contains(s.Copies, to) {
			m.Input = a.Current.Origin
		}
		m.Reuse = kernel.OneOf(s, model.ReturnExisting, model.ReturnExisting, model.ReuseIfFailed, model.ReuseAlways)
		m.Terms = s.DrawTerms()

		return m
	}

	if s.Has(scenario.SignalOrders) && s.Chance(0.3) {
		if o := u.orderSignal(); o != nil {
			return o
		}
	}

	if m := s.Rewrite(to); m != nil {
		return u.op(*m)
	}

	switch n := s.Pick(27); {
	case n < 7 || s.Ledger.Addresses[to] == nil:
		o := u.op(start())
		if s.Chance(0.05) { // perhaps before the execution has started
			u.soon(o, s.Between(0, kernel.Millisecond), model.Message{Kind: model.MessageTerminate, To: to, Failure: &model.Failure{Message: "at once"}})
		}
		return o
	case n < 9:
		m := start()
		for range 1 + s.Pick(2) {
			m.With = append(m.With, model.Event{Name: kernel.OneOf(s, scenario.SignalNames[:]...), Input: u.signal()})
		}
		return u.op(m)
	case n < 13:
		return u.op(u.signalTo(to, kernel.OneOf(s, scenario.SignalNames[:]...)))
	case n < 15:
		return u.op(settle(to, kernel.OneOf(s, scenario.Promises[:]...), u))
	case n < 16:
		return u.op(model.Message{Kind: model.MessageCancel, To: to, Failure: &model.Failure{Kind: model.FailureCanceled, Message: "by a user"}})
	case n < 18:
		o := u.op(model.Message{To: to})
		if a := s.Ledger.Addresses[to]; s.Chance(0.3) && a.Current != nil {
			o.Run = a.Current.ID
		}
		return o
	case n < 20:
		o := u.op(model.Message{To: to})
		o.Read = true
		return o
	default:
		return u.talk(to, n)
	}
}

// soon makes another request through the same node shortly after an op, perhaps before the op has
// ended.
func (u *user) soon(first *action, wait int64, m model.Message) {
	s := u.s
	first.pinned = s.Procs[s.Pick(len(s.Procs))]
	s.After(wait, nil, func() {
		o := u.op(m)
		o.pinned = first.pinned
		o.perform(func() {})
	})
}

// Ask implements the interface visitor of package cluster.
func (u *user) Ask(p *cluster.Proc, a model.Address) {
	o := u.op(model.Message{To: a})
	o.Read, o.pinned = true, p
	o.perform(func() {})
}

// Knock implements the interface visitor of package cluster.
func (u *user) Knock(p *cluster.Proc, m model.Message) {
	s, o := u.s, u.op(m)
	o.Message.RequestID, o.pinned = "", p
	s.After(s.Between(0, 3*kernel.Millisecond), nil, func() { o.perform(func() {}) })
}

// Repeat implements the interface visitor of package cluster.
func (u *user) Repeat(p *cluster.Proc, at func(model.Address) bool) {
	s := u.s
	var served []*oracle.Op
	for _, o := range s.Ops {
		if m := &o.Message; o.Acked && o.Shadow == nil && !o.Misuses && !o.Received && at(m.To) && model.IsDrawnID(m.RequestID) && model.EraOf(m.RequestID) == p.Era(m.To) {
			served = append(served, o)
		}
	}
	if len(served) == 0 {
		return
	}

	o := kernel.OneOf(s, served...)
	o.Copied = true
	copied := &action{u: u, pinned: p, Op: &oracle.Op{User: o.User, Index: len(s.Ops), Message: o.Message, Shadow: o, Since: o.Since}}
	s.Ops = append(s.Ops, copied.Op)
	s.Did(scenario.OpLateCopy)
	s.After(s.Between(0, 3*kernel.Millisecond), nil, func() { copied.perform(func() {}) })
}

func (u *user) signalTo(to model.Address, name string) model.Message {
	return model.Message{Kind: model.MessageSignal, To: to, Name: name, Input: u.signal()}
}

func settle(to model.Address, name string, u *user) model.Message {
	return model.Message{Kind: model.MessageSettle, To: to, Name: name, Input: u.signal()}
}

// perform makes the request, repeats it if needed, and calls then at the end.
func (o *action) perform(then func()) {
	s := o.u.s
	var up []*cluster.Proc
	for _, p := range s.Procs {
		if p != nil {
			up = append(up, p)
		}
	}

	if len(up) == 0 {
		s.After(20*kernel.Millisecond, nil, func() { o.perform(then) })
		return
	}

	p := up[s.Pick(len(up))]
	if o.Tries++; o.Tries == 1 {
		o.Invoked = s.Now
		if o.pinned != nil && !o.pinned.Dead {
			p = o.pinned
		}
	}

	if s.Tracing {
		s.Logf("user %d %s on %s, try %d", o.User, o, p.Name(), o.Tries)
	}
	answered, giveUp := false, func() {}

	reply := func(a *lane.Answer) {
		if answered {
			return
		}
		answered = true
		o.hearEra(p, a)
		o.confirm(p, a)
		s.Mix(6, uint64(o.Index))
		o.answer(a, then)
	}

	patience := s.Between(100, 1500) * kernel.Millisecond
	if s.Healed {
		patience = 20 * kernel.Second
	}

	s.After(patience, nil, func() {
		if !answered {
			if !s.Healed {
				s.Hurt(scenario.FaultGaveUp)
			}
			giveUp()
			reply(&lane.Answer{Err: fault.New(fault.Timeout, "gave up")})
		}
	})

	// The process makes the call, so nothing happens while the process is paused.
	s.After(0, p.Process, func() {
		switch {
		case o.set != nil:
			c := cluster.NewCall(p, reply)
			p.Spawn(func() {
				s.Running.User = true
				c.Finish(&lane.Answer{Err: o.set(p)})
			})
		case o.Read:
			p.Read(o.Message.To, reply)
		case o.Message.Kind == 0:
			p.Await(o.Message.To, o.Run, reply)
		default:
			m := o.Message
			s.Heaviest = max(s.Heaviest, m.Size())
			// Await only in the first attempt, because the execution may wait for the next request
			// of this user.
			awaits := m.Kind == model.MessageStart && cluster.Repeatable(&m) && o.Tries == 1 && !s.Healed && s.Chance(0.3)
			giveUp = p.Deliver(&m, awaits, reply)
		}
	})
}

// answer handles the answer to an attempt.
func (o *action) answer(a *lane.Answer, then func()) {
	s := o.u.s
	if s.Tracing {
		s.Logf("user %d %s: run %s existing %v, %v", o.User, o, scenario.Short(a.Answer.Run), a.Answer.Existing, a.Err)
	}
	again := func() { s.After(s.Between(1, 50)*kernel.Millisecond, nil, func() { o.perform(then) }) }

	end := func() {
		o.Done, o.Ended = true, s.Now
		then()
	}

	switch {
	case o.set != nil:
		o.answerSetting(a, again, end)
		return
	case o.Read:
		end()
		return
	case o.Message.Kind == 0:
		o.takeAwaited(a, again, end)
		return
	case o.Message.To.IsEntity():
		o.answerCall(a, again, end)
		return
	}

	switch kind := fault.KindOf(a.Err); {
	case a.Result != nil:
		o.Acked = true
		s.Did(scenario.OpRan)
		s.CheckResult(o.Op, a.Result)
		end()
	case a.Err == nil:
		s.CheckMisuse(o.Op)
		o.Acked = true
		s.CheckAnswer(o.Op, &a.Answer)
		o.takeAnswer(&a.Answer)
		end()
	case kind == fault.Conflict && o.readAgain():
		again()
	case kind == fault.Conflict:
		s.Did(scenario.OpConflict)
		if o.Misuses {
			s.Did(scenario.OpMisused)
		}
		s.CheckRefused(o.Op)
		o.Refused = a.Err
		end()
	case kind == fault.AlreadyExists:
		s.Did(scenario.OpExists)
		o.Refused = a.Err
		end()
	case kind == fault.NotFound:
		s.Did(scenario.OpNotFound)
		o.Refused = a.Err
		end()
	case kind == fault.Exhausted:
		s.Did(scenario.OpRefusedFull)
		o.Refused = a.Err
		end()
	case kind == fault.Blocked:
		if o.Message.Kind != model.MessageQuery && !s.Ledger.Address(o.Message.To).Sick {
			s.Fail("I14: %s: %v, but nothing has damaged it", o, a.Err)
		}
		o.Refused = a.Err
		end()
	case s.ExcusesCorrupt(o.Op, a.Err):
		end()
	case kind != fault.Unavailable && kind != fault.Timeout && !errors.Is(a.Err, cluster.ErrCrashed):
		s.Fail("%s: %v", o, a.Err)
	case o.Message.RequestID != "" || o.Message.Kind == model.MessageCancel || o.Message.Kind == model.MessageQuery || o.Message.Kind == model.MessageDelete || o.Message.Kind == model.MessageRequeue && cluster.Repeatable(&o.Message) || (o.Message.Kind == model.MessageStart && o.Message.Reuse == model.ReturnExisting && len(o.Message.With) == 0 && o.Message.Past == nil):
		again()
	default:
		o.Unknown = true
		end()
	}
}

func (o *action) takeAnswer(a *model.Answer) {
	s := o.u.s
	if o.Shadow != nil || o.Tries > 1 {
		s.Did(scenario.OpRepeated)
	}
	if o.Message.Kind == model.MessageStart {
		if a.Existing {
			s.Did(scenario.OpAttached)
		} else {
			s.Did(scenario.OpStarted)
		}
	}
}

func (o *action) takeAwaited(a *lane.Answer, again, end func()) {
	s := o.u.s
	switch kind := fault.KindOf(a.Err); {
	case a.Result != nil:
		s.Did(scenario.OpAwaited)
		s.CheckResult(o.Op, a.Result)
		if !o.Run.IsZero() && a.Result.Run != o.Run {
			s.Fail("I4: %s heard the end of another run", o)
		}
		end()
	case kind == fault.NotFound:
		end()
	case kind == fault.Timeout && !s.Healed && s.Chance(0.5):
		end()
	default:
		again()
	}
}
