package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// BatchRequest builds the message that starts a batch job.
func BatchRequest(r api.BatchRequest) *pb.BatchRequest {
	return &pb.BatchRequest{
		Id: r.ID, RequestId: r.RequestID, Verb: r.Verb, Query: r.Query, Reason: r.Reason, Signal: r.Signal, Input: Payload(r.Input),
		Before: r.Before, After: r.After, Placed: r.Placed, DryRun: r.DryRun,
	}
}

// ReadBatchRequest reads the start of a batch job.
func ReadBatchRequest(tenant string, r *pb.BatchRequest) (api.BatchRequest, error) {
	return api.BatchRequest{
		Tenant: tenant, ID: r.GetId(), RequestID: r.GetRequestId(), Verb: r.GetVerb(), Query: r.GetQuery(), Reason: r.GetReason(), Signal: r.GetSignal(),
		Input: ReadPayload(r.GetInput()), Before: r.GetBefore(), After: r.GetAfter(), Placed: r.GetPlaced(), DryRun: r.GetDryRun(),
	}, nil
}

// BatchTarget builds the message that names a batch job.
func BatchTarget(t api.BatchTarget) *pb.BatchTarget {
	return &pb.BatchTarget{Id: t.ID, Reason: t.Reason, RequestId: t.RequestID}
}

// ReadBatchTarget reads the name of a batch job.
func ReadBatchTarget(tenant string, t *pb.BatchTarget) (api.BatchTarget, error) {
	return api.BatchTarget{Tenant: tenant, ID: t.GetId(), Reason: t.GetReason(), RequestID: t.GetRequestId()}, nil
}

// ListBatchesRequest builds the message that selects batch jobs.
func ListBatchesRequest(r api.BatchListRequest) *pb.ListBatchesRequest {
	return &pb.ListBatchesRequest{Open: r.Open, Limit: int64(r.Limit), Cursor: r.Cursor}
}

// ReadListBatchesRequest reads a selection of batch jobs.
func ReadListBatchesRequest(tenant string, r *pb.ListBatchesRequest) (api.BatchListRequest, error) {
	return api.BatchListRequest{Tenant: tenant, Open: r.GetOpen(), Limit: int(r.GetLimit()), Cursor: r.GetCursor()}, nil
}

// Batch builds the message for a batch job.
func Batch(b api.Batch) *pb.BatchJob {
	p := &b.Progress
	return &pb.BatchJob{
		Id: b.ID, Verb: b.Verb, Query: b.Query, Selects: b.Selects, Reason: b.Reason, Signal: b.Signal, By: text(b.By), Started: int64(b.Started), Ended: int64(b.Ended),
		Status: pb.Status(b.Status), Failure: Failure(b.Failure), Reasons: each(b.Reasons, Reason),
		Progress: &pb.BatchProgress{
			Matched: p.Matched, Done: p.Done, Skipped: p.Skipped, Failed: p.Failed,
			Errors: each(p.Errors, func(e api.BatchError) *pb.BatchError {
				return &pb.BatchError{Workflow: e.Workflow, Key: e.Key, Run: Run(e.Run), Kind: e.Kind, Text: text(e.Text)}
			}),
		},
	}
}

// ReadBatch reads a batch job.
func ReadBatch(tenant string, b *pb.BatchJob) (out api.Batch, err error) {
	p := b.GetProgress()
	out = api.Batch{
		ID: b.GetId(), Verb: b.GetVerb(), Query: b.GetQuery(), Selects: b.GetSelects(), Reason: b.GetReason(), Signal: b.GetSignal(), By: b.GetBy(),
		Started: model.Time(b.GetStarted()), Ended: model.Time(b.GetEnded()), Failure: ReadFailure(b.GetFailure()),
		Progress: api.BatchProgress{Matched: p.GetMatched(), Done: p.GetDone(), Skipped: p.GetSkipped(), Failed: p.GetFailed()},
	}
	if out.Status, err = readStatus(b.GetStatus()); err != nil {
		return out, err
	}
	if out.Reasons, err = readEach(tenant, b.GetReasons(), ReadReason); err != nil {
		return out, err
	}
	out.Progress.Errors, err = readEach(tenant, p.GetErrors(), func(_ string, e *pb.BatchError) (api.BatchError, error) {
		run, err := ReadRun(e.GetRun())
		return api.BatchError{Workflow: e.GetWorkflow(), Key: e.GetKey(), Run: run, Kind: e.GetKind(), Text: e.GetText()}, err
	})
	return out, err
}

// BatchPage builds the message for a page of batch jobs.
func BatchPage(p api.BatchPage) *pb.BatchPage {
	return &pb.BatchPage{Batches: each(p.Batches, Batch), Cursor: p.Cursor}
}

// ReadBatchPage reads a page of batch jobs.
func ReadBatchPage(tenant string, p *pb.BatchPage) (out api.BatchPage, err error) {
	out.Cursor = p.GetCursor()
	out.Batches, err = readEach(tenant, p.GetBatches(), ReadBatch)
	return out, err
}
