package cluster

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some seeds nodes lend each other slots of their workers. The state machines for this are the
// production code (engine/loan). This file runs these machines, as engine/lending and
// engine/loans.go do in production. Nodes talk by messages that get lost, arrive late or twice, and
// overtake each other. After all faults have ended, only one process gets new workers. So the tasks
// of the other processes end only if that process lends slots. In some of these seeds nodes also
// share limits, rates and breakers. In that case the owner of a run counts the tasks that lent
// workers execute for it. In addition to the rules for every task, the simulator checks that a
// worker never lends slots that it does not have, that every lent slot comes back to its worker
// (E43), and that no slot is lent when everything has ended.

// purse is the part of an incarnation that lends and borrows.
type purse struct {
	inc      *incarnation
	debtor   *loan.Debtor
	creditor *loan.Creditor
	pace     loan.Pace
	others   loan.Others
	polls    []*loan.OpenPoll // in flight
	// The scheduled times of the next round of each machine.
	rounds, looks int64
	// leaving says, by shard, that the node is giving the shard up and its lane still decides about
	// claims.
	leaving []bool
}

func newPurse(inc *incarnation) *purse {
	s := inc.p.Cluster
	u := &purse{inc: inc, pace: loan.Standard.For(s.Plan.Ttl), leaving: make([]bool, s.Plan.Shards)}
	u.debtor = loan.NewDebtor(loan.DebtorConfig{Owner: u, Board: u, Pace: u.pace, Wake: u.wakeDebtor, NewStream: s.NewRun})
	u.creditor = loan.NewCreditor(loan.CreditorConfig{Self: inc.self.ID, Host: lender{u}, Pace: u.pace, Wake: u.wakeCreditor})
	return u
}

// now is the monotonic clock of the process.
func (u *purse) now() time.Time { return time.UnixMicro(0).Add(u.inc.p.mono()) }

func (u *purse) after(d time.Duration, do func()) {
	u.inc.p.Cluster.After(max(d.Microseconds(), 1), u.inc.p.Process, func() {
		if !u.inc.ended {
			do()
		}
	})
}

// begin tells the workers that other nodes own the claims that the workers hold from the previous
// life of this node. When this node acquires a shard, it owns the claims of that shard again.
func (u *purse) begin() {
	all := make([]model.ShardID, len(u.inc.Owner))
	for i := range all {
		all[i] = model.ShardID(i)
	}
	u.moveShards(all, false)
	u.serve()
}

// serve announces the workers of this node to the other nodes.
func (u *purse) serve() {
	all := []store.Served{{Tenant: scenario.Tenant, Workflow: "w"}}
	for _, h := range u.inc.p.Hands {
		if len(h.Offer.Tenants) > 0 && !h.Ghost {
			all = append(all, store.Served{Tenant: scenario.Tenant, Worker: h.Offer.Name, Queues: h.Offer.Queues, Activities: h.Offer.Kinds, Slots: h.Offer.Slots, Draining: h.leaving})
		}
	}
	u.inc.member.Serve(all)
	u.inc.loop()
}

// applyView applies the view of the membership that a renewal returned.
func (u *purse) applyView(v *store.View) {
	u.others = loan.OthersOf(v, u.inc.self.ID)
	gone := u.debtor.SetMembers(v, u.others)
	u.inc.board.letGo()
	u.inc.board.moved = true
	u.inc.board.Propose()
	u.GiveBack(gone.Back)
	slices.SortFunc(gone.Lost, scenario.CompareClaims)
	for _, ref := range gone.Lost {
		if l := u.Lane(ref); l != nil {
			l.Lose(ref)
		}
	}
	if len(u.others) > 0 {
		u.wakeDebtor()
	}
	loan.Regain(u.creditor.SetMembers(v))
}

// end gives all slots back to the workers, because workers outlive this incarnation of the node.
func (u *purse) end() {
	for len(u.polls) > 0 {
		u.failPoll(u.polls[0])
	}
	loan.Regain(u.creditor.Close())
	u.debtor.Close()
	for _, h := range u.inc.p.Hands {
		if h.abroad.LentSlots() != 0 {
			u.inc.p.Cluster.Fail("E43: %s has ended, and %d slots of %s are still lent", u.inc.name(), h.abroad.LentSlots(), h.Offer.Name)
		}
	}
}

