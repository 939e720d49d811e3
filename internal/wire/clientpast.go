package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// PastRequest builds the message that starts a run with the past of another run.
func PastRequest(r api.PastRequest) *pb.PastRequest {
	return &pb.PastRequest{
		Source: Target(r.Source), Key: r.Key, Before: r.Before, After: r.After, Placed: r.Placed,
		Edits: each(r.Edits, func(e api.Edit) *pb.Edit {
			return &pb.Edit{Step: e.Step, Position: e.Position, Output: Payload(e.Output)}
		}),
		Reuse: pb.ReusePolicy(r.Reuse), RequestId: r.RequestID, DryRun: r.DryRun,
	}
}

// ReadPastRequest reads a fork, a retry or a reset.
func ReadPastRequest(tenant string, r *pb.PastRequest) (out api.PastRequest, err error) {
	out = api.PastRequest{
		Key: r.GetKey(), Before: r.GetBefore(), After: r.GetAfter(), Placed: r.GetPlaced(),
		Edits: each(r.GetEdits(), func(e *pb.Edit) api.Edit {
			return api.Edit{Step: e.GetStep(), Position: e.GetPosition(), Output: ReadPayload(e.GetOutput())}
		}),
		RequestID: r.GetRequestId(), DryRun: r.GetDryRun(),
	}
	if out.Reuse, err = readReuse(r.GetReuse()); err != nil {
		return out, err
	}
	out.Source, err = ReadTarget(tenant, r.GetSource())
	return out, err
}

// PastReply builds the message that says which run was started.
func PastReply(r api.PastReply) *pb.PastReply {
	return &pb.PastReply{
		Address: optionalAddress(r.Address), Run: Run(r.Run), Status: pb.Status(r.Status), Position: r.Position, Total: r.Total,
		Blanks: HistoryEvents(r.Blanks), Added: HistoryEvents(r.Added), Again: HistoryEvents(r.Again),
	}
}

// ReadPastReply reads which run was started.
func ReadPastReply(tenant string, r *pb.PastReply) (out api.PastReply, err error) {
	out = api.PastReply{Address: readOptionalAddress(tenant, r.GetAddress()), Position: r.GetPosition(), Total: r.GetTotal()}
	if out.Run, err = ReadRun(r.GetRun()); err != nil {
		return out, err
	}
	if out.Status, err = readStatus(r.GetStatus()); err != nil {
		return out, err
	}
	if out.Blanks, err = ReadHistoryEvents(tenant, r.GetBlanks()); err != nil {
		return out, err
	}
	if out.Added, err = ReadHistoryEvents(tenant, r.GetAdded()); err != nil {
		return out, err
	}
	out.Again, err = ReadHistoryEvents(tenant, r.GetAgain())
	return out, err
}

// ImportRequest builds the message that stores a run of another store. It is the first message of
// an import, and has all events of the run. A sender may then move some of the events to later
// messages.
func ImportRequest(r api.ImportRequest) *pb.ImportRequest {
	return &pb.ImportRequest{
		Start: Start(&r.History.Start), Outcome: Outcome(&r.History.Outcome), Events: HistoryEvents(r.History.Events),
		Key: r.Key, Reuse: pb.ReusePolicy(r.Reuse), RequestId: r.RequestID, DryRun: r.DryRun,
	}
}

// ReadImportRequest reads the first message of an import.
func ReadImportRequest(tenant string, r *pb.ImportRequest) (out api.ImportRequest, err error) {
	out = api.ImportRequest{Tenant: tenant, Key: r.GetKey(), RequestID: r.GetRequestId(), DryRun: r.GetDryRun()}
	if out.Reuse, err = readReuse(r.GetReuse()); err != nil {
		return out, err
	}
	if out.History.Start, err = ReadStart(tenant, r.GetStart()); err != nil {
		return out, err
	}
	if out.History.Outcome, err = ReadOutcome(r.GetOutcome()); err != nil {
		return out, err
	}
	out.History.Events, err = ReadHistoryEvents(tenant, r.GetEvents())
	return out, err
}

// DeleteRequest builds the message that removes an execution. The message does not contain the
// writer of an export. It only says whether there is such a writer.
func DeleteRequest(r api.DeleteRequest) *pb.DeleteRequest {
	return &pb.DeleteRequest{Target: Target(r.Target), RequestId: r.RequestID, DryRun: r.DryRun, Force: r.Force, Export: r.Export != nil}
}

// ReadDeleteRequest reads a removal, without the writer of its export.
func ReadDeleteRequest(tenant string, r *pb.DeleteRequest) (api.DeleteRequest, error) {
	target, err := ReadTarget(tenant, r.GetTarget())
	return api.DeleteRequest{Target: target, RequestID: r.GetRequestId(), DryRun: r.GetDryRun(), Force: r.GetForce()}, err
}

// DeleteReply builds the message that names the runs that were removed.
func DeleteReply(r api.DeleteReply) *pb.DeleteReply {
	return &pb.DeleteReply{Runs: each(r.Runs, func(id model.RunID) []byte { return id[:] })}
}

// ReadDeleteReply reads which runs were removed.
func ReadDeleteReply(_ string, r *pb.DeleteReply) (out api.DeleteReply, err error) {
	out.Runs, err = readRuns(r.GetRuns())
	return out, err
}
