package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// user makes one request after the other, through any live process.
type user struct {
	s     *Sim
	index int
	left  int // actions to draw
	busy  bool
	sent  uint64
}

// op is a request of a user: a message to an address, or a question about its end or state.
type op struct {
	user    *user
	index   int
	message model.Message // Kind is 0 for await and read
	read    bool
	run     model.RunID // to await; zero means the end of the chain

	tries   int
	invoked int64
	ended   int64
	acked   bool
	refused error // permanently
	unknown bool  // the outcome cannot be known
	done    bool
	pinned  *proc                 // the process that makes the first attempt
	floor   map[model.RunID]int64 // how many events earlier answers to queries included
	misuses bool                  // its request id belongs to another request
	shadow  *op                   // the op that this one repeats with the same request id
	// the state of the entity that a caller had seen before this request
	since int
	reads int // how often it has read the history again

	set  func(p *proc) error // changes a setting, for an op about settings
	what string
}

func (o *op) String() string {
	if o.set != nil {
		return fmt.Sprintf("op %d (%s)", o.index, o.what)
	}
	kind := o.message.Kind.String()

	if o.message.Kind == 0 {
		kind = "await"
		if o.read {
			kind = "read"
		}
	}

	text := fmt.Sprintf("op %d (%s %s", o.index, kind, o.message.To.Key)
	if o.message.Kind == model.MessageSignal {
		text += fmt.Sprintf(" %x", signalID(o.message.Input))
	}
	if o.message.RequestID != "" {
		text += " " + o.message.RequestID
	}

	return text + ")"
}

