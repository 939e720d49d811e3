package api

import (
	"context"
	"io"

	"github.com/perdure/perdure/internal/model"
)

// Histories has the calls that work on the whole history of a run.
type Histories interface {
	// Fork starts another execution of the same workflow with the past of a run. The source, open
	// or closed, does not change. Fork returns AlreadyExists if the key is taken, unless Reuse
	// allows that.
	Fork(ctx context.Context, r PastRequest) (PastReply, error)
	// Retry continues an execution that failed, was cancelled or was terminated. It starts a new
	// run of the key. If the execution has a cancel request, the new run keeps the history before
	// that request. Otherwise it keeps the history before the last step, child or call that failed,
	// and makes that call again. A repeated step has the same idempotency key. If nothing failed,
	// the new run keeps the whole history. Retry returns Conflict if the execution is open or has
	// completed.
	Retry(ctx context.Context, r PastRequest) (PastReply, error)
	// Reset replaces the current run of a key, open or closed, with a new run that starts from an
	// earlier position.
	Reset(ctx context.Context, r PastRequest) (PastReply, error)
	// Import stores a run of another store. An open run continues here; a closed run is stored with
	// its outcome.
	Import(ctx context.Context, r ImportRequest) (PastReply, error)
	// Delete removes a closed execution with all runs of its chain, or the one run that the target
	// names. It returns Conflict while the execution is open.
	Delete(ctx context.Context, r DeleteRequest) (DeleteReply, error)
}

// PastRequest starts a run with the past of another.
type PastRequest struct {
	// Source is the run to take the past from. A retry or a reset needs the current run.
	Source Target
	// Key is the key of the new execution; only a fork sets it.
	Key string
	// Before keeps the events before the first event of the step or child of that name. After keeps
	// the events up to a position; Placed says that After is set.
	Before string
	After  int64
	Placed bool
	// Edits change results of steps.
	Edits []Edit
	// Reuse says what to do if a closed execution has the key; only a fork sets it.
	Reuse     model.ReusePolicy
	RequestID string
	// DryRun only returns what the call would keep.
	DryRun bool
}

// Edit replaces the result of a step or child. Without a Position, Edit selects the first step or
// child of that name. With a Position, Edit selects the step or child whose outcome is at that
// position.
type Edit struct {
	Step     string
	Position int64
	Output   model.Payload
}

// PastReply names the new run and says which events it starts with.
type PastReply struct {
	Address model.Address
	Run     model.RunID // zero after a dry run
	Status  model.Status
	// Position is the place of the cut: the new run keeps the events of the source up to this
	// position. Total is how many events the source has.
	Position, Total int64
	// Blanks and Added are the exceptions. Blanks are events up to Position that the new run leaves
	// out. Added are events after Position that the new run keeps. Again has the starts of children
	// whose outcomes the new run awaits again.
	Blanks, Added, Again []model.Event
}

// ImportRequest stores a run that comes from another store.
type ImportRequest struct {
	History model.History
	// Tenant is the tenant to import for. The history must belong to the same tenant.
	Tenant string
	// Key is the key to store the run under; empty keeps the key of the history.
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
	// Force removes the execution in any state, even if it cannot be read. Force needs Export,
	// which first receives the stored rows unchanged.
	Force  bool
	Export io.Writer
}

// DeleteReply names the removed runs.
type DeleteReply struct {
	Runs []model.RunID
}
