package api

import (
	"context"
	"io"

	"github.com/perdure/perdure/internal/model"
)

// Histories is what may be done with the history of a run as a whole.
type Histories interface {
	// Fork begins another execution, of the same workflow, with the past of a run. The source, open
	// or closed, is not changed. A key that is taken is AlreadyExists, unless Reuse allows it.
	Fork(ctx context.Context, r PastRequest) (PastReply, error)
	// Retry goes on with an execution that failed, was cancelled or terminated: a new run of the
	// key begins before its last failed step, which shows the outside world the same idempotency
	// key. Conflict when it is open or has completed.
	Retry(ctx context.Context, r PastRequest) (PastReply, error)
	// Reset has the current run of a key, open or closed, give way to a new one that begins from an
	// earlier place.
	Reset(ctx context.Context, r PastRequest) (PastReply, error)
	// Import stores a run of another store: one that is open goes on here, one that is closed is
	// stored with its outcome.
	Import(ctx context.Context, r ImportRequest) (PastReply, error)
	// Delete removes a closed execution with all runs of its chain, or the one run that the target
	// names. Conflict while it is open.
	Delete(ctx context.Context, r DeleteRequest) (DeleteReply, error)
}

// PastRequest begins a run with the past of another.
type PastRequest struct {
	// Source is the run that the past is taken from; for a retry or reset it must be the current
	// one.
	Source Target
	// Key of the new execution; only for a fork.
	Key string
	// Before keeps what stands before the first event of a step or child of that name; After keeps
	// the events up to a position, when Placed.
	Before string
	After  int64
	Placed bool
	// Edits change results of steps.
	Edits []Edit
	// Reuse of a key that a closed execution has; only for a fork.
	Reuse     model.ReusePolicy
	RequestID string
	// DryRun only tells what would be kept.
	DryRun bool
}

// Edit gives a step or child another result: the first one of the name, or the one whose outcome
// stands at Position.
type Edit struct {
	Step     string
	Position int64
	Output   model.Payload
}

// PastReply tells which run began, and with what.
type PastReply struct {
	Address model.Address
	Run     model.RunID // zero after a dry run
	Status  model.Status
	// Position is the last event of the source that is kept, Total how many it has.
	Position, Total int64
	// Blanks were left out of what is kept, Added were taken along from behind, Again are children
	// that are watched again.
	Blanks, Added, Again []model.Event
}

// ImportRequest stores a run of another store.
type ImportRequest struct {
	History model.History
	// Tenant that it is imported for; the history must be of the same.
	Tenant string
	// Key to store it under; that of the history when empty.
	Key       string
	Reuse     model.ReusePolicy
	RequestID string
	DryRun    bool
}

// DeleteRequest removes an execution, or one run of it.
type DeleteRequest struct {
	Target    Target
	RequestID string
	DryRun    bool
	// Force removes it whatever state it is in, also when it cannot be read. Export gets its rows
	// first, as they stand, and must be set.
	Force  bool
	Export io.Writer
}

// DeleteReply names the runs that are gone.
type DeleteReply struct {
	Runs []model.RunID
}