// addShards tells the workers that this node owns some shards now.
func (u *purse) addShards(got []store.AcquiredShard) {
	shards := make([]model.ShardID, len(got))
	for i := range got {
		shards[i] = got[i].Shard
		u.leaving[got[i].Shard] = false
	}
	u.moveShards(shards, true)
}

// dropShards tells the workers that this node no longer owns some shards.
func (u *purse) dropShards(shards []model.ShardID) {
	for _, sh := range shards {
		u.leaving[sh] = false
	}
	u.moveShards(shards, false)
}

// moveShards tells the workers that this node owns some shards now, or no longer owns them.
func (u *purse) moveShards(shards []model.ShardID, ours bool) {
	s := u.inc.p.Cluster
	for _, h := range u.own() {
		in := func(ref model.ClaimRef) bool {
			moves := slices.Contains(shards, s.ShardOf(ref.Address))
			if moves && !ours && !h.abroad.HasClaim(ref) {
				h.over++ // the lane has just freed the slot, and another claim may use it
			}
			return moves
		}
		for _, ref := range h.abroad.MoveClaims(slices.Values(h.Refs()), in, ours) {
			if l := (lender{u}).Lane(ref); l != nil {
				l.Attach(ref, h.id)
			}
		}
		u.inc.board.join(h)
	}

	u.wakeCreditor()
}

// own returns the workers of the process that take tasks, and workers that have left and still have
// something to report.
func (u *purse) own() []*hand {
	return slices.DeleteFunc(slices.Clone(u.inc.p.Hands), func(h *hand) bool { return len(h.Offer.Tenants) == 0 })
}

// wakeDebtor schedules a round of the debtor.
func (u *purse) wakeDebtor() {
	u.lookAfter(time.Duration(u.inc.p.Cluster.Between(0, 5*kernel.Millisecond)) * time.Microsecond)
}

func (u *purse) lookAfter(wait time.Duration) {
	s := u.inc.p.Cluster
	at := s.Now + max(wait.Microseconds(), 1)
	if u.inc.ended || u.looks != 0 && u.looks <= at {
		return
	}
	u.looks = at
	u.after(wait, func() {
		if u.looks == at {
			u.looks = 0
			u.look()
		}
	})
}

// look is a round of the debtor.
func (u *purse) look() {
	s := u.inc.p.Cluster
	calls, again := u.debtor.Round(u.now())
	for i := range calls {
		c := &calls[i]
		s.Did(scenario.OpKnocked)
		s.Mix(20, uint64(len(c.Knock.Wants)))
		from := u.inc.self.ID
		u.tell(c.Node, func(to *purse) { to.creditor.HandleKnock(from, &c.Knock) })
	}
	u.inc.board.Propose()
	if again {
		u.lookAfter(u.pace.PendAgain)
	}
}

// wakeCreditor schedules a round of the creditor.
func (u *purse) wakeCreditor() { u.roundAfter(0) }

func (u *purse) roundAfter(wait time.Duration) {
	s := u.inc.p.Cluster
	at := s.Now + max(wait.Microseconds(), 1)
	if u.inc.ended || u.rounds != 0 && u.rounds <= at {
		return
	}
	u.rounds = at
	u.after(wait, func() {
		if u.rounds == at {
			u.rounds = 0
			u.round()
		}
	})
}

// round is a round of the creditor: it polls owners.
func (u *purse) round() {
	polls, wait := u.creditor.Round(u.now())
	for _, p := range polls {
		u.poll(p)
	}
	if wait > 0 {
		u.roundAfter(wait)
	}
}

// poll polls an owner once.
func (u *purse) poll(p *loan.OpenPoll) {
	s, from := u.inc.p.Cluster, u.inc.self.ID
	u.polls = append(u.polls, p)
	s.Did(scenario.OpPolled)
	if s.Tracing {
		s.Logf("%s polls %s: %+v", u.inc.name(), s.Ledger.Name(p.Node), p.Poll)
	}
	s.Mix(21, p.Poll.Seq, uint64(len(p.Poll.Workers)))

	for _, x := range p.LentSlots() {
		if x.Count > 0 {
			s.Did(scenario.OpLent)
		}
	}

	u.after(u.pace.CallTimeout, func() { u.failPoll(p) })
	u.tell(p.Node, func(to *purse) {
		to.handlePoll(from, &p.Poll, func(a *peer.PollReply) {
			to.tell(from, func(*purse) { u.handleAnswer(p, a) })
		})
	})
}

