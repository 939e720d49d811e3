package api

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Worker runs the code of workflows. The engine calls it; no method may block.
//
// For each run, the worker first gets one Activate, then Deliver calls in the order of the history
// without a gap, and finally one Evict. There is one exception: if a turn of the worker says that
// the run is blocked, and the engine stores that turn, the last call is the Taken that answers the
// turn. All calls for a run name the generation of its activation. The worker must ignore calls of
// other generations.
//
// A run occupies one of Offer.Slots while the worker works on it. The run takes the slot with
// Activate, with a Deliver that has news, or with Retry. The run frees the slot with a turn that
// has seen the news, says that no body runs, and says what the run waits for. A turn that closes or
// blocks the run, and Evict, free the slot too. So a run that is in the memory of the worker and
// waits for a timer, a message, a child or a queued task takes no slot. Query and Recall take no
// slot either. The engine never uses more slots than the worker offers, with two exceptions: a run
// that the worker brings along when it joins, and a run that stays with the worker because the
// commit that should take it away has failed. Without a free slot, a run goes to another worker, or
// waits with the reason model.WaitSlot.
type Worker interface {
	// Activate gives the worker a run, with its whole history so far. The worker may keep a. It
	// must change neither a nor the events, because the engine shares them.
	Activate(a *Activation)
	// Deliver brings the next committed events: news from outside, and the outcomes that the worker
	// itself reported. News is an event for which model.EventKind.News is true. The worker answers
	// news with a turn that has seen the event, unless an earlier turn already assumed the event.
	Deliver(run model.RunID, generation uint64, events []model.Event)
	// Retry tells the worker that the back-off of a step is over.
	Retry(run model.RunID, generation uint64, id string)
	// Evict takes a run from the worker, because the run was closed, has moved to another owner, or
	// cannot continue here. Running steps may finish, and the engine drops outcomes that the worker
	// reports in this generation. If the worker gets the run again, it must not run the body of a
	// step beside an earlier execution that still runs. It may report the success of that execution
	// in the new generation.
	Evict(run model.RunID, generation uint64, reason string)
	// Taken answers a turn that recorded no event. Such a turn had only waits or timers, or said
	// that the run is blocked. The engine has applied the turn. If the turn had something to store,
	// that is durable.
	Taken(run model.RunID, generation uint64)
	// Query asks the code of a run for information. The code must first see all events that were
	// delivered before. The worker answers with Session.Answer, unless it no longer holds the run.
	Query(run model.RunID, generation uint64, q model.Query)
	// Recall asks the code about a run that has ended and that no worker holds. The worker reads
	// the history of the run, replays it and answers with Session.Answer. A zero run means the
	// current run of the address.
	Recall(a model.Address, run model.RunID, generation uint64, q model.Query)
}

// Drainer is a worker that can stop for a while. A Worker may also be a Drainer.
type Drainer interface {
	// Drain makes the worker start nothing new, and give back each run as soon as no step of the
	// run is running.
	Drain()
	// Resume undoes Drain.
	Resume()
}

// Survivor is a Worker that outlives the server that gives it runs. A restarted server gives the
// same runs to the worker again, so the worker keeps the bodies that still run.
type Survivor interface {
	Worker
	// Lose takes away a run whose owner has lost the session with the worker. The worker keeps the
	// bodies that run, and the outcomes that the owner has not delivered back. If the worker gets
	// the same run again, it continues with them.
	Lose(run model.RunID, generation uint64)
}

// Keeper is a Survivor that knows what it keeps.
type Keeper interface {
	Survivor
	// Keeps reports whether the worker still has a body or an outcome of a lost run.
	Keeps(run model.RunID) bool
}

// Activation is a run that the engine gives to a worker.
type Activation = model.Activation

// Session is how a worker of workflows talks to the engine. Its methods do not wait for commits.
type Session interface {
	// Report hands in a turn. It blocks while the engine is full, and fails if the session or ctx
	// has ended. If it fails although ctx has not ended, the engine evicts the run.
	//
	// The engine answers every turn when the turn is durable, in the order of the turns. It answers
	// with Deliver if it has applied the turn and recorded events: Deliver brings these events. It
	// answers with Taken if it has applied the turn and recorded no event. It answers with Evict,
	// which says why, if the turn ended the run, is stale, or cannot be applied. One Deliver may
	// answer several turns, and an Evict answers all turns of its generation.
	//
	// The engine may use the commands of a turn until it has answered the turn. After that the
	// worker may reuse their memory.
	Report(ctx context.Context, t model.Turn) error
	// Release gives an idle run back, and the engine stores what the run waits for. If waits is
	// empty, the run could continue, but not here, because the worker is leaving. Afterwards the
	// worker gets Evict or Deliver. After Evict, the worker no longer has the run, and a later
	// event activates it again. Deliver means that there was news, and the worker keeps the run.
	Release(run model.RunID, generation uint64, seen int64, waits []model.Reason)
	// Answer hands in the answer of the code to a query, or the reason why there is no answer.
	Answer(run model.RunID, generation, id uint64, out model.Payload, f *model.Failure)
	// Leave refuses new work, waits until the worker has handed back every run, and ends the
	// session.
	Leave(ctx context.Context) error
}

// Withdrawer refuses new work before a worker leaves. A Session or an EntitySession may also be a
// Withdrawer.
type Withdrawer interface {
	// Withdraw makes this node give the worker nothing new. When it returns, the worker holds
	// everything that this node has given it, unless ctx has ended first. The worker keeps what it
	// holds, and must still leave.
	Withdraw(ctx context.Context)
}

// Gate lets attempts of inline steps through limits and breakers. A Session may also be a Gate.
type Gate interface {
	// Pass calls begin when the limits and the breaker in spec let the attempt start. The attempt
	// holds its permits until EndPass.
	Pass(ref model.TaskRef, spec *model.TaskSpec, input *model.Payload, begin func())
	// EndPass reports the result of the attempt, or that the attempt will not start.
	EndPass(ref model.TaskRef, spec *model.TaskSpec, how model.Passage, retryAfter time.Duration)
	// HeldBackBy says which limit or breaker an attempt waits for.
	HeldBackBy(ref model.TaskRef) (model.Reason, bool)
}

// Offer says what a worker can run.
type Offer = model.Offer
