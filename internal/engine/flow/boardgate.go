package flow

import (
	"iter"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// BoardGate is the gate of a node as its board uses it. The gate makes a plan for each task: the
// limits and the breaker that the task must pass. The BoardGate stores the plan in the Note of the
// task. Tasks with the same needs share a plan, and a task without needs costs nothing.
//
// The BoardGate also knows which node's permits a claim uses. A claim uses permits of the node that
// made it, as long as its worker executes the task. This rule holds even if another node owns the
// run by now, and even if another node has lent the worker. The rule has three consequences:
//   - When a run moves away or is quarantined, its claims keep their permits here until their
//     workers have reported. Such a claim is called an orphan. So is a claim whose end is decided
//     and not durable yet.
//   - When the end of a claim is durable, its code may still run. Such a claim is called lingering.
//   - If this node owns a run, and another live node has made a claim of the run, that claim has no
//     permits here. Such a claim is called foreign. When the other node dies, the claim takes
//     permits here, because some node must count the claim until the store records that it is lost.
type BoardGate struct {
	*gate.Gate
	Book *ledger.Book // nil if no other node shares the store
	// The function at returns whether a worker on this node's board executes a claim. The worker
	// belongs to this node or is lent to it. If the worker has reported the claim and the report is
	// not settled, the function also returns the report.
	at func(id queue.WorkerID, claim model.ClaimRef) (executes bool, report *model.TaskReport)
	// Lent says whether a worker is lent by another node. A lent worker learns only from its own
	// node that a claim is over. If Lent is nil, no worker is lent.
	Lent func(id queue.WorkerID) bool

	claims  map[model.TaskRef]ours
	orphans map[model.TaskRef]*orphan
	// resumed holds orphans whose task was admitted again and has taken over their permits. The
	// workers of these orphans may still execute the task.
	resumed map[model.TaskRef][]*orphan
	foreign map[model.TaskRef]counted
	// lingering holds claims that have ended and whose code still runs; see Linger.
	lingering map[model.ClaimRef]*orphan
	// kept is zero if there are neither orphans, resumed or not, nor lingering claims. Callers may
	// read it without the lock that protects the rest.
	kept atomic.Int64

	// The current settings.
	rules  *rule.Set
	paused map[Queue]string
}

// ours is a claim of a worker that belongs to this node or is lent to it.
type ours struct {
	claim  int64
	worker queue.WorkerID
}

// counted is a claim that another node has made and counts. It has the worker that executes the
// claim, if this node knows that worker.
type counted struct {
	node string
	ours
}

// orphan is a claim whose permits this node keeps although its run has moved away, or although the
// board has given it up before its end was settled.
type orphan struct {
	item   queue.Item
	claim  int64
	worker queue.WorkerID
	how    queue.Outcome
}

// NewBoardGate returns the gate of a board.
func NewBoardGate(book *ledger.Book, at func(queue.WorkerID, model.ClaimRef) (executes bool, report *model.TaskReport)) *BoardGate {
	k := &BoardGate{Book: book, at: at, claims: map[model.TaskRef]ours{}, orphans: map[model.TaskRef]*orphan{}, resumed: map[model.TaskRef][]*orphan{}, foreign: map[model.TaskRef]counted{}, lingering: map[model.ClaimRef]*orphan{}}
	if book != nil {
		k.Gate = book.Gate
	} else {
		k.Gate = gate.New(0, nil)
	}
	return k
}

func (k *BoardGate) item(it *queue.Item) gate.Task {
	p, _ := it.Note.(*gate.Plan)
	return gate.Task{Ref: it.Ref, Spec: it.Spec, Input: it.Input, Plan: p}
}

// note keeps the plan with the task.
func note(it *queue.Item, p *gate.Plan) {
	if old, _ := it.Note.(*gate.Plan); old != p {
		it.Note = p
	}
}

// stopPause is how long the board waits before it asks again about a task whose previous attempt
// has permits although its end is decided. Tasks with the same needs wait with it.
const stopPause = 25 * time.Millisecond

// Take implements queue.Admitter. A task does not start again while its previous attempt has its
// permits, because they would not be enough for two attempts. That ends when the worker is told
// that the claim is lost; see Linger. There is an exception if nodes share the store. Another node
// may have ended the claim of a worker of this node, so that no lane of this node tells the worker.
// In that case the task takes over the permits, and the caller stops the worker; see Earlier.
func (k *BoardGate) Take(now model.Time, it *queue.Item) (ok bool, why model.Reason, again model.Time) {
	k.FreeDone(now, it.Ref)
	if o := k.orphans[it.Ref]; o != nil && (k.Book == nil || k.Lent != nil && k.Lent(o.worker)) {
		why = model.Reason{Code: model.WaitLine, Name: it.Spec.Queue, Detail: "until the worker of the last attempt knows that the attempt has ended"}
		return false, why, now.Add(stopPause)
	}
	k.resume(it.Ref)
	g := k.item(it)
	ok, why, again = k.Gate.Take(now, &g)
	note(it, g.Plan)
	return ok, why, again
}

// Hold implements queue.Admitter.
func (k *BoardGate) Hold(now model.Time, it *queue.Item, maker string) {
	if maker != "" {
		k.foreign[it.Ref] = counted{node: maker}
	}
	if _, counted := k.foreign[it.Ref]; counted {
		return
	}
	k.resume(it.Ref)
	g := k.item(it)
	k.Gate.Hold(now, &g)
	note(it, g.Plan)
}

// resume handles a task that is on the board again: the task takes over the permits of its earlier
// attempt, which the board has given up.
func (k *BoardGate) resume(ref model.TaskRef) {
	if o := k.orphans[ref]; o != nil {
		delete(k.orphans, ref)
		k.resumed[ref] = append(k.resumed[ref], o)
	}
}

// restoreEarlier handles the end of an attempt that has taken over the permits of an orphan. If the
// worker of the orphan still executes its claim, restoreEarlier gives the permits back to the
// orphan and returns true. An orphan whose worker has reported needs no permits.
func (k *BoardGate) restoreEarlier(ref model.TaskRef) bool {
	left := slices.DeleteFunc(k.resumed[ref], func(o *orphan) bool {
		executes, _ := k.at(o.worker, model.ClaimRef{TaskRef: ref, Claim: o.claim})
		return !executes
	})
	if len(left) == 0 {
		delete(k.resumed, ref)
		return false
	}
	k.orphans[ref] = left[0]
	if k.resumed[ref] = left[1:]; len(left) == 1 {
		delete(k.resumed, ref)
	}
	return true
}

// Earlier returns the earlier claims of a task that workers on this node's board still execute. The
// caller must stop these workers before another worker gets a later claim of the task. A lane stops
// the workers of claims that it ends itself. But if the run has moved to another node and back, the
// other node may have ended the claim, and no lane of this node has stopped its worker.
func (k *BoardGate) Earlier(later model.ClaimRef) []WorkerClaim {
	var list []WorkerClaim
	for _, o := range k.resumed[later.TaskRef] {
		c := WorkerClaim{o.worker, model.ClaimRef{TaskRef: later.TaskRef, Claim: o.claim}}
		if executes, _ := k.at(c.Worker, c.Ref); executes && o.claim < later.Claim {
			list = append(list, c)
		}
	}
	return list
}

// WorkerClaim is a claim and the worker that executes it.
type WorkerClaim struct {
	Worker queue.WorkerID
	Ref    model.ClaimRef
}

// busyWith reports whether a worker executes a claim or has an unsettled report of it.
func (k *BoardGate) busyWith(id queue.WorkerID, claim model.ClaimRef) bool {
	executes, report := k.at(id, claim)
	return executes || report != nil
}

// RecordWorker remembers which worker has a claim that holds permits.
func (k *BoardGate) RecordWorker(ref model.TaskRef, claim int64, id queue.WorkerID) {
	// The run may have come back with a claim that the board had given up.
	if left := slices.DeleteFunc(k.resumed[ref], func(o *orphan) bool { return o.claim == claim }); len(left) > 0 {
		k.resumed[ref] = left
	} else {
		delete(k.resumed, ref)
	}

	if id == 0 {
		return
	}

	if c, elsewhere := k.foreign[ref]; elsewhere {
		c.ours = ours{claim, id}
		k.foreign[ref] = c
	} else if k.IsAdmitted(ref) {
		k.claims[ref] = ours{claim, id}
	}
}

// Give implements queue.Admitter. A claim keeps its permits in two cases: its worker still executes
// the task, or the end of the claim is not durable yet and a permit is shared with other nodes. In
// these cases Give makes the claim an orphan, which keeps the permits. But if the run leaves this
// node or is quarantined after the worker has reported, the permits become free now.
func (k *BoardGate) Give(now model.Time, it *queue.Item, how queue.Outcome) {
	if _, counted := k.foreign[it.Ref]; counted {
		delete(k.foreign, it.Ref)
		return
	}

	c, mine := k.claims[it.Ref]
	delete(k.claims, it.Ref)
	if mine {
		// Announce the orphan before asking the session. If the worker is done with the claim right
		// after the session has answered, the session then sees that there may be permits to free.
		k.recount(1)
		executes, report := k.at(c.worker, model.ClaimRef{TaskRef: it.Ref, Claim: c.claim})
		if executes || report != nil && how != queue.Forgotten && k.Shared(it.Ref) {
			k.orphans[it.Ref] = &orphan{*it, c.claim, c.worker, how}
			return
		}
		k.recount(0)
		if how == queue.Forgotten {
			how = OutcomeOf(report)
		}
	}

	if k.restoreEarlier(it.Ref) {
		return
	}
	g := k.item(it)
	k.Gate.Give(now, &g, outcomes[how])
}

// recount updates kept. more is the number of orphans that the caller may be about to add.
func (k *BoardGate) recount(more int) {
	k.kept.Store(int64(len(k.orphans) + len(k.resumed) + len(k.lingering) + more))
}

// KeepsPermits reports whether there may be orphans or lingering claims, whose permits FreeOrphan
// frees. It needs no lock.
func (k *BoardGate) KeepsPermits() bool { return k.kept.Load() != 0 }

// FreeOrphan frees the permits of an orphan or a lingering claim, because its worker is done with
// it. It reports whether a permit became free.
func (k *BoardGate) FreeOrphan(now model.Time, ref model.ClaimRef, how queue.Outcome) bool {
	if k.freeLingering(now, ref) {
		return true
	}
	o := k.orphans[ref.TaskRef]
	if o == nil || o.claim != ref.Claim {
		return false
	}
	delete(k.orphans, ref.TaskRef)
	defer k.recount(0)
	if k.restoreEarlier(ref.TaskRef) {
		return false
	}
	if o.how == queue.Succeeded || o.how == queue.Failed {
		how = o.how
	}
	g := k.item(&o.item)
	k.Gate.Give(now, &g, outcomes[how])
	return true
}

// FreeReported frees the permits of an orphan, because its worker has reported. It reports whether
// a permit became free. id is the worker that reports, possibly on behalf of a worker that has
// left. The end of the claim need not be durable, because the run is not here or is quarantined,
// and the task cannot start again before the end is stored.
func (k *BoardGate) FreeReported(now model.Time, id queue.WorkerID, r *model.TaskReport) bool {
	o := k.orphans[r.Ref.TaskRef]
	if o == nil || o.claim != r.Ref.Claim {
		return false
	}
	if o.worker != id {
		if executes, _ := k.at(o.worker, r.Ref); executes {
			return false
		}
	}
	return k.FreeOrphan(now, r.Ref, OutcomeOf(r))
}

// FreeDone frees the permits of an orphan if its worker no longer executes it. It returns the
// outcome of the attempt. The caller calls it for one of two reasons:
//
//   - The task of the orphan asks for permits again. It must not take over the old permits, because
//     they may exceed the limit. That happens if the permits were freed before, and Hold took them
//     again when the lane found the claim.
//   - The run of the orphan is quarantined, so the end of the claim cannot become durable now.
func (k *BoardGate) FreeDone(now model.Time, ref model.TaskRef) (how queue.Outcome, freed bool) {
	o := k.orphans[ref]
	if o == nil {
		return queue.Neither, false
	}
	claim := model.ClaimRef{TaskRef: ref, Claim: o.claim}
	executes, report := k.at(o.worker, claim)
	if executes {
		return queue.Neither, false
	}
	if how = o.how; how != queue.Succeeded && how != queue.Failed {
		how = OutcomeOf(report)
	}
	return how, k.FreeOrphan(now, claim, how)
}

// OrphansAt returns the tasks at an address that have orphans here, in order.
func (k *BoardGate) OrphansAt(a model.Address) []model.TaskRef {
	if len(k.orphans) == 0 {
		return nil
	}
	return slices.DeleteFunc(k.orphanTasks(), func(ref model.TaskRef) bool { return ref.Address != a })
}

// OutcomeOf returns the outcome of an attempt according to its report. r is nil if there is no
// report.
func OutcomeOf(r *model.TaskReport) queue.Outcome {
	switch {
	case r == nil || r.Returned:
		return queue.Neither
	case r.Failure == nil:
		return queue.Succeeded
	}
	return queue.Failed
}

// Orphans returns the workers that execute orphans and lingering claims of this node.
func (k *BoardGate) Orphans() iter.Seq[queue.WorkerID] {
	return func(yield func(queue.WorkerID) bool) {
		for _, o := range k.lingering {
			if !yield(o.worker) {
				return
			}
		}
		for _, o := range k.orphans {
			if !yield(o.worker) {
				return
			}
		}
		for _, list := range k.resumed {
			for _, o := range list {
				if !yield(o.worker) {
					return
				}
			}
		}
	}
}

// orphanTasks returns the tasks of orphans in order, so that the behavior of a node is
// reproducible.
func (k *BoardGate) orphanTasks() []model.TaskRef {
	return slices.SortedFunc(maps.Keys(k.orphans), model.TaskRef.Compare)
}

// LetGo frees the permits of orphans and lingering claims whose workers are done or gone. It
// reports whether there were such claims.
func (k *BoardGate) LetGo(now model.Time) (any bool) {
	for _, claim := range k.lingeringClaims() {
		if executes, _ := k.at(k.lingering[claim].worker, claim); !executes && k.freeLingering(now, claim) {
			any = true
		}
	}
	for _, ref := range k.orphanTasks() {
		o := k.orphans[ref]
		claim := model.ClaimRef{TaskRef: ref, Claim: o.claim}
		if !k.busyWith(o.worker, claim) && k.FreeOrphan(now, claim, queue.Neither) {
			any = true
		}
	}
	return any
}

// RetryAfter makes the breaker of a task refuse calls before the given time.
func (k *BoardGate) RetryAfter(now model.Time, it *queue.Item, until model.Time) {
	g := k.item(it)
	k.Gate.RetryAfter(now, &g, until)
}

// SetRules applies new rules. Tasks that already run also take permits under the new rules.
func (k *BoardGate) SetRules(now model.Time, rules *rule.Set, tasks *queue.Board) {
	k.Gate.SetRules(now, rules)
	tasks.VisitTaken(func(it *queue.Item) { k.Hold(now, it, "") })
	for _, ref := range k.orphanTasks() {
		g := k.item(&k.orphans[ref].item)
		k.Gate.Hold(now, &g)
	}
	for _, claim := range k.lingeringClaims() {
		k.HoldLingering(now, &k.lingering[claim].item)
	}
	tasks.Regroup(now)
	if k.Book != nil {
		k.Book.SetRules(rules)
	}
}

// Inherit makes this node count the claims in its shards that dead nodes have made.
func (k *BoardGate) Inherit(now model.Time, alive map[string]bool, tasks *queue.Board) {
	var gone map[model.TaskRef]ours
	for ref, c := range k.foreign {
		if !alive[c.node] {
			if gone == nil {
				gone = map[model.TaskRef]ours{}
			}
			gone[ref] = c.ours
			delete(k.foreign, ref)
		}
	}

	if gone != nil {
		tasks.VisitTaken(func(it *queue.Item) {
			if c, mine := gone[it.Ref]; mine {
				k.Hold(now, it, "")
				// This node must still count the claim if the run moves again.
				k.RecordWorker(it.Ref, c.claim, c.worker)
			}
		})
	}
}

// Group implements queue.Admitter.
func (k *BoardGate) Group(it *queue.Item) string {
	g := k.item(it)
	name := k.Gate.Group(&g)
	note(it, g.Plan)
	return name
}

var outcomes = [...]breaker.Outcome{
	queue.Neither: breaker.Neither, queue.Forgotten: breaker.Neither, queue.Succeeded: breaker.Succeeded, queue.Failed: breaker.Failed,
}