// handlePoll handles a poll of another node.
func (u *purse) handlePoll(from model.NodeID, p *peer.Poll, answer func(*peer.PollReply)) {
	terms, taken := u.debtor.HandlePoll(u.now(), from, p, answer)
	if !taken {
		return
	}
	b := u.inc.board
	u.GiveBack(terms.Missing)
	b.letGo()
	for _, x := range terms.Lend {
		b.b.Lend(u.inc.p.Now(), x.Worker, x.Count)
	}
	b.moved = true
	b.Propose()
	if u.debtor.Reply(u.now(), from, p.Seq) {
		u.after(u.pace.AnswerWait, func() { u.debtor.Late(u.now(), from, p.Seq) })
	}
}

// under reports whether a poll is in flight. If it is, under ends the poll.
func (u *purse) under(p *loan.OpenPoll) bool {
	i := slices.Index(u.polls, p)
	if i >= 0 {
		u.polls = slices.Delete(u.polls, i, i+1)
	}
	return i >= 0
}

// failPoll ends a poll that was not answered in time.
func (u *purse) failPoll(p *loan.OpenPoll) {
	if u.under(p) {
		s := u.inc.p.Cluster
		s.Did(scenario.OpPollFailed)
		if s.Tracing {
			s.Logf("%s hears nothing from %s", u.inc.name(), s.Ledger.Name(p.Node))
		}
		loan.Regain(p.LentSlots())
		u.creditor.FailPoll(u.now(), p)
	}
}

// handleAnswer handles an answer, unless the answer is late or a duplicate.
func (u *purse) handleAnswer(p *loan.OpenPoll, a *peer.PollReply) {
	if !u.under(p) {
		return
	}
	s := u.inc.p.Cluster
	if s.Tracing {
		s.Logf("%s hears from %s: %d entries, wants %v, %d coming", u.inc.name(), s.Ledger.Name(p.Node), len(a.Entries), a.Wants, a.Coming)
	}
	fresh := u.creditor.HandleReply(u.now(), p, a)
	got := loan.CarryOut(lender{u}, p.Node, fresh)
	u.checkTaken(p, got)
	loan.Regain(p.Home(a, got))
	u.creditor.FinishPoll(u.now(), p, a)
}

// checkTaken checks that workers of the node do not execute more tasks for other owners than they
// have slots. A claim may arrive for which no slot is lent, because the owner answered the poll
// before it had stored the claim.
func (u *purse) checkTaken(p *loan.OpenPoll, got map[loan.Own]int) {
	s := u.inc.p.Cluster
	for _, x := range p.LentSlots() {
		h := x.Own.(ownHand).h
		if more := got[x.Own] - x.Count; more > 0 {
			s.Did(scenario.OpLentLate)
			h.over += more
		}
		n := 0
		for ref := range h.Held {
			if h.abroad.HasClaim(ref) {
				n++
			}
		}
		if n > h.most+h.over {
			s.Fail("E43: %s has %d slots and executes %d claims for other owners, and %d have come late or moved", h.Offer.Name, h.most, n, h.over)
		}
	}
}

// CheckSilence checks that nodes without news for each other do not poll once everything has ended.
// A poll costs each of the two nodes a write and a read.
func (s *Cluster) CheckSilence() {
	if !s.Has(scenario.Lending) {
		return
	}
	before, ttl := s.Stats.Ops[scenario.OpPolled], s.Plan.Ttl.Microseconds()
	s.RunUntil(s.Now+ttl, nil)
	if n := s.Stats.Ops[scenario.OpPolled] - before; n > quietPolls {
		s.Fail("E7: everything has ended, and there are %d polls in %d ms", n, ttl/kernel.Millisecond)
	}
}

