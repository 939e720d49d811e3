package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// hand is a task worker of a process, with the session that the engine keeps for it
// (engine/tasks.go).
type hand struct {
	p        *Proc
	id       queue.WorkerID
	Offer    model.TaskOffer
	Held     map[model.ClaimRef]*job
	Reported map[model.ClaimRef]*model.TaskReport // but not settled
	Lingers  map[model.ClaimRef]bool              // lost claims whose code still runs
	abroad   loan.Abroad                          // if nodes lend slots
	most     int                                  // the largest number of slots so far
	// over is how many claims the hand may have in addition to its slots, because they arrived late
	// or because a shard moved.
	over    int
	leaving bool
	gone    bool
	left    *board // the board that the hand has left
	// Ghost says that the hand has left but still has reports in flight, or that it exists only to
	// give back claims that another worker should have received; see Engine.giveBack.
	Ghost bool
}

// job is a claim that a hand executes.
type job struct {
	h        *hand
	claim    model.Claim
	canceled bool
	hangs    bool // reports nothing until all faults have ended
	done     bool
}

// has reports whether the hand has received a claim whose report is not settled.
func (h *hand) has(ref model.ClaimRef) bool { return h.Held[ref] != nil || h.Reported[ref] != nil }

// Offers implements oracle.taskWorker.
func (h *hand) Offers() *model.TaskOffer { return &h.Offer }

// Executes implements oracle.taskWorker.
func (h *hand) Executes(ref model.ClaimRef) bool {
	return !h.gone && !h.Ghost && !h.p.Dead && h.has(ref)
}

// Node implements oracle.taskWorker.
func (h *hand) Node() model.NodeID {
	if h.p.Inc == nil {
		return model.NodeID{}
	}
	return h.p.Inc.self.ID
}

// free is how many claims of its own node the hand may hold.
func (h *hand) free() int { return max(0, h.Offer.Slots-h.abroad.Slots()) }

// rejoin updates the number of slots on the board after a lent slot has come back from another
// node.
func (h *hand) rejoin() {
	if inc := h.p.Inc; inc != nil {
		inc.board.join(h)
	}
}

// purse returns the purse of the current life of the process. It is nil if nodes do not lend.
func (p *Proc) purse() *purse {
	if p.Inc == nil {
		return nil
	}
	return p.Inc.purse
}

// giveBack returns a claim of a hand that has left, as Engine.giveBack does.
func (p *Proc) giveBack(ref model.ClaimRef) {
	p.nextHand++
	h := &hand{p: p, id: p.nextHand, Ghost: true, Held: map[model.ClaimRef]*job{}, Reported: map[model.ClaimRef]*model.TaskReport{}}
	h.Offer.Name = fmt.Sprintf("%s-h%d", p.Label, h.id)
	p.Hands = append(p.Hands, h)
	h.report(&model.TaskReport{Ref: ref, Returned: true})
}

// Hire adds a task worker to a process.
func (p *Proc) Hire() {
	s := p.Cluster
	p.nextHand++
	h := &hand{p: p, id: p.nextHand, Held: map[model.ClaimRef]*job{}, Reported: map[model.ClaimRef]*model.TaskReport{}}
	h.Offer = model.TaskOffer{
		Name: fmt.Sprintf("%s-h%d", p.Label, h.id), Tenants: []string{scenario.Tenant}, Queues: scenario.TaskQueues[:], Kinds: scenario.TaskKinds[:], Slots: 1 + s.Pick(3),
	}
	if !s.Healed && s.Chance(0.3) {
		h.Offer.Kinds = scenario.TaskKinds[:1]
	} else if h.id%3 == 0 {
		h.Offer.Kinds = []string{model.AnyKind}
	}
	if !s.Healed && s.Chance(0.3) {
		h.Offer.Queues = scenario.TaskQueues[1:]
	}
	h.most = h.Offer.Slots
	p.Hands = append(p.Hands, h)
	s.hands[h.Offer.Name], s.TaskWorkers[h.Offer.Name] = h, h
	if p.Inc != nil {
		p.Inc.board.join(h)
	}
	if u := p.purse(); u != nil && p.Inc.begun {
		u.serve()
	}
}

