package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// TaskWorker executes tasks.
type TaskWorker = model.TaskWorker

// Beat is a heartbeat: it says that a worker is alive and still executes a claim.
type Beat struct {
	Claim model.ClaimRef
	// Progress replaces the progress that the worker reported before; nil keeps it.
	Progress *model.Payload
}

// BeatReply is the engine's answer to a Beat.
type BeatReply struct {
	// Held is true while the worker has the claim. Canceled is true if the worker should end the
	// task.
	Held, Canceled bool
}

// TaskSession is how a task worker talks to the engine.
type TaskSession interface {
	// Report says how a claim ended. It does not wait for the commit. After the commit the engine
	// calls TaskWorker.Settle. Report blocks while the engine is full, and fails if the session has
	// ended. If ctx ends first, the engine still delivers the report. The slot of the claim is free
	// as soon as Report returns.
	Report(ctx context.Context, r model.TaskReport) error
	// Beat says which claims the worker still executes. The replies have the order of the beats.
	Beat(ctx context.Context, beats []Beat) ([]BeatReply, error)
	// Write stores what a claim writes next to the history: all of it, or nothing. It returns when
	// the data is durable, and returns NotOwned if the worker no longer has the claim. A caller
	// that does not know the outcome repeats the same write. The engine recognizes items that are
	// already stored by their numbers and leaves them out.
	Write(ctx context.Context, w model.TaskWrite) error
	// States reads the states of the claim's task, including states of earlier attempts, ordered by
	// name. It shows every Write that has returned.
	States(ctx context.Context, claim model.ClaimRef) ([]TaskState, error)
	// CodeEnded says that the code of a lost claim has ended, so the engine can give the permits of
	// the claim to other tasks. A worker whose offer has TellsEnd calls it for every claim that
	// it was told to stop as lost, also if the code has never started. A repetition has no effect,
	// and CodeEnded does not block.
	CodeEnded(claim model.ClaimRef)
	// Slots changes how many claims the worker may hold: fewer under pressure, none while it
	// drains. The worker keeps the claims that it has.
	Slots(n int)
	// Leave ends the session once every report is settled, or when ctx ends. Claims that remain go
	// back to the queue and consume no attempt.
	Leave(ctx context.Context) error
	// Suspend ends the session of a worker that keeps its claims, because the node stops. The
	// worker joins the next owner of the claims and brings them along. Suspend does not wait for
	// the reports that the worker has made before: the engine stores them in the background.
	Suspend()
	// Lose ends the session of a worker that has disappeared. The attempts that the worker was
	// executing are lost. Like Suspend, Lose does not wait for earlier reports.
	Lose()
}