// quietPolls is how many polls nodes may make in the time of a lease when no node has news. Each of
// three nodes may poll each of the two others four times, which is as often as nodes with held
// claims would have to poll.
const quietPolls = 3 * 2 * 4

// tell sends a message to another node, if that node is alive when the message arrives.
func (u *purse) tell(node model.NodeID, hear func(to *purse)) {
	s := u.inc.p.Cluster
	s.sendLossy(s.nodeNamed(node.String()), func(to *Proc) {
		if to.Inc != nil && to.Inc.self.ID == node && to.Inc.begun {
			hear(to.Inc.purse)
		}
	})
}

// Alive implements loan.Party.
func (u *purse) Alive(node model.NodeID) bool { return slices.Contains(u.inc.alive, node) }

// LookAround implements loan.Party.
func (u *purse) LookAround() { participantLife{u.inc}.LookAround() }

// GiveBack implements loan.Party.
func (u *purse) GiveBack(refs []model.ClaimRef) {
	slices.SortFunc(refs, scenario.CompareClaims)
	for _, ref := range refs {
		u.inc.p.Cluster.Did(scenario.OpLoanBack)
		u.inc.p.giveBack(ref)
	}
}

// Serving implements loan.Owner.
func (u *purse) Serving() bool { return !u.inc.ended && u.inc.serving() }

// Lane implements loan.Party. A shard that is being given up waits for the reports of workers of
// other nodes.
func (u *purse) Lane(ref model.ClaimRef) loan.ClaimLane {
	if shard := u.inc.p.Cluster.ShardOf(ref.Address); u.leaving[shard] && !u.inc.ended {
		return claimLane{u, u.inc.Shells[int(shard)%len(u.inc.Shells)]}
	}
	return lender{u}.Lane(ref)
}

// claimLane is a lane that receives claims from other nodes.
type claimLane struct {
	u  *purse
	sh *shell
}

// Attach implements loan.ClaimLane.
func (c claimLane) Attach(ref model.ClaimRef, id queue.WorkerID) {
	c.sh.put(nil, func(now model.Time) { c.sh.Lane.Attach(now, ref, id, "") })
}

// Report implements loan.ClaimLane.
func (c claimLane) Report(r *model.TaskReport, id queue.WorkerID) {
	c.u.inc.board.freeSlot(id, r)
	c.u.inc.p.Cluster.Did(scenario.OpReportLent)
	c.sh.put(nil, func(now model.Time) { c.sh.Lane.Report(now, id, r) })
}

// Progress implements loan.ClaimLane.
func (c claimLane) Progress(ref model.ClaimRef, _ queue.WorkerID, p model.Payload) {
	c.sh.put(nil, func(now model.Time) { c.sh.Lane.Progress(now, ref, "", p) })
}

// Lose implements loan.ClaimLane.
func (c claimLane) Lose(ref model.ClaimRef) {
	c.sh.result(func(now model.Time) { c.sh.Lane.Expire(now, ref, true, model.FailureLost) })
}

// UnservedWants implements loan.Board.
func (u *purse) UnservedWants() []queue.Want { return u.inc.board.b.UnservedWants(loan.WantLines) }

// Unlend implements loan.Board.
func (u *purse) Unlend(ids []queue.WorkerID) []queue.Want {
	slices.Sort(ids)
	for _, id := range ids {
		u.inc.board.b.Lend(u.inc.p.Now(), id, 0)
	}
	return u.UnservedWants()
}

// HasClaim implements loan.Board.
func (u *purse) HasClaim(id queue.WorkerID, ref model.ClaimRef) bool {
	return u.inc.board.b.HasClaim(id, ref)
}

// Beat implements loan.Board.
func (u *purse) Beat(id queue.WorkerID, ref model.ClaimRef) bool {
	s, now := u.inc.p.Cluster, u.inc.p.Now()
	ok := u.inc.board.b.Beat(now, id, ref)
	if ok {
		s.Beats[ref] = oracle.Beat{Node: u.inc.self.ID, At: now}
		s.Did(scenario.OpBeatLent)
	}
	return ok
}

