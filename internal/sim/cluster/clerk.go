package cluster

import (
	"context"
	"errors"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/disk"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// call is a caller that waits for an answer.
type call struct {
	fn   func(*lane.Answer)
	done bool
}

// NewCall adds a caller that waits for an answer of a process.
func NewCall(p *Proc, fn func(*lane.Answer)) *call {
	c := &call{fn: fn}
	kept := p.calls[:0]
	for _, o := range p.calls {
		if !o.done {
			kept = append(kept, o)
		}
	}
	p.calls = append(kept, c)
	return c
}

func (c *call) Finish(a *lane.Answer) {
	if !c.done {
		c.done = true
		c.fn(a)
	}
}

// ErrCrashed answers the callers of a process that has ended.
var ErrCrashed = errors.New("the process is gone")

// abort answers the caller when the process ends.
func (c *call) abort() { c.Finish(&lane.Answer{Err: ErrCrashed}) }

// Deliver sends a message of a client to the owner of its address, as Engine.Send does. For a start
// whose sender awaits the end of the execution, it does the first half of Engine.Execute. The
// caller can give up by calling the returned function.
func (p *Proc) Deliver(m *model.Message, awaits bool, reply func(*lane.Answer)) (giveUp func()) {
	giveUp = func() {}
	fresh := m.RequestID == ""
	if fresh && !Repeatable(m) {
		m.RequestID, m.Drawn = p.Cluster.NewRun().String(), true
	}
	if m.Kind == model.MessageCall {
		p.Cluster.Ledger.Meant(m)
	}
	shard, inc, taken := p.Cluster.ShardOf(m.To), p.Inc, false

	c := NewCall(p, func(a *lane.Answer) {
		switch {
		case errors.Is(a.Err, lane.ErrNotOwner):
			if m.Kind == model.MessageQuery {
				p.Cluster.Did(scenario.OpAskedRemote)
			}
			p.sendDirectly(askFor(m, awaits, fresh), attempt{taken: taken && a.Token != nil}, reply)
			return
		case m.Kind != model.MessageQuery && !m.Brief && !a.Committed && (a.Answer.Existing || a.Answer.Failure != nil) && !inc.serving():
			// the lane has answered from memory, which may be out of date
			p.sendDirectly(askFor(m, awaits, fresh), attempt{taken: true}, reply)
			return
		case (m.Kind == model.MessageQuery || m.Brief && m.Name == scenario.DoRead) && !inc.serving():
			// the lane's memory may be out of date
			a = &lane.Answer{Err: lane.ErrAskAgain}
		case m.Brief && a.Err == nil && !inc.serving():
			// the current owner does not have this request
			a = &lane.Answer{Err: lane.ErrInterrupted}
		}

		p.Cluster.Ledger.RecordAnswer(m)
		p.fillReceipt(m, a.Err == nil && !awaits)
		reply(a)
	})

	if inc == nil || !inc.Owner[shard] {
		c.Finish(&lane.Answer{Err: lane.ErrNotOwner})
		return giveUp
	}

	p.noteEra(m)
	sh := inc.Shells[int(shard)%len(inc.Shells)]
	put := func(now model.Time) { sh.Lane.Deliver(now, m, false, c) }
	if m.Kind == model.MessageUpdate || m.Kind == model.MessageQuery || m.Kind == model.MessageCall {
		giveUp = func() { sh.result(func(model.Time) { sh.Lane.Forget(m.To, c) }) }
	}

	if awaits {
		put = func(now model.Time) { sh.Lane.Run(now, m, false, c) }
		giveUp = func() { sh.result(func(model.Time) { sh.Lane.Forget(m.To, c) }) }
	}

	if taken = sh.put(c, put); !taken {
		c.Finish(&lane.Answer{Err: lane.ErrNotOwner})
	}
	return giveUp
}

// Repeatable reports whether repeating a message has no effect, even without a request id.
func Repeatable(m *model.Message) bool {
	switch m.Kind {
	case model.MessageStart:
		return m.Reuse == model.ReturnExisting && len(m.With) == 0 && m.Past == nil
	case model.MessageSignal, model.MessageSettle, model.MessageUpdate, model.MessageTerminate, model.MessagePause, model.MessageResume, model.MessageDelete,
		model.MessageUnlock:
		return false
	case model.MessageCall:
		return m.Brief
	case model.MessageRequeue:
		return m.DeadTask.Do == model.DeadTaskPurge
	default:
		return true
	}
}

// Await waits for the end of an execution, as Engine.Await does.
func (p *Proc) Await(a model.Address, run model.RunID, reply func(*lane.Answer)) {
	shard := p.Cluster.ShardOf(a)
	elsewhere := func(ans *lane.Answer) {
		if ans.Result == nil && !p.Dead && (errors.Is(ans.Err, lane.ErrNotOwner) || fault.Is(ans.Err, fault.Unavailable)) {
			p.ask(&ask{kind: askAwait, to: a, run: run}, 0, func(ans *lane.Answer, _ attempt) {
				if ans.Result != nil || ans.Err != nil && !fault.Is(ans.Err, fault.Unavailable) {
					reply(ans)
					return
				}
				p.clerk.await(a, run, reply)
			})
			return
		}
		reply(ans)
	}

	inc := p.Inc
	if inc == nil || !inc.Owner[shard] {
		elsewhere(&lane.Answer{Err: lane.ErrNotOwner})
		return
	}

	sh := inc.Shells[int(shard)%len(inc.Shells)]
	c := NewCall(p, elsewhere)
	ok := sh.put(c, func(model.Time) {
		sure, err := sh.Lane.Await(a, run, c)
		if err != nil {
			c.Finish(&lane.Answer{Err: err})
		}
		if err != nil || sure {
			return
		}
		p.look(shard, a, run, func(ans *lane.Answer) {
			if ans != nil {
				sh.result(func(model.Time) { sh.Lane.Forget(a, c) })
				c.Finish(ans)
			}
		})
	})
	if !ok {
		c.Finish(&lane.Answer{Err: lane.ErrNotOwner})
	}
}

// look reads the state of an execution. It replies with an answer if the execution has ended or
// does not exist, and with nil if it is open.
func (p *Proc) look(shard model.ShardID, a model.Address, run model.RunID, reply func(*lane.Answer)) {
	s := p.Cluster
	var row *store.Execution
	var err error

	s.Disk.Call(&disk.Request{
		Process: p.Process, Name: "load execution", Fate: s.Disk.Draw(scenario.FaultRepliesFails, scenario.FaultRepliesFails, false),
		Exec: func(done func()) {
			row, err = s.Disk.Mem.LoadExecution(context.Background(), shard, a, run)
			done()
		},
		OK: func() {
			switch {
			case err != nil:
				reply(&lane.Answer{Err: err})
			case row == nil:
				reply(&lane.Answer{Err: fault.New(fault.NotFound, "execution %s does not exist", a)})
			case row.Outcome.Status.Closed() && (!run.IsZero() || row.Outcome.Status != model.Continued):
				reply(&lane.Answer{Result: &lane.Result{Run: row.Start.Run, Outcome: row.Outcome}})
			default:
				p.clerk.found = row.Start.Run
				reply(nil)
			}
		},
		Bad: func(e error) { reply(&lane.Answer{Err: e}) },
	})
}

// clerk sends requests to other owners through the store, and looks in the store for their answers
// from time to time.
type clerk struct {
	p       *Proc
	replies []*awaited
	runs    []*awaited
	acked   []store.RequestKey // answers that their callers have received
	looking bool
	again   bool
	polling bool
	found   model.RunID // the run that look has just found open
}

// awaited is an answer or an outcome that the clerk looks for.
type awaited struct {
	request store.RequestKey
	run     store.RunKey
	call    *call
	asked   *model.Message // for an answer: the request
	last    func() bool    // for an answer: reports whether no caller can ask for it again
	sole    func() bool    // for an answer: reports whether no other copy of the request can arrive
}

// send asks the owner and waits for its answer. tried says what happened to the request when it was
// sent before under the same id.
func (k *clerk) send(m *model.Message, tried attempt, reply func(*lane.Answer)) {
	asked := *m
	if asked.RequestID == "" {
		asked.RequestID, asked.Drawn, tried = k.p.Cluster.NewRun().String(), true, attempt{}
	}
	asked.Linked = tried.link
	if asked.Kind == model.MessageCall {
		k.p.Cluster.Ledger.Meant(&asked)
	}
	key := store.RequestKey{Shard: k.p.Cluster.ShardOf(asked.To), Address: asked.To, ID: asked.RequestID}
	clean, again := false, false
	c := NewCall(k.p, func(a *lane.Answer) {
		if (again || tried.taken) && (fault.Is(a.Err, fault.Exhausted) || fault.Is(a.Err, fault.Blocked) || fault.Is(a.Err, fault.Corrupt)) {
			a.Err = fault.New(fault.Unavailable, "another copy of the message may arrive: %w", a.Err)
		}
		reply(a)
	})
	sole := func() bool { return clean && !tried.taken }
	last := func() bool { return asked.Drawn && sole() }
	k.replies = append(k.replies, &awaited{request: key, call: c, asked: &asked, last: last, sole: sole})
	id := k.p.Cluster.NewRun()
	// The owner answers under this key if it has no room for the request, or if the request id
	// belongs to another request.
	key.ID = model.RefusedIDs + id.String()
	k.replies = append(k.replies, &awaited{request: key, call: c, asked: &asked, last: last, sole: sole})

	k.put(id, &asked, &again, func(first bool, err error) {
		clean = first
		if err != nil {
			c.Finish(&lane.Answer{Err: err})
		}
	})

	k.poll()
}

// put stores a request for the owner of an address and wakes the owner. After that it calls stored.
// The argument first of stored says whether the first attempt succeeded. put sets *again to true
// when it needs another attempt.
func (k *clerk) put(id model.RunID, m *model.Message, again *bool, stored func(first bool, err error)) {
	s, first := k.p.Cluster, true
	if k.p.Inc != nil {
		m.Node = k.p.Inc.self.ID
	}
	row := store.InboxRow{Shard: s.ShardOf(m.To), ID: id, Message: *m}
	s.Did(scenario.OpRemote)
	var try func()

	try = func() {
		s.Disk.Call(&disk.Request{
			Process: k.p.Process, Name: "put inbox", Fate: s.Disk.Draw(scenario.FaultPutFails, scenario.FaultPutLost, true),
			Exec: func(done func()) {
				if err := s.Disk.Mem.PutInbox(context.Background(), []store.InboxRow{row}); err != nil {
					s.Fail("put inbox: %v", err)
				}
				s.Ledger.Put(&row)
				if s.Tracing {
					s.Logf("store    inbox row %s: %s %s for %s", scenario.Short(row.ID), m.Kind, m.RequestID, m.To.Key)
				}
				done()
			},
			OK: func() {
				s.hintMail(row.Shard, (*lane.Lane).RequestsWait)
				stored(first, nil)
			},
			Bad: func(error) {
				first, *again = false, true
				s.After(s.Between(1, 20)*kernel.Millisecond, k.p.Process, try)
			},
		})
	}

	try()
}

// poll looks for answers periodically while the clerk awaits something.
func (k *clerk) poll() {
	if k.polling {
		return
	}
	k.polling = true
	k.p.Cluster.After(k.p.Cluster.Plan.Poll, k.p.Process, func() {
		k.polling = false
		k.look()
	})
}

// look reads the store once, to find answers.
func (k *clerk) look() {
	open := func(a *awaited) bool { return !a.call.done }
	k.replies, k.runs = keep(k.replies, open), keep(k.runs, open)
	if len(k.replies)+len(k.runs) == 0 {
		return
	}

	if k.looking {
		k.again = true
		return
	}

	k.looking = true
	k.poll()
	s := k.p.Cluster
	keys := make([]store.RequestKey, len(k.replies))
	for i, a := range k.replies {
		keys[i] = a.request
	}
	runs := make([]store.RunKey, len(k.runs))
	for i, a := range k.runs {
		runs[i] = a.run
	}
	var found store.Answers

	ended := func() {
		k.looking = false
		if k.again {
			k.again = false
			k.look()
		}
	}

	s.Disk.Call(&disk.Request{
		Process: k.p.Process, Name: "load replies", Fate: s.Disk.Draw(scenario.FaultRepliesFails, scenario.FaultRepliesFails, false),
		Exec: func(done func()) {
			found, _ = s.Disk.Mem.LoadAnswers(context.Background(), store.Awaited{Requests: keys, Runs: runs})
			for i := range found.Replies {
				s.DamageReply(&found.Replies[i])
			}
			done()
		},
		OK: func() {
			for i := range found.Replies {
				k.takeReply(&found.Replies[i])
			}
			for i := range found.Ended {
				k.takeOutcome(&found.Ended[i])
			}
			k.tidy()
			ended()
		},
		Bad: func(error) { ended() },
	})
}

func keep(as []*awaited, want func(*awaited) bool) []*awaited {
	kept := as[:0]
	for _, a := range as {
		if want(a) {
			kept = append(kept, a)
		}
	}
	return kept
}

func (k *clerk) takeReply(r *store.Reply) {
	known := lane.RememberedAnswer(r)
	a, err := known.Answer, known.Err

	for _, w := range append([]*awaited(nil), k.replies...) {
		if w.request == r.RequestKey {
			told := lane.Answer{Answer: a, Err: err}
			if f := core.MisuseOfAnswered(w.asked, &a); f != nil {
				told = lane.Answer{Answer: model.Answer{Failure: f}}
				told.Err = core.RefusalOf(told.Answer)
			}
			open := !w.call.done
			k.p.Cluster.Ledger.RecordAnswer(w.asked)
			k.p.fillReceipt(w.asked, open && told.Err == nil && w.sole())
			w.call.Finish(&told)
			if open && w.last() {
				k.acked = append(k.acked, w.request)
			}
		}
	}
}

// tidy removes answers that their callers have received, as clerk.tidy of the engine does.
func (k *clerk) tidy() {
	s, keys := k.p.Cluster, k.acked
	if len(keys) == 0 {
		return
	}

	k.acked = nil
	s.Disk.Call(&disk.Request{
		Process: k.p.Process, Name: "tidy", Fate: s.Disk.Draw(scenario.FaultRepliesFails, scenario.FaultRepliesFails, true),
		Exec: func(done func()) {
			if _, err := s.Disk.Mem.Sweep(context.Background(), store.SweepRequest{Answered: keys}); err != nil {
				s.Fail("tidy: %v", err)
			}
			s.Ledger.ApplyAcknowledgements(keys)
			done()
		},
		OK: func() {}, Bad: func(error) {},
	})
}

func (k *clerk) takeOutcome(x *store.Execution) {
	key := store.RunKey{Shard: x.Shard, Run: x.Start.Run}
	for _, w := range append([]*awaited(nil), k.runs...) {
		if w.run == key {
			w.call.Finish(&lane.Answer{Result: &lane.Result{Run: key.Run, Outcome: x.Outcome}})
		}
	}
}

// await waits for the end of an execution that another node owns. When a run continues as new,
// await waits for the end of the next run.
func (k *clerk) await(a model.Address, run model.RunID, reply func(*lane.Answer)) {
	shard := k.p.Cluster.ShardOf(a)
	asked := false
	var loop func()

	loop = func() {
		k.p.look(shard, a, run, func(ans *lane.Answer) {
			if ans != nil {
				reply(ans)
				return
			}

			key := store.RunKey{Shard: shard, Run: k.found}
			if !asked {
				asked = true
				k.put(k.p.Cluster.NewRun(), &model.Message{Kind: model.MessageWatch, To: a, ToRun: run}, new(bool), func(bool, error) {})
			}

			c := NewCall(k.p, func(ans *lane.Answer) {
				if ans.Err == nil && run.IsZero() && ans.Result.Outcome.Status == model.Continued {
					loop()
					return
				}
				if ans.Err == nil {
					k.p.Cluster.Did(scenario.OpAwaitedRemote)
				}
				reply(ans)
			})

			k.runs = append(k.runs, &awaited{run: key, call: c})
			k.poll()
		})
	}

	loop()
}

// crash ends all calls.
func (k *clerk) crash() {
	for _, a := range append(append([]*awaited(nil), k.replies...), k.runs...) {
		a.call.abort()
	}
	k.replies, k.runs = nil, nil
}

// Read asks a node why an execution does not continue, as Engine.Explain does. Only the owner may
// answer.
func (p *Proc) Read(to model.Address, reply func(*lane.Answer)) {
	s := p.Cluster
	shard := s.ShardOf(to)
	inc := p.Inc
	if inc == nil || !inc.Owner[shard] {
		reply(&lane.Answer{})
		return
	}

	sh := inc.Shells[int(shard)%len(inc.Shells)]
	c := NewCall(p, reply)
	sh.put(c, func(model.Time) {
		reasons, ok := sh.Lane.Explain(to)
		switch {
		case ok && inc.serving():
			s.Did(scenario.OpRead)
			if s.Ledger.Owner[shard] != inc.self.ID && !inc.betrayed() {
				s.Fail("I1: %s answers a read of shard %d, which belongs to %s", inc.name(), shard, s.Ledger.Name(s.Ledger.Owner[shard]))
			}
			for _, r := range reasons {
				s.RecordExplanation(s.Ledger.Address(to), r)
				if (r.Code == model.WaitPoison || r.Code == model.WaitCorrupt || r.Code == model.WaitNewer) && !s.Ledger.Address(to).Sick {
					s.Fail("I14: %s is quarantined, but nothing has damaged it: %s", to, r)
				}
			}
		case ok:
			s.Did(scenario.OpReadRefused)
		}

		c.Finish(&lane.Answer{})
	})
}
