package flow

import (
	"iter"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// Gatekeeper is the gate of a node as its board asks it. What the gate has found out about a task
// is kept with the task, as its Note, and shared by tasks that need the same; a task that needs
// nothing costs nothing.
//
// Where other nodes share the store, it also knows whose permit a claim uses: that of the node that
// made it, for as long as its worker executes the task, whoever owns the run meanwhile, and whether
// the worker is the node's own or was lent by another one. So when a run moves, its claims go on to
// hold here what they hold (orphans) until the worker has reported and that is settled; and a claim
// that is found and was made by another node that is alive holds nothing here (foreign). When that
// node dies, it does: somebody has to count it, until it is recorded that it is lost.
type Gatekeeper struct {
	*gate.Gate
	Book *ledger.Book // nil when nobody else shares the store
	// at reports whether a worker on this node's board, its own or one that another node lends it,
	// executes a claim, or has reported it and that is not settled.
	at func(id queue.WorkerID, claim model.ClaimRef) (executes, reported bool)

	claims  map[model.TaskRef]ours
	orphans map[model.TaskRef]*orphan
	// orphans whose task was let through again, with what they hold; their workers may still be at
	// it
	resumed map[model.TaskRef][]*orphan
	foreign map[model.TaskRef]counted

	// What people have set, as it was last heard of.
	rules  *rule.Set
	paused map[Queue]string

	// What the board is being told just now: which other node has made a claim, or that a task
	// leaves memory.
	Maker   string
	Forgets bool
}

// ours is a claim of a worker of this node, or of one that is lent to it.
type ours struct {
	claim  int64
	worker queue.WorkerID
}

// counted is a claim that another node counts, which has made it, and who executes it, if that is
// known here.
type counted struct {
	node string
	ours
}

// orphan is a claim that this node counts although its run is not here, or has not heard yet that
// it ended.
type orphan struct {
	item   queue.Item
	claim  int64
	worker queue.WorkerID
	how    queue.Outcome
}

// NewGatekeeper makes the gatekeeper of a board.
func NewGatekeeper(book *ledger.Book, at func(queue.WorkerID, model.ClaimRef) (executes, reported bool)) *Gatekeeper {
	k := &Gatekeeper{Book: book, at: at, claims: map[model.TaskRef]ours{}, orphans: map[model.TaskRef]*orphan{}, resumed: map[model.TaskRef][]*orphan{}, foreign: map[model.TaskRef]counted{}}
	if book != nil {
		k.Gate = book.Gate
	} else {
		k.Gate = gate.New(0, nil)
	}
	return k
}

func (k *Gatekeeper) item(it *queue.Item) gate.Item {
	p, _ := it.Note.(*gate.Plan)
	return gate.Item{Ref: it.Ref, Spec: it.Spec, Input: it.Input, Plan: p}
}

// note keeps what was found out.
func note(it *queue.Item, p *gate.Plan) {
	if old, _ := it.Note.(*gate.Plan); old != p {
		it.Note = p
	}
}

// Take is for the board; see queue.Gate.
func (k *Gatekeeper) Take(now model.Time, it *queue.Item) (ok bool, why model.Reason, again model.Time) {
	k.resume(it.Ref)
	g := k.item(it)
	ok, why, again = k.Gate.Take(now, &g)
	note(it, g.Plan)
	return ok, why, again
}

// Hold is for the board.
func (k *Gatekeeper) Hold(now model.Time, it *queue.Item) {
	if k.Maker != "" {
		k.foreign[it.Ref] = counted{node: k.Maker}
	}
	if _, counted := k.foreign[it.Ref]; counted {
		return
	}
	k.resume(it.Ref)
	g := k.item(it)
	k.Gate.Hold(now, &g)
	note(it, g.Plan)
}

// resume has the next attempt of a task that is back go on with what one holds that was given up.
func (k *Gatekeeper) resume(ref model.TaskRef) {
	if o := k.orphans[ref]; o != nil {
		delete(k.orphans, ref)
		k.resumed[ref] = append(k.resumed[ref], o)
	}
}

// earlier has an attempt count again whose worker is still at it, when a later one of the task,
// which went on with what it held, is over. It reports whether there is one.
func (k *Gatekeeper) earlier(ref model.TaskRef) bool {
	left := slices.DeleteFunc(k.resumed[ref], func(o *orphan) bool { return !k.has(o.worker, model.ClaimRef{TaskRef: ref, Claim: o.claim}) })
	if len(left) == 0 {
		delete(k.resumed, ref)
		return false
	}
	k.orphans[ref], k.resumed[ref] = left[0], left[1:]
	return true
}

// has reports whether a worker has to do with a claim.
func (k *Gatekeeper) has(id queue.WorkerID, claim model.ClaimRef) bool {
	executes, reported := k.at(id, claim)
	return executes || reported
}

// Held remembers who has a claim that holds something.
func (k *Gatekeeper) Held(ref model.TaskRef, claim int64, id queue.WorkerID) {
	if k.Book == nil {
		return
	}

	// a run may come back with the claim that was given up
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
	} else if k.Holds(ref) {
		k.claims[ref] = ours{claim, id}
	}
}

