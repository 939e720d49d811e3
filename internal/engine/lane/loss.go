package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// A call that kills its worker must not kill every worker that gets it, one after the other. If the
// worker is a process of its own, the owner survives and counts: see core/lost.go. For a worker in
// the process of the owner, suspect.go does the same.

// death is the end of a worker that has disappeared.
type death struct {
	unseen []uint64 // hand-overs that the worker cannot have got
}

// mayBeOf reports whether the worker may have died of the calls of a hand-over.
func (d *death) mayBeOf(j *job) bool { return d != nil && !slices.Contains(d.unseen, j.gen) }

// Lose removes a worker that has disappeared: its process has died, or has been away for too long.
// It does the same as Leave, and counts the loss for each call of an entity that the worker had.
// unseen are generations of hand-overs that cannot have reached the worker, so they do not count.
// Neither do hand-overs that have not left the lane.
func (l *Lane) Lose(now model.Time, id WorkerID, unseen []uint64) {
	for i := range l.out.Operate {
		if c := &l.out.Operate[i]; c.Worker == id {
			unseen = append(unseen, c.Operations.Generation)
		}
	}
	l.removeWorker(now, id, &death{unseen})
}

// countLosses stores how many workers have disappeared with calls of an entity. If this lane gives
// up the shard, the next owner does not learn of the last loss.
func (l *Lane) countLosses(now model.Time, e *entry, losses []core.Loss) {
	if len(losses) > 0 && !e.shard.draining {
		l.take(now, e, &lossInput{inputBase: inputBase{address: &e.address}, losses: losses})
	}
}

func (in *lossInput) applyPoisoned(l *Lane, _ model.Time, e *entry) {
	in.refuse(l, e.refusal())
	l.finishInput(in)
}

// refuse tells the callers of calls that are set aside that the lane does not store that.
func (in *lossInput) refuse(l *Lane, err error) {
	for _, it := range in.aside {
		l.refuseCall(it, *in.address, err, true)
	}
}

// apply stores the losses. The lane keeps a call that is set aside as a dead letter, and answers
// its caller after the commit. A caller that the lane does not find by a request id or a step waits
// in this process.
func (in *lossInput) apply(l *Lane, now model.Time, e *entry) {
	n := e.actor.entity
	for _, it := range in.aside { // from a batch that the store has refused
		if it.Seq == 0 && n.Current(it) == nil {
			n.Keep([]*core.Item{it})
		}
	}
	d, aside, why := n.CountLosses(in.losses, now)
	in.aside = aside
	b := l.record(e, in, &d)
	for i, it := range aside {
		l.keepRefused(b, e, it.Message, why[i])
		if it.Tag != nil && it.Message.RequestID == "" {
			a := model.Answer{Failure: why[i]}
			b.effects = append(b.effects, effect{kind: effAnswer, entry: e, answer: Answer{Token: it.Tag, Answer: a, Err: core.RefusalOf(a)}})
		}
	}
	l.operate(now, e)
}
