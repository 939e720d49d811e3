package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Batches has the calls of batch jobs. A batch job applies one verb to every execution that a query
// selects. It is an execution of the workflow model.BatchType, so it survives crashes and acts on
// each execution once.
type Batches interface {
	// StartBatch starts a batch job. The caller must be allowed to apply the verb to a single
	// execution. A second call with the same id and the same request returns the batch that the
	// first call started. A different request with that id returns Conflict. A dry run starts
	// nothing and returns how many executions the query selects.
	StartBatch(ctx context.Context, r BatchRequest) (Batch, error)
	// Batch returns a batch job and its progress, or NotFound.
	Batch(ctx context.Context, r BatchTarget) (Batch, error)
	// ListBatches returns batch jobs, newest first.
	ListBatches(ctx context.Context, r BatchListRequest) (BatchPage, error)
	// CancelBatch ends a batch job after the page that it works on. It returns Conflict if the
	// batch has already ended.
	CancelBatch(ctx context.Context, r BatchTarget) error
}

// The verbs of batch jobs. Each does what the method of Client with that name does.
const (
	BatchCancel    = "cancel"
	BatchTerminate = "terminate"
	BatchSignal    = "signal"
	BatchPause     = "pause"
	BatchResume    = "resume"
	BatchRetry     = "retry"
	BatchReset     = "reset"
	BatchDelete    = "delete"
)

// BatchVerbs lists the verbs.
func BatchVerbs() []string {
	return []string{BatchCancel, BatchTerminate, BatchSignal, BatchPause, BatchResume, BatchRetry, BatchReset, BatchDelete}
}

// BatchRequest starts a batch job.
type BatchRequest struct {
	Tenant string
	// ID is the id of the batch. If it is empty, the server makes one. With a RequestID and no ID,
	// the server makes the same ID for the same RequestID.
	ID        string
	RequestID string
	// Verb is one of the constants above.
	Verb string
	// Query selects the executions. Relative times such as -24h count from the start of the batch.
	Query string
	// Reason is the reason of the batch. The batch passes it on to the executions.
	Reason string
	// Signal is the name of the signal that BatchSignal sends, and Input its value.
	Signal string
	Input  model.Payload
	// Before, After and Placed say where BatchReset starts again; see PastRequest.
	Before string
	After  int64
	Placed bool
	// DryRun starts nothing.
	DryRun bool
}

// BatchTarget names a batch job. For CancelBatch, it also has the reason.
type BatchTarget struct {
	Tenant, ID string
	Reason     string
	RequestID  string
}

// BatchListRequest selects batch jobs.
type BatchListRequest struct {
	Tenant string
	// Open selects only batches that have not ended.
	Open   bool
	Limit  int
	Cursor string // opaque, from the previous page
}

// Batch is a batch job.
type Batch struct {
	ID   string
	Verb string
	// Query is the text that the caller sent. Selects is the whole selection, with absolute times.
	Query, Selects string
	Reason         string
	Signal         string
	// By is the caller that started the batch; empty for the program itself.
	By             string
	Started, Ended model.Time
	// Status is the status of the batch; 0 for a dry run.
	Status model.Status
	// Failure is why the batch failed or was canceled.
	Failure *model.Failure
	// Reasons say why an open batch waits. Only StartBatch and Batch fill them.
	Reasons  []model.Reason
	Progress BatchProgress
}

// BatchProgress is the progress of a batch.
type BatchProgress struct {
	// Matched is how many executions the query selected when the batch started.
	Matched int64
	// Done counts the executions that the batch applied the verb to. Skipped counts executions to
	// which the verb no longer applied when their turn came: the engine answered with NotFound or
	// Conflict, for example because they had ended. Failed counts executions that refused the verb
	// for another reason, or that the batch could not reach.
	Done, Skipped, Failed int64
	// Errors are the last errors, at most MaxBatchErrors.
	Errors []BatchError
}

// MaxBatchErrors is how many errors a batch keeps.
const MaxBatchErrors = 20

// BatchError is why a batch failed for one execution.
type BatchError struct {
	Workflow, Key string
	Run           model.RunID
	Kind, Text    string
}

// BatchPage is one page of batch jobs.
type BatchPage struct {
	Batches []Batch
	Cursor  string // empty on the last page
}
