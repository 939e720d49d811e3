package sim

import (
	"errors"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// call is a caller that waits for an answer.
type call struct {
	fn   func(*lane.Answer)
	done bool
}

func newCall(p *proc, fn func(*lane.Answer)) *call {
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

func (c *call) finish(a *lane.Answer) {
	if !c.done {
		c.done = true
		c.fn(a)
	}
}

var errCrashed = errors.New("the process is gone")

// lost answers the caller when the process ends.
func (c *call) lost() { c.finish(&lane.Answer{Err: errCrashed}) }

// deliver sends a message of a client to the owner of its address, as Engine.Send does. For a start
// whose sender awaits the end, it does the first half of Engine.Execute. The caller can give up
// with the returned function.
func (p *proc) deliver(m *model.Message, awaits bool, reply func(*lane.Answer)) (giveUp func()) {
	giveUp = func() {}
	fresh := m.RequestID == ""
	if fresh && !repeatable(m) {
		m.RequestID, m.Drawn = p.s.newRun().String(), true
	}
	if m.Kind == model.MessageCall {
		p.s.ledger.meant(m)
	}
	shard, inc, taken := m.To.Shard(p.s.plan.shards), p.inc, false

	c := newCall(p, func(a *lane.Answer) {
		switch {
		case errors.Is(a.Err, lane.ErrNotOwner):
			if m.Kind == model.MessageQuery {
				p.s.did(opAskedRemote)
			}
			p.clerk.send(m, taken, reply)
			return
		case (m.Kind == model.MessageQuery || m.Brief && m.Name == doRead) && !inc.serving():
			// the lane's memory may be out of date
			a = &lane.Answer{Err: lane.ErrAskAgain}
		case m.Brief && a.Err == nil && !inc.serving():
			// the current owner does not have this request
			a = &lane.Answer{Err: lane.ErrInterrupted}
		}

		p.s.ledger.heard(m)
		reply(a)
	})

	if inc == nil || !inc.owner[shard] {
		c.finish(&lane.Answer{Err: lane.ErrNotOwner})
		return giveUp
	}

	sh := inc.shells[int(shard)%len(inc.shells)]
	put := func(now model.Time) { sh.lane.Deliver(now, m, false, c) }
	if m.Kind == model.MessageUpdate || m.Kind == model.MessageQuery || m.Kind == model.MessageCall {
		giveUp = func() { sh.result(func(model.Time) { sh.lane.Forget(m.To, c) }) }
	}

	if awaits {
		put = func(now model.Time) { sh.lane.Run(now, m, false, c) }
		giveUp = func() { sh.result(func(model.Time) { sh.lane.Forget(m.To, c) }) }
	}

	if taken = sh.put(c, put); !taken {
		c.finish(&lane.Answer{Err: lane.ErrNotOwner})
	}
	return giveUp
}

// repeatable reports whether repeating a message has no effect, even without a request id.
func repeatable(m *model.Message) bool {
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

// await waits for the end of an execution, as Engine.Await does.
func (p *proc) await(a model.Address, run model.RunID, reply func(*lane.Answer)) {
	shard := a.Shard(p.s.plan.shards)
	elsewhere := func(ans *lane.Answer) {
		if ans.Result == nil && !p.dead && (errors.Is(ans.Err, lane.ErrNotOwner) || fault.Is(ans.Err, fault.Unavailable)) {
			p.clerk.await(a, run, reply)
			return
		}
		reply(ans)
	}

	inc := p.inc
	if inc == nil || !inc.owner[shard] {
		elsewhere(&lane.Answer{Err: lane.ErrNotOwner})
		return
	}

	sh := inc.shells[int(shard)%len(inc.shells)]
	c := newCall(p, elsewhere)
	ok := sh.put(c, func(model.Time) {
		sure, err := sh.lane.Await(a, run, c)
		if err != nil {
			c.finish(&lane.Answer{Err: err})
		}
		if err != nil || sure {
			return
		}
		p.look(shard, a, run, func(ans *lane.Answer) {
			if ans != nil {
				sh.result(func(model.Time) { sh.lane.Forget(a, c) })
				c.finish(ans)
			}
		})
	})
	if !ok {
		c.finish(&lane.Answer{Err: lane.ErrNotOwner})
	}
}

// look reads the state of an execution. It replies with an answer if the execution has ended or
// does not exist, and with nil if it is open.
func (p *proc) look(shard model.ShardID, a model.Address, run model.RunID, reply func(*lane.Answer)) {
	s := p.s
	var row *store.Execution
	var err error

	s.disk.call(&request{
		p: p, name: "load execution", fate: s.disk.draw(faultRepliesFails, faultRepliesFails, false),
		exec: func(done func()) {
			row, err = s.disk.mem.LoadExecution(background, shard, a, run)
			done()
		},
		ok: func() {
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
		bad: func(e error) { reply(&lane.Answer{Err: e}) },
	})
}

// clerk sends requests to other owners through the store, and polls for their answers.
type clerk struct {
	p       *proc
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
	asked   *model.Message // of an answer
	last    func() bool    // tells that nothing can ask for the answer again; of an answer
}

// send asks the owner and waits for its answer. taken tells that an owner may have served the
// request before, under the same id.
func (k *clerk) send(m *model.Message, taken bool, reply func(*lane.Answer)) {
	asked := *m
	if asked.RequestID == "" {
		asked.RequestID, asked.Drawn, taken = k.p.s.newRun().String(), true, false
	}
	if asked.Kind == model.MessageCall {
		k.p.s.ledger.meant(&asked)
	}
	key := store.RequestKey{Shard: asked.To.Shard(k.p.s.plan.shards), Address: asked.To, ID: asked.RequestID}
	c := newCall(k.p, reply)
	clean := false
	last := func() bool { return clean && asked.Drawn && !taken }
	k.replies = append(k.replies, &awaited{request: key, call: c, asked: &asked, last: last})
	id := k.p.s.newRun()
	// when the owner has no room for it, or the id belongs to another request
	key.ID = model.RefusedIDs + id.String()
	k.replies = append(k.replies, &awaited{request: key, call: c, asked: &asked, last: last})

	k.put(id, &asked, func(first bool, err error) {
		clean = first
		if err != nil {
			c.finish(&lane.Answer{Err: err})
		}
	})

	k.poll()
}

// put stores a request for the owner of an address and wakes it. It reports to stored
// whether the first attempt succeeded.
func (k *clerk) put(id model.RunID, m *model.Message, stored func(first bool, err error)) {
	s, first := k.p.s, true
	if k.p.inc != nil {
		m.Node = k.p.inc.self.ID
	}
	row := store.InboxRow{Shard: m.To.Shard(s.plan.shards), ID: id, Message: *m}
	s.did(opRemote)
	var try func()

	try = func() {
		s.disk.call(&request{
			p: k.p, name: "put inbox", fate: s.disk.draw(faultPutFails, faultPutLost, true),
			exec: func(done func()) {
				if err := s.disk.mem.PutInbox(background, []store.InboxRow{row}); err != nil {
					s.fail("put inbox: %v", err)
				}
				s.ledger.put(&row)
				if s.opts.Trace {
					s.logf("store    inbox row %s: %s %s for %s", short(row.ID), m.Kind, m.RequestID, m.To.Key)
				}
				done()
			},
			ok: func() {
				s.hintMail(row.Shard)
				stored(first, nil)
			},
			bad: func(error) {
				first = false
				s.after(s.between(1, 20)*millisecond, k.p, try)
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
	k.p.s.after(k.p.s.plan.poll, k.p, func() {
		k.polling = false
		k.look()
	})
}

// look looks for answers now.
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
	s := k.p.s
	keys := make([]store.RequestKey, len(k.replies))
	for i, a := range k.replies {
		keys[i] = a.request
	}
	runs := make([]store.RunKey, len(k.runs))
	for i, a := range k.runs {
		runs[i] = a.run
	}
	var replies []store.Reply
	var rows []store.Execution

	ended := func() {
		k.looking = false
		if k.again {
			k.again = false
			k.look()
		}
	}

	s.disk.call(&request{
		p: k.p, name: "load replies", fate: s.disk.draw(faultRepliesFails, faultRepliesFails, false),
		exec: func(done func()) {
			replies, _ = s.disk.mem.LoadReplies(background, keys)
			rows, _ = s.disk.mem.LoadOutcomes(background, runs)
			done()
		},
		ok: func() {
			for i := range replies {
				k.answered(&replies[i])
			}
			for i := range rows {
				k.closed(&rows[i])
			}
			k.tidy()
			ended()
		},
		bad: func(error) { ended() },
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

func (k *clerk) answered(r *store.Reply) {
	a, err := model.DecodeAnswer(r.Body)
	if err == nil {
		err = core.RefusalOf(a)
	}

	for _, w := range append([]*awaited(nil), k.replies...) {
		if w.request == r.RequestKey {
			told := lane.Answer{Answer: a, Err: err}
			if f := core.MisusedBy(w.asked, &a); f != nil {
				told = lane.Answer{Answer: model.Answer{Failure: f}}
				told.Err = core.RefusalOf(told.Answer)
			}
			open := !w.call.done
			k.p.s.ledger.heard(w.asked)
			w.call.finish(&told)
			if open && w.last() {
				k.acked = append(k.acked, w.request)
			}
		}
	}
}

// tidy removes answers that their callers have received, as clerk.tidy of the engine does.
func (k *clerk) tidy() {
	s, keys := k.p.s, k.acked
	if len(keys) == 0 {
		return
	}

	k.acked = nil
	s.disk.call(&request{
		p: k.p, name: "tidy", fate: s.disk.draw(faultRepliesFails, faultRepliesFails, true),
		exec: func(done func()) {
			if _, err := s.disk.mem.Sweep(background, store.SweepRequest{Answered: keys}); err != nil {
				s.fail("tidy: %v", err)
			}
			s.ledger.acknowledged(keys)
			done()
		},
		ok: func() {}, bad: func(error) {},
	})
}

func (k *clerk) closed(x *store.Execution) {
	key := store.RunKey{Shard: x.Shard, Run: x.Start.Run}
	for _, w := range append([]*awaited(nil), k.runs...) {
		if w.run == key {
			w.call.finish(&lane.Answer{Result: &lane.Result{Run: key.Run, Outcome: x.Outcome}})
		}
	}
}

// await waits for the end of an execution that another node owns, run by run along the chain.
func (k *clerk) await(a model.Address, run model.RunID, reply func(*lane.Answer)) {
	shard := a.Shard(k.p.s.plan.shards)
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
				k.put(k.p.s.newRun(), &model.Message{Kind: model.MessageWatch, To: a, ToRun: run}, func(bool, error) {})
			}

			c := newCall(k.p, func(ans *lane.Answer) {
				if ans.Err == nil && run.IsZero() && ans.Result.Outcome.Status == model.Continued {
					loop()
					return
				}
				if ans.Err == nil {
					k.p.s.did(opAwaitedRemote)
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
		a.call.lost()
	}
	k.replies, k.runs = nil, nil
}
