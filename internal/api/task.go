package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// TaskWorker executes tasks.
type TaskWorker = model.TaskWorker

// Beat says that a worker is alive and still executes a claim.
type Beat struct {
	Claim model.ClaimRef
	// Progress replaces what was reported before; nil when there is nothing new.
	Progress *model.Payload
}

// BeatReply is what a worker hears of a claim that it beat for.
type BeatReply struct {
	// Held tells that the claim is still its own; Canceled that it should come to an end.
	Held, Canceled bool
}

// TaskSession is what a task worker may do.
type TaskSession interface {
	// Report hands in how claims ended; it does not wait for the commit, of which Settle tells. It
	// blocks while the engine is full, and fails when the session or ctx has ended. The slot of the
	// claim is free as soon as it returns.
	Report(ctx context.Context, r model.TaskReport) error
	// Beat tells that claims are being executed. The replies are in the order of the beats.
	Beat(ctx context.Context, beats []Beat) ([]BeatReply, error)
	// Write stores what a claim writes beside the history, and returns when that is durable: all of
	// it, or nothing. NotOwned when the claim is not the worker's any more. When the outcome is not
	// known, the same write is made again: items that were written are told by their numbers, and
	// left out.
	Write(ctx context.Context, w model.TaskWrite) error
	// States reads the states of the task of a claim, those of earlier attempts included, ordered
	// by name. It shows what Write has returned for.
	States(ctx context.Context, claim model.ClaimRef) ([]TaskState, error)
	// Slots changes how many claims the worker may hold: fewer under pressure, none while it
	// drains. What it holds, it keeps.
	Slots(n int)
	// Leave ends the session once every report is settled, or when ctx ends. What is still claimed
	// then is given back without consuming an attempt.
	Leave(ctx context.Context) error
}