// KeptFor implements loan.Board.
func (u *purse) KeptFor() (nodes map[model.NodeID]bool) {
	b := u.inc.board
	if b.keeper == nil {
		return nil
	}
	for id := range b.keeper.g.Orphans() {
		if g := b.guests[id]; g != nil {
			if nodes == nil {
				nodes = map[model.NodeID]bool{}
			}
			nodes[g.node] = true
		}
	}
	return nodes
}

// Hire implements loan.Owner.
func (u *purse) Hire(w *loan.BorrowedWorker, offer model.TaskOffer, node model.NodeID) loan.Hired {
	p := u.inc.p
	p.nextHand++
	g := &guest{u: u, w: w, id: p.nextHand, node: node, name: offer.Name, held: map[model.ClaimRef]bool{}}
	b := u.inc.board
	b.b.Join(p.Now(), g.id, offer)
	b.b.Lend(p.Now(), g.id, 0)
	b.names[g.id] = offer.Name + "@" + node.String() + "/" + u.inc.self.ID.String()
	b.guests[g.id] = g
	b.moved = true
	return g
}

// guest is the session of a worker of another node.
type guest struct {
	u    *purse
	w    *loan.BorrowedWorker
	id   queue.WorkerID
	node model.NodeID // the node that lends the worker
	name string
	held map[model.ClaimRef]bool
}

// ID implements loan.Hired.
func (g *guest) ID() queue.WorkerID { return g.id }

// SetHeld implements loan.Hired.
func (g *guest) SetHeld(holds, waiting map[model.ClaimRef]bool) (gone []model.ClaimRef) {
	for ref := range g.held {
		if !holds[ref] && !waiting[ref] {
			gone = append(gone, ref)
		}
	}
	g.held = maps.Clone(holds)
	maps.Copy(g.held, waiting)
	return gone
}

// DropClaim implements loan.Hired.
func (g *guest) DropClaim(ref model.ClaimRef) { delete(g.held, ref) }

// Dismiss implements loan.Hired.
func (g *guest) Dismiss() {
	if s := g.u.inc.p.Cluster; s.Tracing {
		s.Logf("%s dismisses %s, which was lent", g.u.inc.name(), g.name)
	}
	b := g.u.inc.board
	b.b.Leave(g.u.inc.p.Now(), g.id)
	delete(b.names, g.id)
	delete(b.guests, g.id)
	b.moved = true
}

// call passes a call of a lane to the other node, as a session of the engine does.
func (g *guest) call(c *lane.TaskCall) {
	now := g.u.now()
	if s := g.u.inc.p.Cluster; s.Tracing {
		s.Logf("%s has call %d for %s, which is lent: claim %d of %s %s", g.u.inc.name(), c.Kind, g.name, c.Ref.Claim, scenario.Short(c.Ref.Run), c.Ref.ID)
	}

	switch c.Kind {
	case lane.TaskExecute:
		g.held[c.Ref] = true
		g.w.Execute(now, []model.Claim{*c.Claim})
	case lane.TaskStop: // the guest keeps the claim until its node no longer lists the claim
		if !c.Canceled {
			g.u.inc.board.linger(c.Ref)
		}
		g.w.Stop(now, c.Ref, c.Canceled)
	case lane.TaskSettled:
		switch {
		case errors.Is(c.Err, lane.ErrLater), errors.Is(c.Err, lane.ErrNotOwner):
			g.w.Redirect(now, c.Ref)
		default:
			g.u.inc.board.settleClaim(c.Ref, queue.Neither)
			g.w.Settle(now, c.Ref, c.Err)
		}
	}
}

// lender implements loan.Host for a purse.
type lender struct{ *purse }

// Lane implements loan.Host.
func (n lender) Lane(ref model.ClaimRef) loan.ClaimLane {
	shard := n.inc.p.Cluster.ShardOf(ref.Address)
	if n.inc.ended || !n.inc.Owner[shard] {
		return nil
	}
	return claimLane{n.purse, n.inc.Shells[int(shard)%len(n.inc.Shells)]}
}

// Workers implements loan.Host.
func (n lender) Workers() (list []loan.Own) {
	for _, h := range n.own() {
		list = append(list, ownHand{n.purse, h})
	}
	return list
}

// ownHand implements loan.Own for a hand.
type ownHand struct {
	u *purse
	h *hand
}

