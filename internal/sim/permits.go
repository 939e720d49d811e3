package sim

import (
	"slices"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// permits is whose permit a claim uses where nodes share limits, as engine/flow/gatekeeper.go has it: that of the node that made it, for as long as its worker executes the task, whoever owns the run
// meanwhile.
type permits struct {
	claims  map[model.TaskRef]ours      // of workers of this process, with something that they hold
	orphans map[model.TaskRef]*orphan   // claims that this node counts although their run is not here, or it is not durable that they have ended
	resumed map[model.TaskRef][]*orphan // those of them whose task was let through again with what they hold
	foreign map[model.TaskRef]counted   // claims in the shards of this node that another one counts, which has made them
	// What the board is being told just now: that a claim was made by another node, or that a task leaves memory.
	node      string
	forgetful bool
}

type ours struct {
	claim  int64
	worker queue.WorkerID
}

type counted struct {
	node string
	ours
}

type orphan struct {
	ours
	item queue.Item
	how  queue.Outcome
}

func newPermits() permits {
	return permits{claims: map[model.TaskRef]ours{}, orphans: map[model.TaskRef]*orphan{}, resumed: map[model.TaskRef][]*orphan{}, foreign: map[model.TaskRef]counted{}}
}

// elsewhere reports whether another node counts a claim that the board is being told of.
func (p *permits) elsewhere(ref model.TaskRef) bool {
	if p.node != "" {
		p.foreign[ref] = counted{node: p.node}
	}
	_, elsewhere := p.foreign[ref]
	if !elsewhere {
		p.resumes(ref)
	}
	return elsewhere
}

// has reports whether a worker of the process executes a claim, or has reported it and that is not settled.
func (k *keeper) has(o ours, ref model.TaskRef) bool {
	return slices.ContainsFunc(k.b.inc.p.hands, func(h *hand) bool {
		return h.id == o.worker && h.has(model.ClaimRef{TaskRef: ref, Claim: o.claim})
	})
}

// held remembers who has a claim that holds something.
func (k *keeper) held(ref model.TaskRef, claim int64, id queue.WorkerID) {
	k.knew[model.ClaimRef{TaskRef: ref, Claim: claim}] = true
	if k.book == nil {
		return
	}
	if left := slices.DeleteFunc(k.resumed[ref], func(o *orphan) bool { return o.claim == claim }); len(left) > 0 { // a run may come back with the claim that was given up
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
	} else if k.g.Holds(ref) {
		k.claims[ref] = ours{claim, id}
	}
}

// resumes has the next attempt of a task go on with what one holds that was given up. It reports whether there is one.
func (p *permits) resumes(ref model.TaskRef) bool {
	o := p.orphans[ref]
	if o == nil {
		return false
	}
	delete(p.orphans, ref)
	p.resumed[ref] = append(p.resumed[ref], o)
	return true
}

// earlier has an attempt count again of which the worker goes on, when a later one of the task is over. It reports whether there is one.
func (k *keeper) earlier(ref model.TaskRef) bool {
	list := slices.DeleteFunc(k.resumed[ref], func(o *orphan) bool { return !k.has(o.ours, ref) })
	if len(list) == 0 {
		delete(k.resumed, ref)
		return false
	}
	k.orphans[ref], k.resumed[ref] = list[0], list[1:]
	return true
}

// keeps reports whether a claim that has left the board goes on to hold what it holds, or held nothing here.
func (k *keeper) keeps(it *queue.Item, how queue.Outcome) bool {
	if _, elsewhere := k.foreign[it.Ref]; elsewhere {
		delete(k.foreign, it.Ref)
		return true
	}
	c, mine := k.claims[it.Ref]
	delete(k.claims, it.Ref)
	if !mine || !k.forgetful && !k.g.Shared(it.Ref) || !k.has(c, it.Ref) {
		return k.earlier(it.Ref)
	}
	k.orphans[it.Ref] = &orphan{c, *it, how}
	k.logf("goes on to count claim %d of %s", c.claim, it.Ref)
	k.b.inc.p.s.did(opOrphan)
	return true
}

// settled tells that a worker of the process is done with a claim, and that this is durable or of no interest to anybody.
func (b *board) settled(ref model.ClaimRef, how queue.Outcome) {
	k := b.keeper
	if k == nil || k.book == nil {
		return
	}
	o := k.orphans[ref.TaskRef]
	if o == nil || o.claim != ref.Claim {
		return
	}
	delete(k.orphans, ref.TaskRef)
	if k.earlier(ref.TaskRef) {
		return
	}
	if o.how != queue.Neither {
		how = o.how
	}
	now := b.inc.p.now()
	k.give(now, &o.item, how)
	b.settle(now)
	b.moved = true
	b.propose()
}

// adopt has this node count the claims in its shards that were made by nodes which are no more.
func (b *board) adopt(now model.Time, alive []string) {
	k := b.keeper
	gone := map[model.TaskRef]ours{}
	for ref, c := range k.foreign {
		if !slices.Contains(alive, c.node) {
			gone[ref] = c.ours
			delete(k.foreign, ref)
		}
	}
	if len(gone) == 0 {
		return
	}
	b.b.Taken(func(it *queue.Item) {
		if c, mine := gone[it.Ref]; mine {
			k.Hold(now, it)
			k.held(it.Ref, c.claim, c.worker) // it goes on to count here when the run moves once more
			b.inc.p.s.did(opInherited)
		}
	})
}
