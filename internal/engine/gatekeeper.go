package engine

import (
	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// gatekeeper is the gate of a node as its board asks it. What the gate has found out about a task is kept with the task, as its Note, and shared by tasks that need the same; what tasks
// need nothing costs them nothing.
//
// The gate owns every limit and breaker itself, so permits are counted per process. To share them between nodes takes an owner per resource: the node that
// owns the shard of its address (rule.Resource.Address, rule.BreakerID.Address), as package gate provides for: gate.New is given the home shard of the node and who owns
// what, what Gate.Out says travels as messages between shards, exactly once and in order, in the commit that stores what Gate.Dirty says, and Gate.Next joins the timer of the board.
type gatekeeper struct{ *gate.Gate }

func (k gatekeeper) item(it *queue.Item) gate.Item {
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
func (k gatekeeper) Take(now model.Time, it *queue.Item) (ok bool, why model.Reason, again model.Time) {
	g := k.item(it)
	ok, why, again = k.Gate.Take(now, &g)
	note(it, g.Plan)
	return ok, why, again
}

// Hold is for the board.
func (k gatekeeper) Hold(now model.Time, it *queue.Item) {
	g := k.item(it)
	k.Gate.Hold(now, &g)
	note(it, g.Plan)
}

// Give is for the board.
func (k gatekeeper) Give(now model.Time, it *queue.Item, how queue.Outcome) {
	g := k.item(it)
	k.Gate.Give(now, &g, outcomes[how])
}

// Group is for the board.
func (k gatekeeper) Group(it *queue.Item) string {
	g := k.item(it)
	name := k.Gate.Group(&g)
	note(it, g.Plan)
	return name
}

var outcomes = [...]breaker.Outcome{queue.Neither: breaker.Neither, queue.Succeeded: breaker.Succeeded, queue.Failed: breaker.Failed}
