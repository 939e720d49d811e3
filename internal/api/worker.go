package api

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Worker runs the code of workflows. The engine calls it; no method may block.
//
// For each run, the worker first gets one Activate, then Deliver calls in the order of the history
// without a gap, and finally one Evict. There is no Evict when the worker itself ended the run by a
// turn that closes, blocks or releases it. All calls for a run name the generation of its
// activation; the worker must ignore calls of other generations.
//
// A run takes one of Offer.Slots while the worker works on it. It takes the slot with Activate,
// with a Deliver that has news, or with Retry. It frees the slot with a turn that has seen the
// news, says that no body runs, and says what the run waits for. A turn that closes or blocks the
// run, and Evict, free the slot too. So a run that is in the memory of the worker and waits for a
// timer, a message, a child or a queued task takes no slot, and neither do Query and Recall. The
// engine never takes more slots than the worker offers, except for what the worker holds already: a
// run that it brings along when it joins, and a run that it was about to lose when a commit failed.
// Without a free slot, a run goes to another worker, or waits with the reason model.WaitSlot.
type Worker interface {
	// Activate gives the worker a run, with its whole history so far. The worker may keep a. It
	// changes neither a nor the events, which the engine shares.
	Activate(a *Activation)
	// Deliver brings the committed events that follow: news from outside, and the outcomes that the
	// worker itself reported. The worker answers news (model.EventKind.News) with a turn that has
	// seen it, unless an earlier turn already assumed it.
	Deliver(run model.RunID, generation uint64, events []model.Event)
	// Retry says that the back-off of a step is over.
	Retry(run model.RunID, generation uint64, id string)
	// Evict takes a run from the worker: it was closed, moved to another owner, or cannot continue
	// here. Running steps may finish; the engine drops their outcome.
	Evict(run model.RunID, generation uint64, reason string)
	// Taken answers a turn that recorded no event: only waits, timers, or that the run is blocked.
	// The turn is applied, and durable as far as it had something to store.
	Taken(run model.RunID, generation uint64)
	// Query asks the code of a run for information, after all events delivered before. The worker
	// answers with Session.Answer, unless it no longer holds the run.
	Query(run model.RunID, generation uint64, q model.Query)
	// Recall asks the code about a run that has ended and that no worker holds. The worker reads
	// its history, replays it and answers with Session.Answer. A zero run means the current run of
	// the address.
	Recall(a model.Address, run model.RunID, generation uint64, q model.Query)
}

// Drainer is a worker that can stop for a while. A Worker may be one.
type Drainer interface {
	// Drain makes the worker start nothing new and give back every run as soon as none of its steps
	// is running.
	Drain()
	// Resume undoes Drain.
	Resume()
}

// Survivor is a Worker that outlives its owner. A server that was restarted hands the same runs out
// again, so the worker keeps what still runs.
type Survivor interface {
	Worker
	// Lose takes away a run whose owner has lost the session with the worker. The worker keeps the
	// bodies that run, and the outcomes that the owner has not delivered back. If it gets the same
	// run again, it goes on with them.
	Lose(run model.RunID, generation uint64)
}

// Activation is a run that the engine gives to a worker.
type Activation = model.Activation

// Session is how a worker of workflows talks to the engine. Its methods do not wait for commits.
type Session interface {
	// Report hands in a turn. It blocks while the engine is full, and fails when the session or ctx
	// has ended; the engine then evicts the run.
	//
	// The engine answers every turn when it is durable, in the order of the turns. It answers with
	// Deliver if it has applied the turn and recorded events: Deliver brings these events. It
	// answers with Taken if it has applied the turn and recorded no event. It answers with Evict,
	// which says why, if the turn ended the run, is stale, or cannot be applied. One Deliver may
	// answer several turns, and an Evict answers all turns of its generation.
	//
	// The engine may use the commands of a turn until it has answered the turn. After that the
	// worker may reuse their memory.
	Report(ctx context.Context, t model.Turn) error
	// Release gives an idle run back, and the engine stores what it waits for. Without waits, the
	// run could continue, but not here, because the worker is leaving. Afterwards the worker gets
	// Evict (the run is gone and a later event activates it again) or Deliver (there was news, and
	// the worker keeps the run).
	Release(run model.RunID, generation uint64, seen int64, waits []model.Reason)
	// Answer hands in the answer of the code to a query, or the reason why there is none.
	Answer(run model.RunID, generation, id uint64, out model.Payload, f *model.Failure)
	// Leave refuses new work, waits until the worker has handed back every run, and ends the
	// session.
	Leave(ctx context.Context) error
}

// Gate lets attempts of inline steps through limits and breakers. A Session may be one.
type Gate interface {
	// Pass calls begin when the limits and the breaker in spec let the attempt start. The attempt
	// holds its permits until EndPass.
	Pass(ref model.TaskRef, spec *model.TaskSpec, input *model.Payload, begin func())
	// EndPass reports the result of the attempt, or that it will not start.
	EndPass(ref model.TaskRef, spec *model.TaskSpec, how model.Passage, retryAfter time.Duration)
	// HeldBackBy says what a waiting attempt waits for.
	HeldBackBy(ref model.TaskRef) (model.Reason, bool)
}

// Offer says what a worker can run.
type Offer = model.Offer