// callTasks passes the calls of a lane to task workers.
func (p *Proc) callTasks(sh *shell, calls []lane.TaskCall) {
	for i := range calls {
		c := &calls[i]
		if c.Kind == lane.TaskExecute {
			p.stopEarlier(sh.inc.board, c.Ref)
		}
		if g := sh.inc.board.guests[c.Worker]; g != nil {
			sh.checkTaskCall(c, false)
			g.call(c)
			continue
		}

		j := slices.IndexFunc(p.Hands, func(h *hand) bool { return h.id == c.Worker })
		gone := j < 0 || p.Hands[j].Ghost && c.Kind == lane.TaskExecute
		sh.checkTaskCall(c, gone)

		if gone {
			if c.Kind == lane.TaskExecute { // the worker left before the store had the claim
				p.Cluster.Did(scenario.OpExecuteGone)
				p.giveBack(c.Ref)
			}
			continue
		}

		h := p.Hands[j]
		switch c.Kind {
		case lane.TaskExecute:
			h.execute(c.Claim)
		case lane.TaskStop:
			h.stop(c.Ref, c.Canceled)
		case lane.TaskSettled:
			h.takeSettled(c.Ref, c.Err)
		}
	}
}

// stopEarlier stops the workers of this node that still execute an earlier claim of a task, as the
// engine does before a lane hands over the next claim.
func (p *Proc) stopEarlier(b *board, later model.ClaimRef) {
	if b.keeper == nil {
		return
	}
	for _, c := range b.keeper.g.Earlier(later) {
		for _, h := range p.Hands {
			if h.id == c.Worker {
				h.stop(c.Ref, false)
			}
		}
	}
}

func (h *hand) execute(c *model.Claim) {
	s := h.p.Cluster
	if s.Tracing {
		s.Logf("%s executes attempt %d of %s %s, claim %d", h.Offer.Name, c.Attempt, scenario.Short(c.Ref.Run), c.Ref.ID, c.Ref.Claim)
	}
	if h.Held[c.Ref] != nil {
		return // the call arrived twice
	}

	j := &job{h: h, claim: *c, canceled: c.Canceled}
	h.Held[c.Ref] = j
	known := s.Claims[c.Ref]
	if h.p.Inc != nil {
		known.At = h.p.Inc.self.ID
	}
	if known.Begun = true; known.Late {
		s.Fail("G2: claim %d of %s begins, and it has no time left and no permit", c.Ref.Claim, c.Ref.TaskRef)
	}
	if r := s.Ledger.Runs[c.Ref.Run]; r != nil && c.Parent != r.Start.Parent {
		s.Fail("E20: claim %d of %s names the parent %v, which is %v", c.Ref.Claim, c.Ref.TaskRef, c.Parent, r.Start.Parent)
	}
	s.executing(c.Ref)
	s.Did(scenario.OpExecuted)
	w := scenario.WorkOf(c.Input)
	j.hangs = !s.Healed && s.Chance(0.08)
	took := w.Took

	if j.hangs {
		s.Hurt(scenario.FaultHandHangs)
	} else {
		s.After(took, h.p.Process, j.end)
	}

	if c.Spec.Silence > 0 {
		j.beat(c.Spec.Silence)
	}
}

// beat sends heartbeats for the claim to the board, unless the hand hangs.
func (j *job) beat(silence time.Duration) {
	s, h := j.h.p.Cluster, j.h
	if j.done || j.hangs || h.Held[j.claim.Ref] != j {
		return
	}
	u := h.p.purse()
	if inc := h.p.Inc; inc != nil && u != nil && u.Lane(j.claim.Ref) == nil {
		h.abroad.Note(j.claim.Ref, nil)
		u.wakeCreditor()
	} else if inc != nil && inc.board.b.Beat(h.p.Now(), h.id, j.claim.Ref) {
		s.Beats[j.claim.Ref] = oracle.Beat{Node: inc.self.ID, At: h.p.Now()}
		s.Did(scenario.OpBeat)
	}
	s.After(max(silence.Microseconds()/3, 100), h.p.Process, func() { j.beat(silence) })
}