// Give is for the board. A permit that others share is free when it is durable that the claim has
// ended, and not before; and none is while its worker executes the task, and has not been told that
// it is over: that may never become durable, or not before the run has moved.
func (k *Gatekeeper) Give(now model.Time, it *queue.Item, how queue.Outcome) {
	if k.Book != nil {
		if _, counted := k.foreign[it.Ref]; counted {
			delete(k.foreign, it.Ref)
			return
		}

		c, mine := k.claims[it.Ref]
		delete(k.claims, it.Ref)
		if mine {
			executes, reported := k.at(c.worker, model.ClaimRef{TaskRef: it.Ref, Claim: c.claim})
			if executes || reported && (k.Forgets || k.Shared(it.Ref)) {
				k.orphans[it.Ref] = &orphan{*it, c.claim, c.worker, how}
				return
			}
		}

		if k.earlier(it.Ref) {
			return
		}
	}

	g := k.item(it)
	k.Gate.Give(now, &g, outcomes[how])
}

// Settled ends what a claim holds whose worker is done with it. It reports whether it held anything
// that only the worker kept.
func (k *Gatekeeper) Settled(now model.Time, ref model.ClaimRef, how queue.Outcome) bool {
	o := k.orphans[ref.TaskRef]
	if o == nil || o.claim != ref.Claim {
		return false
	}
	delete(k.orphans, ref.TaskRef)
	if k.earlier(ref.TaskRef) {
		return false
	}
	if o.how != queue.Neither {
		how = o.how
	}
	g := k.item(&o.item)
	k.Gate.Give(now, &g, outcomes[how])
	return true
}

// Orphans are the workers that execute what this node counts although the runs are not here.
func (k *Gatekeeper) Orphans() iter.Seq[queue.WorkerID] {
	return func(yield func(queue.WorkerID) bool) {
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

// kept are the tasks of orphans, in order: what a node does follows from what it has seen, and from
// nothing else.
func (k *Gatekeeper) kept() []model.TaskRef {
	return slices.SortedFunc(maps.Keys(k.orphans), model.TaskRef.Compare)
}

// LetGo ends what is counted for workers that are done, or gone. It reports whether there was any.
func (k *Gatekeeper) LetGo(now model.Time) (any bool) {
	for _, ref := range k.kept() {
		o := k.orphans[ref]
		claim := model.ClaimRef{TaskRef: ref, Claim: o.claim}
		if !k.has(o.worker, claim) && k.Settled(now, claim, queue.Neither) {
			any = true
		}
	}
	return any
}

// RetryAfter has a breaker of a task let nothing through before a time.
func (k *Gatekeeper) RetryAfter(now model.Time, it *queue.Item, until model.Time) {
	g := k.item(it)
	k.Gate.RetryAfter(now, &g, until)
}

// SetRules has tasks pass by other rules. Those that are executed count for them as well.
func (k *Gatekeeper) SetRules(now model.Time, rules *rule.Set, tasks *queue.Board) {
	k.Gate.SetRules(now, rules)
	tasks.Taken(func(it *queue.Item) { k.Hold(now, it) })
	for _, ref := range k.kept() {
		g := k.item(&k.orphans[ref].item)
		k.Gate.Hold(now, &g)
	}
	tasks.Regroup(now)
	if k.Book != nil {
		k.Book.SetRules(rules)
	}
}

// Inherit has this node count the claims in its shards that were made by nodes which are no more.
func (k *Gatekeeper) Inherit(now model.Time, alive map[string]bool, tasks *queue.Board) {
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
		tasks.Taken(func(it *queue.Item) {
			if c, mine := gone[it.Ref]; mine {
				k.Hold(now, it)
				// it goes on to count here when the run moves once more
				k.Held(it.Ref, c.claim, c.worker)
			}
		})
	}
}

// Group is for the board.
func (k *Gatekeeper) Group(it *queue.Item) string {
	g := k.item(it)
	name := k.Gate.Group(&g)
	note(it, g.Plan)
	return name
}

var outcomes = [...]breaker.Outcome{queue.Neither: breaker.Neither, queue.Succeeded: breaker.Succeeded, queue.Failed: breaker.Failed}
