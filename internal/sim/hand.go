package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// hand is a task worker of a process, with the session that the engine keeps for it
// (engine/tasks.go).
type hand struct {
	p        *proc
	id       queue.WorkerID
	offer    model.TaskOffer
	held     map[model.ClaimRef]*job
	reported map[model.ClaimRef]*model.TaskReport // but not settled
	abroad   loan.Abroad                          // if nodes lend slots
	most     int                                  // the most slots that it has had
	// additional claims that it may have: they arrived late, or because a shard moved
	over    int
	leaving bool
	gone    bool
	// it has left and its reports are in flight, or it gives back claims that other workers should
	// have had; see Engine.giveBack
	ghost bool
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
func (h *hand) has(ref model.ClaimRef) bool { return h.held[ref] != nil || h.reported[ref] != nil }

// free is how many claims of its own node it may hold.
func (h *hand) free() int { return max(0, h.offer.Slots-h.abroad.Slots()) }

// rejoin updates the number of slots on the board after one has come back from another node.
func (h *hand) rejoin() {
	if inc := h.p.inc; inc != nil {
		inc.board.join(h)
	}
}

// purse returns the purse of the current life of the process. It is nil if nodes do not lend.
func (p *proc) purse() *purse {
	if p.inc == nil {
		return nil
	}
	return p.inc.purse
}

// giveBack returns a claim of a hand that has left, as Engine.giveBack does.
func (p *proc) giveBack(ref model.ClaimRef) {
	p.nextHand++
	h := &hand{p: p, id: p.nextHand, ghost: true, held: map[model.ClaimRef]*job{}, reported: map[model.ClaimRef]*model.TaskReport{}}
	h.offer.Name = fmt.Sprintf("%s-h%d", p.label, h.id)
	p.hands = append(p.hands, h)
	h.report(&model.TaskReport{Ref: ref, Returned: true})
}

// hire adds a task worker to a process.
func (p *proc) hire() {
	s := p.s
	p.nextHand++
	h := &hand{p: p, id: p.nextHand, held: map[model.ClaimRef]*job{}, reported: map[model.ClaimRef]*model.TaskReport{}}
	h.offer = model.TaskOffer{
		Name: fmt.Sprintf("%s-h%d", p.label, h.id), Tenants: []string{tenant}, Queues: taskQueues[:], Kinds: taskKinds[:], Slots: 1 + s.pick(3),
	}
	if !s.healed && s.chance(0.3) {
		h.offer.Kinds = taskKinds[:1]
	}
	if !s.healed && s.chance(0.3) {
		h.offer.Queues = taskQueues[1:]
	}
	h.most = h.offer.Slots
	p.hands = append(p.hands, h)
	s.hands[h.offer.Name] = h
	if p.inc != nil {
		p.inc.board.join(h)
	}
	if u := p.purse(); u != nil && p.inc.begun {
		u.serve()
	}
}

// callTasks passes the calls of a lane to task workers.
func (p *proc) callTasks(sh *shell, calls []lane.TaskCall) {
	for i := range calls {
		c := &calls[i]
		if g := sh.inc.board.guests[c.Worker]; g != nil {
			sh.checkTaskCall(c, false)
			g.call(c)
			continue
		}

		j := slices.IndexFunc(p.hands, func(h *hand) bool { return h.id == c.Worker })
		gone := j < 0 || p.hands[j].ghost && c.Kind == lane.TaskExecute
		sh.checkTaskCall(c, gone)

		if gone {
			if c.Kind == lane.TaskExecute { // it left while the claim was in flight to the store
				p.s.did(opExecuteGone)
				p.giveBack(c.Ref)
			}
			continue
		}

		h := p.hands[j]
		switch c.Kind {
		case lane.TaskExecute:
			h.execute(c.Claim)
		case lane.TaskStop:
			h.stop(c.Ref, c.Canceled)
		case lane.TaskSettled:
			h.settled(c.Ref, c.Err)
		}
	}
}

func (h *hand) execute(c *model.Claim) {
	s := h.p.s
	if s.opts.Trace {
		s.logf("%s executes attempt %d of %s %s, claim %d", h.offer.Name, c.Attempt, short(c.Ref.Run), c.Ref.ID, c.Ref.Claim)
	}
	if h.held[c.Ref] != nil {
		return // the call arrived twice
	}

	j := &job{h: h, claim: *c, canceled: c.Canceled}
	h.held[c.Ref] = j
	known := s.claims[c.Ref]
	if known.begun = true; known.late {
		s.fail("G2: claim %d of %s begins, and it has no time left and no permit", c.Ref.Claim, c.Ref.TaskRef)
	}
	s.executing(c.Ref)
	s.did(opExecuted)
	w := workOf(c.Input)
	j.hangs = !s.healed && s.chance(0.08)
	took := w.took

	if j.hangs {
		s.hurt(faultHandHangs)
	} else {
		s.after(took, h.p, j.end)
	}

	if c.Spec.Silence > 0 {
		j.beat(c.Spec.Silence)
	}
}

// beat sends heartbeats for the claim to the board, unless the hand hangs.
func (j *job) beat(silence time.Duration) {
	s, h := j.h.p.s, j.h
	if j.done || j.hangs || h.held[j.claim.Ref] != j {
		return
	}
	u := h.p.purse()
	if inc := h.p.inc; inc != nil && u != nil && u.Lane(j.claim.Ref) == nil {
		h.abroad.Note(j.claim.Ref, nil)
		u.wakeCreditor()
	} else if inc != nil && inc.board.b.Beat(h.p.now(), h.id, j.claim.Ref) {
		s.beats[j.claim.Ref] = beat{inc.self.ID, h.p.now()}
		s.did(opBeat)
	}
	s.after(max(silence.Microseconds()/3, 100), h.p, func() { j.beat(silence) })
}

// end ends an attempt with a random outcome.
func (j *job) end() {
	s, h := j.h.p.s, j.h
	if j.done || h.held[j.claim.Ref] != j {
		return
	}
	j.done = true
	w := workOf(j.claim.Input)
	r := &model.TaskReport{Ref: j.claim.Ref}

	switch {
	case j.canceled && s.chance(0.7):
		r.Failure = &model.Failure{Kind: model.FailureCanceled, Message: "canceled"}
	case !s.healed && s.chance(w.returns):
		r.Returned, r.After = true, microseconds(s.between(0, 20*millisecond))
	case j.claim.Attempt <= w.fails:
		r.Failure = &model.Failure{Message: fmt.Sprintf("attempt %d fails", j.claim.Attempt), Permanent: w.permanent}
		if s.chance(0.2) {
			r.RetryAfter = microseconds(s.between(1, 30*millisecond))
		}
	default:
		r.Output = s.output(&j.claim)
	}

	h.report(r)
	if !s.healed && s.chance(0.15) { // the answer to the first report was lost
		s.hurt(faultReportTwice)
		s.after(s.between(0, 5*millisecond), h.p, func() { h.report(r) })
	}
}

// report reports the end of a claim, as TaskSession.Report does.
func (h *hand) report(r *model.TaskReport) {
	if h.gone {
		return
	}
	s := h.p.s
	h.reported[r.Ref] = r
	delete(h.held, r.Ref)
	if h.abroad.Free(r.Ref) {
		h.rejoin()
	}
	s.reports[r.Ref] = append(s.reports[r.Ref], r)
	if s.opts.Trace {
		s.logf("%s reports claim %d of %s %s: returned %v, failure %v", h.offer.Name, r.Ref.Claim, short(r.Ref.Run), r.Ref.ID, r.Returned, r.Failure)
	}
	h.send(r)
}

func (h *hand) send(r *model.TaskReport) {
	s, p := h.p.s, h.p
	shard := r.Ref.Address.Shard(s.plan.shards)
	again := func() { s.after(s.between(1, 10)*millisecond, p, func() { h.resend(r) }) }
	inc := p.inc

	switch u := p.purse(); {
	case inc == nil:
		again()
	case u != nil && !inc.owner[shard] && !u.leaving[shard] && len(h.offer.Tenants) > 0:
		h.abroad.Report(r.Ref)
		u.wakeCreditor()
	case inc.owner[shard] || u != nil && u.leaving[shard]:
		inc.board.moved = inc.board.b.MarkReported(p.now(), h.id, r.Ref) || inc.board.moved
		sh := inc.shells[int(shard)%len(inc.shells)]
		c := newCall(p, func(a *lane.Answer) {
			if a.Err != nil {
				again()
			}
		})
		if !sh.put(c, func(now model.Time) {
			c.done = true // from here on the lane answers
			sh.lane.Report(now, h.id, r)
		}) {
			c.done = true
			again()
		}
	default:
		s.did(opReportMailed)
		p.clerk.send(engine.ReportMessage(r), true, func(a *lane.Answer) {
			switch {
			case errors.Is(a.Err, errCrashed):
			default:
				h.settled(r.Ref, a.Err)
			}
		})
	}
}

// resend repeats a report that is not settled.
func (h *hand) resend(r *model.TaskReport) {
	if h.reported[r.Ref] != nil && !h.gone {
		h.send(r)
	}
}

func (h *hand) stop(ref model.ClaimRef, canceled bool) {
	s := h.p.s
	if s.opts.Trace {
		s.logf("%s is to stop claim %d of %s %s, canceled %v", h.offer.Name, ref.Claim, short(ref.Run), ref.ID, canceled)
	}
	j := h.held[ref]
	if j == nil {
		return
	}

	s.did(opStopped)
	if !canceled {
		j.done = true
		delete(h.held, ref)
		back := h.abroad.Free(ref)
		h.done(ref, nil)
		if back {
			h.rejoin()
		}
		return
	}

	j.canceled = true
	s.after(s.between(0, 5*millisecond), h.p, j.end)
}

func (h *hand) settled(ref model.ClaimRef, err error) {
	s := h.p.s
	r := h.reported[ref]
	if later := errors.Is(err, lane.ErrLater); later || errors.Is(err, lane.ErrNotOwner) {
		wait := 2 * millisecond
		if later {
			wait = 5 * second
		}
		if r != nil { // otherwise it repeats a report that has been settled
			s.after(s.between(0, wait), h.p, func() { h.resend(r) })
		}
		return
	}

	if s.opts.Trace {
		s.logf("%s hears of claim %d of %s %s: %v", h.offer.Name, ref.Claim, short(ref.Run), ref.ID, err)
	}
	delete(h.reported, ref)
	h.abroad.DropReport(ref)
	h.vanish()
	s.checkSettled(ref, err)
	h.done(ref, r)
}

// done reports to the board that a claim is over. The report, if there is one, has the outcome of
// the attempt.
func (h *hand) done(ref model.ClaimRef, r *model.TaskReport) {
	how := queue.Neither
	switch {
	case r == nil || r.Returned:
	case r.Failure == nil:
		how = queue.Succeeded
	default:
		how = queue.Failed
	}
	maker := h.abroad.Unmake(ref)
	if inc := h.p.inc; inc != nil {
		inc.board.settled(ref, how)
		if inc.purse != nil && !maker.IsZero() {
			inc.purse.creditor.Over(ref, maker)
		}
	}
}

// vanish removes a ghost that has no open reports.
func (h *hand) vanish() {
	if h.ghost && len(h.reported) == 0 {
		h.gone = true
		h.p.hands = slices.DeleteFunc(h.p.hands, func(o *hand) bool { return o == h })
	}
}

// leave takes a hand out of its process, as TaskSession.Leave does. It gets nothing new, and after
// a while gives back its claims.
func (h *hand) leave() {
	s, p := h.p.s, h.p
	if h.leaving {
		return
	}
	h.leaving, h.offer.Slots = true, 0
	if s.opts.Trace {
		s.logf("%s leaves", h.offer.Name)
	}
	if p.inc != nil {
		p.inc.board.join(h)
	}
	if u := p.purse(); u != nil && p.inc.begun {
		u.serve()
	}
	gives, ends := s.now+s.between(0, 50)*millisecond, s.now+s.between(50, 200)*millisecond
	var wait func()

	wait = func() {
		if s.now >= gives {
			for _, ref := range h.refs() {
				h.held[ref].done = true
				h.report(&model.TaskReport{Ref: ref, Returned: true})
			}
		}

		if len(h.held)+len(h.reported) > 0 && s.now < ends {
			s.after(2*millisecond, p, wait)
			return
		}

		if p.inc != nil {
			p.inc.board.leave(h)
		}
		h.ghost = true // as long as it has reports that are not settled
		h.vanish()
		s.did(opHandLeft)
	}

	s.after(2*millisecond, p, wait)
}

// refs returns the claims that the hand executes, in order.
func (h *hand) refs() []model.ClaimRef {
	refs := make([]model.ClaimRef, 0, len(h.held))
	for ref := range h.held {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, compareClaims)
	return refs
}

// wakeHands lets hands continue that hang.
func (p *proc) wakeHands() {
	for _, h := range p.hands {
		for _, ref := range h.refs() {
			if j := h.held[ref]; j.hangs {
				j.hangs = false
				j.end()
			}
		}
	}
}