// end ends an attempt with a random outcome.
func (j *job) end() {
	s, h := j.h.p.Cluster, j.h
	if j.done || h.Held[j.claim.Ref] != j {
		return
	}
	j.done = true
	w := scenario.WorkOf(j.claim.Input)
	r := &model.TaskReport{Ref: j.claim.Ref}

	switch {
	case j.canceled && s.Chance(0.7):
		r.Failure = &model.Failure{Kind: model.FailureCanceled, Message: "canceled"}
	case !s.Healed && s.Chance(w.Returns):
		r.Returned, r.After = true, kernel.Microseconds(s.Between(0, 20*kernel.Millisecond))
	case j.claim.Attempt <= w.Fails:
		r.Failure = &model.Failure{Message: fmt.Sprintf("attempt %d fails", j.claim.Attempt), Permanent: w.Permanent}
		if s.Chance(0.2) {
			r.RetryAfter = kernel.Microseconds(s.Between(1, 30*kernel.Millisecond))
		}
	default:
		r.Output = s.Output(&j.claim)
	}

	h.report(r)
	if !s.Healed && s.Chance(0.15) { // the answer to the first report was lost
		s.Hurt(scenario.FaultReportTwice)
		s.After(s.Between(0, 5*kernel.Millisecond), h.p.Process, func() { h.report(r) })
	}
}

// report reports the end of a claim, as TaskSession.Report does.
func (h *hand) report(r *model.TaskReport) {
	if h.gone {
		return
	}
	s := h.p.Cluster
	h.Reported[r.Ref] = r
	delete(h.Held, r.Ref)
	if h.abroad.Free(r.Ref) {
		h.rejoin()
	}
	s.Reports[r.Ref] = append(s.Reports[r.Ref], r)
	if c := s.Claims[r.Ref]; c != nil && c.Told == 0 {
		c.Told = s.Now
	}
	if s.Tracing {
		s.Logf("%s reports claim %d of %s %s: returned %v, failure %v", h.Offer.Name, r.Ref.Claim, scenario.Short(r.Ref.Run), r.Ref.ID, r.Returned, r.Failure)
	}
	h.send(r)
}

func (h *hand) send(r *model.TaskReport) {
	s, p := h.p.Cluster, h.p
	shard := s.ShardOf(r.Ref.Address)
	again := func() { s.After(s.Between(1, 10)*kernel.Millisecond, p.Process, func() { h.resend(r) }) }
	inc := p.Inc
	if inc != nil {
		inc.board.freeSlot(h.id, r)
	}

	switch u := p.purse(); {
	case inc == nil:
		again()
	case u != nil && !inc.Owner[shard] && !u.leaving[shard] && len(h.Offer.Tenants) > 0:
		h.abroad.Report(r.Ref)
		u.wakeCreditor()
	case inc.Owner[shard] || u != nil && u.leaving[shard]:
		sh := inc.Shells[int(shard)%len(inc.Shells)]
		c := NewCall(p, func(a *lane.Answer) {
			if a.Err != nil {
				again()
			}
		})
		if !sh.put(c, func(now model.Time) {
			c.done = true // from here on the lane answers
			sh.Lane.Report(now, h.id, r)
		}) {
			c.done = true
			again()
		}
	default:
		s.Did(scenario.OpReportMailed)
		inc.board.Propose() // no lane of this node does it, because the report goes elsewhere
		p.clerk.send(engine.ReportMessage(r), attempt{taken: true}, func(a *lane.Answer) {
			switch {
			case errors.Is(a.Err, ErrCrashed):
			default:
				h.takeSettled(r.Ref, a.Err)
			}
		})
	}
}

// resend repeats a report that is not settled.
func (h *hand) resend(r *model.TaskReport) {
	if h.Reported[r.Ref] != nil && !h.gone {
		h.send(r)
	}
}

func (h *hand) stop(ref model.ClaimRef, canceled bool) {
	s := h.p.Cluster
	if s.Tracing {
		s.Logf("%s is to stop claim %d of %s %s, canceled %v", h.Offer.Name, ref.Claim, scenario.Short(ref.Run), ref.ID, canceled)
	}
	j := h.Held[ref]
	if j == nil {
		return
	}

	s.Did(scenario.OpStopped)
	if !canceled {
		j.done = true
		delete(h.Held, ref)
		back := h.abroad.Free(ref)
		if s.Has(scenario.Lingering) && s.Chance(0.6) {
			h.linger(ref)
		} else {
			h.done(ref, nil)
		}
		if back {
			h.rejoin()
		}
		return
	}

	j.canceled = true
	s.After(s.Between(0, 5*kernel.Millisecond), h.p.Process, j.end)
}

