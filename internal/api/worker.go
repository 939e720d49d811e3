package api

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Worker runs the code of workflows. The engine calls it; no method may block.
//
// For each run that it holds, the worker gets one Activate, then Deliver calls in the order of the
// history without a gap, and finally one Evict, unless the worker itself ended it by a turn that
// closes, blocks or releases the run. All calls for a run name the generation of its activation;
// calls of other generations must be ignored.
type Worker interface {
	// Activate hands a run over, with its whole history so far.
	Activate(a Activation)
	// Deliver brings the events that follow, all of them committed: news from outside, and the
	// worker's own outcomes come back the same way. The worker answers what is news
	// (model.EventKind.News) with a turn that has seen it, unless the one that took it for granted
	// did.
	Deliver(run model.RunID, generation uint64, events []model.Event)
	// Retry tells that the back-off of a step is over.
	Retry(run model.RunID, generation uint64, id string)
	// Evict takes a run back: it was closed, moved to another owner, or cannot go on here. Running
	// steps may finish; their outcome is dropped.
	Evict(run model.RunID, generation uint64, reason string)
	// Query asks the code of a run, after everything that was delivered before. The worker answers
	// by Session.Answer, unless it no longer holds the run.
	Query(run model.RunID, generation uint64, q model.Query)
	// Recall asks the code about a run that has ended and that no worker holds. The worker reads
	// its history, replays it and answers by Session.Answer. Without a run, it means the current
	// run of the address.
	Recall(a model.Address, run model.RunID, generation uint64, q model.Query)
}

// Activation is a run handed to a worker.
type Activation = model.Activation

// Session is what a worker may do. Methods do not wait for the commit.
type Session interface {
	// Report hands in a turn. What it records comes back through Deliver once it is committed.
	// Report blocks while the engine is full and fails when the session or ctx has ended; the run
	// is then evicted.
	Report(ctx context.Context, t model.Turn) error
	// Release gives a parked run back because it idles: the engine stores what it waits for.
	// Without waits, the run could go on, but not here: the worker leaves. Afterwards the worker
	// gets either Evict (it is gone; a later event activates it anew) or Deliver (there was news;
	// it stays).
	Release(run model.RunID, generation uint64, seen int64, waits []model.Reason)
	// Answer hands in what the code answered to a query, or why it could not.
	Answer(run model.RunID, generation, id uint64, out model.Payload, f *model.Failure)
	// Leave stops the flow of new work, waits until every run of the worker is handed back, and
	// ends the session.
	Leave(ctx context.Context) error
}

// Gate lets attempts of inline steps through limits and breakers. A Session may be one.
type Gate interface {
	// Pass calls begin once the limits and the breaker in spec let the attempt begin. The attempt
	// holds its permits until EndPass.
	Pass(ref model.TaskRef, spec *model.TaskSpec, input *model.Payload, begin func())
	// EndPass reports the result of the attempt, or that it will not begin.
	EndPass(ref model.TaskRef, spec *model.TaskSpec, how model.Passage, retryAfter time.Duration)
	// HeldBackBy says what a waiting attempt waits for.
	HeldBackBy(ref model.TaskRef) (model.Reason, bool)
}

// Offer says what a worker can run.
type Offer = model.Offer