// Offer implements loan.Own.
func (o ownHand) Offer() *model.TaskOffer { return &o.h.Offer }

// Idle implements loan.Own.
func (o ownHand) Idle() int { return o.u.inc.board.b.Idle(o.h.id) }

// LendOut implements loan.Own.
func (o ownHand) LendOut(most int) int {
	n := max(0, min(o.Idle(), most))
	o.h.abroad.Lend(n)
	if lent := o.h.abroad.Slots(); n > 0 && lent > o.h.most {
		o.u.inc.p.Cluster.Fail("E43: %s has %d slots, and %d are lent or taken by other owners", o.h.Offer.Name, o.h.most, lent)
	}
	o.u.inc.board.b.Slots(o.u.inc.p.Now(), o.h.id, o.h.free())
	return n
}

// Regain implements loan.Own.
func (o ownHand) Regain(n int) {
	if o.h.abroad.Lend(-n); o.h.abroad.LentSlots() < 0 {
		o.u.inc.p.Cluster.Fail("E43: %s gets back more slots than it has lent", o.h.Offer.Name)
	}
}

// Rejoin implements loan.Own.
func (o ownHand) Rejoin() { o.u.inc.board.join(o.h) }

// Each implements loan.Own.
func (o ownHand) Each(do func(model.ClaimRef, bool)) {
	all := o.h.abroad.All()
	slices.SortFunc(all, func(a, b loan.Fresh) int { return scenario.CompareClaims(a.Ref, b.Ref) })
	for _, f := range all {
		do(f.Ref, f.News)
	}
}

// Deliver implements loan.Own.
func (o ownHand) Deliver(ref model.ClaimRef) {
	if r := o.h.Reported[ref]; o.h.abroad.TakeBackReport(ref) && r != nil {
		o.h.send(r)
	}
	n := o.h.abroad.NewsOf(ref)
	if n.Seq == 0 {
		return
	}
	if n.Beat {
		o.u.Beat(o.h.id, ref)
	}
	o.h.abroad.DropSentNews(map[model.ClaimRef]uint64{ref: n.Seq})
}

// List implements loan.Own.
func (o ownHand) List(to model.NodeID, foreign, owned func(model.ClaimRef) bool, room *int) ([]peer.Hold, map[model.ClaimRef]uint64) {
	refs := slices.SortedFunc(maps.Keys(o.h.Reported), scenario.CompareClaims)
	reports := func(yield func(model.ClaimRef, *model.TaskReport) bool) {
		for _, ref := range refs {
			if !yield(ref, o.h.Reported[ref]) {
				return
			}
		}
	}
	return o.h.abroad.List(loan.Listing{To: to, Executes: slices.Values(o.h.Refs()), Lingers: slices.Values(o.h.lingering()), Reports: reports, Foreign: foreign, Owned: owned, Room: room})
}

// DropSentNews implements loan.Own.
func (o ownHand) DropSentNews(sent map[model.ClaimRef]uint64) { o.h.abroad.DropSentNews(sent) }

// Has implements loan.Own.
func (o ownHand) Has(ref model.ClaimRef) bool { return o.h.has(ref) }

// Take implements loan.Own.
func (o ownHand) Take(claims []model.Claim, maker model.NodeID) bool {
	if o.h.Ghost || o.h.gone {
		return false
	}
	o.h.abroad.Take(claims, maker)
	for i := range claims {
		o.u.inc.p.Cluster.Did(scenario.OpBorrowed)
		o.h.execute(&claims[i])
	}
	return true
}

// Stop implements loan.Own.
func (o ownHand) Stop(ref model.ClaimRef, canceled bool) {
	if s := o.u.inc.p.Cluster; !canceled && o.h.Held[ref] != nil && s.Current(ref) {
		s.Fail("E26: claim %d of %s is to be stopped by another node, and it is the current one", ref.Claim, ref.TaskRef)
	}
	o.h.stop(ref, canceled)
}

// Settle implements loan.Own.
func (o ownHand) Settle(ref model.ClaimRef, err error) {
	if o.h.Reported[ref] != nil {
		o.u.inc.p.Cluster.Did(scenario.OpSettledLent)
		o.h.takeSettled(ref, err)
	}
}