// linger lets the code of a lost claim run on for a while.
func (h *hand) linger(ref model.ClaimRef) {
	s := h.p.Cluster
	s.Did(scenario.OpLingered)
	if h.Lingers == nil {
		h.Lingers = map[model.ClaimRef]bool{}
	}
	h.Lingers[ref] = true
	if inc := h.p.Inc; inc != nil {
		inc.board.linger(ref)
	}
	s.After(s.Between(0, 150*kernel.Millisecond), h.p.Process, func() { h.endLingering(ref) })
}

// endLingering ends the code of a lost claim, as TaskSession.CodeEnded does.
func (h *hand) endLingering(ref model.ClaimRef) {
	if h.Lingers[ref] {
		delete(h.Lingers, ref)
		h.done(ref, nil)
	}
}

// lingering returns the lost claims whose code still runs, in order.
func (h *hand) lingering() []model.ClaimRef {
	return slices.SortedFunc(maps.Keys(h.Lingers), scenario.CompareClaims)
}

func (h *hand) takeSettled(ref model.ClaimRef, err error) {
	s := h.p.Cluster
	r := h.Reported[ref]
	if later := errors.Is(err, lane.ErrLater); later || errors.Is(err, lane.ErrNotOwner) {
		wait := 2 * kernel.Millisecond
		if later {
			wait = 5 * kernel.Second
		}
		if r != nil { // nil if the error is for a repetition of a settled report
			s.After(s.Between(0, wait), h.p.Process, func() { h.resend(r) })
		}
		return
	}

	if s.Tracing {
		s.Logf("%s hears of claim %d of %s %s: %v", h.Offer.Name, ref.Claim, scenario.Short(ref.Run), ref.ID, err)
	}
	delete(h.Reported, ref)
	h.abroad.DropReport(ref)
	h.vanish()
	s.CheckSettled(ref, err)
	h.done(ref, r)
}

// done reports to the board that a claim is over. The report, if there is one, has the outcome of
// the attempt.
func (h *hand) done(ref model.ClaimRef, r *model.TaskReport) {
	maker := h.abroad.Unmake(ref)
	if inc := h.p.Inc; inc != nil {
		inc.board.settleClaim(ref, flow.OutcomeOf(r))
		if inc.purse != nil && !maker.IsZero() {
			inc.purse.creditor.Over(ref, maker)
		}
	}
}

// vanish removes a ghost that has no open reports.
func (h *hand) vanish() {
	if h.Ghost && len(h.Reported) == 0 {
		h.gone = true
		h.p.Hands = slices.DeleteFunc(h.p.Hands, func(o *hand) bool { return o == h })
	}
}

// Leave takes a hand out of its process, as TaskSession.Leave does. The hand gets no new claims.
// After a while it gives back the claims that it has.
func (h *hand) Leave() {
	s, p := h.p.Cluster, h.p
	if h.leaving {
		return
	}
	h.leaving, h.Offer.Slots = true, 0
	if s.Tracing {
		s.Logf("%s leaves", h.Offer.Name)
	}
	if p.Inc != nil {
		p.Inc.board.join(h)
	}
	if u := p.purse(); u != nil && p.Inc.begun {
		u.serve()
	}
	gives, ends := s.Now+s.Between(0, 50)*kernel.Millisecond, s.Now+s.Between(50, 200)*kernel.Millisecond
	var wait func()

	wait = func() {
		if s.Now >= gives {
			for _, ref := range h.Refs() {
				h.Held[ref].done = true
				h.report(&model.TaskReport{Ref: ref, Returned: true})
			}
		}

		if len(h.Held)+len(h.Reported) > 0 && s.Now < ends {
			s.After(2*kernel.Millisecond, p.Process, wait)
			return
		}

		if p.Inc != nil {
			p.Inc.board.leave(h)
		}
		for _, ref := range h.lingering() {
			h.endLingering(ref)
		}
		h.Ghost = true // until all its reports are settled
		h.vanish()
		s.Did(scenario.OpHandLeft)
	}

	s.After(2*kernel.Millisecond, p.Process, wait)
}

// Refs returns the claims that the hand executes, in order.
func (h *hand) Refs() []model.ClaimRef {
	refs := make([]model.ClaimRef, 0, len(h.Held))
	for ref := range h.Held {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, scenario.CompareClaims)
	return refs
}

// wakeHands lets hands that hang continue.
func (p *Proc) wakeHands() {
	for _, h := range p.Hands {
		for _, ref := range h.Refs() {
			if j := h.Held[ref]; j.hangs {
				j.hangs = false
				j.end()
			}
		}
	}
}