func (s *Sim) drawUsers() {
	s.helper = &user{s: s, index: 100}
	for i := range s.plan.users {
		u := &user{s: s, index: i + 1, left: s.plan.actions}
		s.users = append(s.users, u)
		u.busy = true
		s.after(s.between(0, 300)*millisecond, nil, u.next)
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
	if o.message.RequestID != "" && !o.misuses && !s.opts.Calm && !s.healed && s.chance(0.3) {
		twin := *o
		twin.shadow, twin.index = o, len(s.ops)
		s.ops = append(s.ops, &twin)
		s.after(s.between(0, 2*millisecond), nil, func() { twin.perform(func() {}) })
	}
	o.perform(func() { s.after(s.between(0, 250)*millisecond, nil, u.next) })
}

func (u *user) op(m model.Message) *op {
	o := &op{user: u, index: len(u.s.ops), message: m}
	u.s.ops = append(u.s.ops, o)
	if m.Kind != 0 && u.s.chance(0.5) {
		o.message.RequestID = fmt.Sprintf("req-%d", o.index)
	}
	return o
}

func (u *user) signal() model.Payload {
	u.sent++
	return signalPayload(uint64(u.index)<<32 | u.sent)
}

// draw draws a request.
func (u *user) draw() *op {
	s := u.s
	if s.hard(hardIDs) && s.chance(0.2) {
		if o := u.misuse(); o != nil {
			return o
		}
	}

	if s.entities && s.chance(0.4) {
		return u.deed()
	}
	if s.tasks && s.chance(0.4) {
		return u.drawTask()
	}
	to := s.address()

	if s.chance(0.1) {
		to = s.childAddress()
	} else if len(s.copies) > 0 && s.chance(0.15) {
		to = oneOf(s, s.copies...)
	}

	start := func() model.Message {
		program := 3 + slices.Index(rootKeys[:], to.Key)%4
		if slices.Index(rootKeys[:], to.Key) < 0 {
			program = 0
		}
		if s.chance(0.08) {
			program = s.pick(len(s.programs)) // another input
		}
		m := model.Message{Kind: model.MessageStart, To: to, Input: input(program, int(to.Key[1]-'0')%3, 0)}
		if s.labels {
			m.Labels = []model.Label{{Name: "root", Value: to.Key}}
		}
		if a := s.ledger.addresses[to]; a != nil && a.current != nil && slices.Contains(s.copies, to) {
			m.Input = a.current.origin
		}
		m.Reuse = oneOf(s, model.ReturnExisting, model.ReturnExisting, model.ReuseIfFailed, model.ReuseAlways)

		return m
	}

	if m := s.rewrite(to); m != nil {
		return u.op(*m)
	}

	switch n := s.pick(27); {
	case n < 7 || s.ledger.addresses[to] == nil:
		o := u.op(start())
		if s.chance(0.05) { // perhaps before it has started
			u.soon(o, s.between(0, millisecond), model.Message{Kind: model.MessageTerminate, To: to, Failure: &model.Failure{Message: "at once"}})
		}
		return o
	case n < 9:
		m := start()
		for range 1 + s.pick(2) {
			m.With = append(m.With, model.Event{Name: oneOf(s, signalNames[:]...), Input: u.signal()})
		}
		return u.op(m)
	case n < 13:
		return u.op(u.signalTo(to, oneOf(s, signalNames[:]...)))
	case n < 15:
		return u.op(settle(to, oneOf(s, promises[:]...), u))
	case n < 16:
		return u.op(model.Message{Kind: model.MessageCancel, To: to, Failure: &model.Failure{Kind: model.FailureCanceled, Message: "by a user"}})
	case n < 18:
		o := u.op(model.Message{To: to})
		if a := s.ledger.addresses[to]; s.chance(0.3) && a.current != nil {
			o.run = a.current.id
		}
		return o
	case n < 20:
		o := u.op(model.Message{To: to})
		o.read = true
		return o
	default:
		return u.talk(to, n)
	}
}

// soon makes another request through the same node shortly after an op, perhaps before the op has
// ended.
func (u *user) soon(first *op, wait int64, m model.Message) {
	s := u.s
	first.pinned = s.procs[s.pick(len(s.procs))]
	s.after(wait, nil, func() {
		o := u.op(m)
		o.pinned = first.pinned
		o.perform(func() {})
	})
}

func (u *user) signalTo(to model.Address, name string) model.Message {
	return model.Message{Kind: model.MessageSignal, To: to, Name: name, Input: u.signal()}
}

func settle(to model.Address, name string, u *user) model.Message {
	return model.Message{Kind: model.MessageSettle, To: to, Name: name, Input: u.signal()}
}

// perform makes the request, repeats it if needed, and then calls then.
func (o *op) perform(then func()) {
	s := o.user.s
	var up []*proc
	for _, p := range s.procs {
		if p != nil {
			up = append(up, p)
		}
	}

	if len(up) == 0 {
		s.after(20*millisecond, nil, func() { o.perform(then) })
		return
	}

	p := up[s.pick(len(up))]
	if o.tries++; o.tries == 1 {
		o.invoked = s.now
		if o.pinned != nil && !o.pinned.dead {
			p = o.pinned
		}
	}

	if s.opts.Trace {
		s.logf("user %d %s on %s, try %d", o.user.index, o, p.name(), o.tries)
	}
	answered, giveUp := false, func() {}

	reply := func(a *lane.Answer) {
		if answered {
			return
		}
		answered = true
		s.mix(6, uint64(o.index))
		o.answer(a, then)
	}

	patience := s.between(100, 1500) * millisecond
	if s.healed {
		patience = 20 * second
	}

	s.after(patience, nil, func() {
		if !answered {
			if !s.healed {
				s.hurt(faultGaveUp)
			}
			giveUp()
			reply(&lane.Answer{Err: fault.New(fault.Timeout, "gave up")})
		}
	})

	// The process makes the call, so nothing happens while it is paused.
	s.after(0, p, func() {
		switch {
		case o.set != nil:
			c := newCall(p, reply)
			p.spawn(func() {
				s.running.user = true
				c.finish(&lane.Answer{Err: o.set(p)})
			})
		case o.read:
			p.read(o, reply)
		case o.message.Kind == 0:
			p.await(o.message.To, o.run, reply)
		default:
			m := o.message
			s.heaviest = max(s.heaviest, m.Size())
			// Only the first time, because the execution may wait for the next request of this
			// user.
			awaits := m.Kind == model.MessageStart && repeatable(&m) && o.tries == 1 && !s.healed && s.chance(0.3)
			giveUp = p.deliver(&m, awaits, reply)
		}
	})
}

// read asks a node why an execution does not continue, as Engine.Explain does. Only the owner may
// answer.
func (p *proc) read(o *op, reply func(*lane.Answer)) {
	s := p.s
	shard := o.message.To.Shard(s.plan.shards)
	inc := p.inc
	if inc == nil || !inc.owner[shard] {
		reply(&lane.Answer{})
		return
	}

	sh := inc.shells[int(shard)%len(inc.shells)]
	c := newCall(p, reply)
	sh.put(c, func(model.Time) {
		reasons, ok := sh.lane.Explain(o.message.To)
		switch {
		case ok && inc.serving():
			s.did(opRead)
			if s.ledger.owner[shard] != inc.self.ID && !inc.betrayed() {
				s.fail("I1: %s answers a read of shard %d, which belongs to %s", inc.name(), shard, s.ledger.name(s.ledger.owner[shard]))
			}
			for _, r := range reasons {
				s.explained(s.ledger.address(o.message.To), r)
				if (r.Code == model.WaitPoison || r.Code == model.WaitCorrupt || r.Code == model.WaitNewer) && !s.ledger.address(o.message.To).sick {
					s.fail("I14: %s is quarantined, and there is nothing wrong with it: %s", o.message.To, r)
				}
			}
		case ok:
			s.did(opReadRefused)
		}

		c.finish(&lane.Answer{})
	})
}

// answer handles the answer to an attempt.
func (o *op) answer(a *lane.Answer, then func()) {
	s := o.user.s
	if s.opts.Trace {
		s.logf("user %d %s: run %s existing %v, %v", o.user.index, o, short(a.Answer.Run), a.Answer.Existing, a.Err)
	}
	again := func() { s.after(s.between(1, 50)*millisecond, nil, func() { o.perform(then) }) }

	end := func() {
		o.done, o.ended = true, s.now
		then()
	}

	switch {
	case o.set != nil:
		o.answerSetting(a, again, end)
		return
	case o.read:
		end()
		return
	case o.message.Kind == 0:
		o.awaited(a, again, end)
		return
	case o.message.To.IsEntity():
		o.answerCall(a, again, end)
		return
	}

	switch kind := fault.KindOf(a.Err); {
	case a.Result != nil:
		o.acked = true
		s.did(opRan)
		s.checkResult(o, a.Result)
		end()
	case a.Err == nil:
		o.checkMisuse()
		o.acked = true
		s.checkAnswer(o, &a.Answer)
		o.accepted(&a.Answer)
		end()
	case kind == fault.Conflict && o.readAgain():
		again()
	case kind == fault.Conflict:
		s.did(opConflict)
		if o.misuses {
			s.did(opMisused)
		}
		s.checkRefused(o)
		o.refused = a.Err
		end()
	case kind == fault.AlreadyExists:
		s.did(opExists)
		o.refused = a.Err
		end()
	case kind == fault.NotFound:
		s.did(opNotFound)
		o.refused = a.Err
		end()
	case kind == fault.Exhausted:
		s.did(opRefusedFull)
		o.refused = a.Err
		end()
	case kind == fault.Blocked:
		if o.message.Kind != model.MessageQuery && !s.ledger.address(o.message.To).sick {
			s.fail("I14: %s: %v, and there is nothing wrong with it", o, a.Err)
		}
		o.refused = a.Err
		end()
	case kind != fault.Unavailable && kind != fault.Timeout && !errors.Is(a.Err, errCrashed):
		s.fail("%s: %v", o, a.Err)
	case o.message.RequestID != "" || o.message.Kind == model.MessageCancel || o.message.Kind == model.MessageQuery || o.message.Kind == model.MessageDelete || o.message.Kind == model.MessageRequeue && repeatable(&o.message) || (o.message.Kind == model.MessageStart && o.message.Reuse == model.ReturnExisting && len(o.message.With) == 0 && o.message.Past == nil):
		again()
	default:
		o.unknown = true
		end()
	}
}

func (o *op) accepted(a *model.Answer) {
	s := o.user.s
	if o.shadow != nil || o.tries > 1 {
		s.did(opRepeated)
	}
	if o.message.Kind == model.MessageStart {
		if a.Existing {
			s.did(opAttached)
		} else {
			s.did(opStarted)
		}
	}
}

func (o *op) awaited(a *lane.Answer, again, end func()) {
	s := o.user.s
	switch kind := fault.KindOf(a.Err); {
	case a.Result != nil:
		s.did(opAwaited)
		s.checkResult(o, a.Result)
		if !o.run.IsZero() && a.Result.Run != o.run {
			s.fail("I4: %s heard the end of another run", o)
		}
		end()
	case kind == fault.NotFound:
		end()
	case kind == fault.Timeout && !s.healed && s.chance(0.5):
		end()
	default:
		again()
	}
}
