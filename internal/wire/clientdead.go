package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// DeadID builds the message that names a dead task.
func DeadID(id api.DeadID) *pb.DeadID {
	return &pb.DeadID{Shard: uint32(id.Shard), Run: Run(id.Run), Task: id.Task}
}

// ReadDeadID reads the name of a dead task.
func ReadDeadID(tenant string, id *pb.DeadID) (out api.DeadID, err error) {
	out = api.DeadID{Tenant: tenant, Task: id.GetTask()}
	if out.Shard, err = readShard(id.GetShard()); err != nil {
		return out, err
	}
	out.Run, err = ReadRun(id.GetRun())
	return out, err
}

// DeadTaskRequest builds the message that asks for a dead task.
func DeadTaskRequest(id api.DeadID) *pb.DeadTaskRequest { return &pb.DeadTaskRequest{Id: DeadID(id)} }

// ReadDeadTaskRequest reads the name of the requested dead task.
func ReadDeadTaskRequest(tenant string, r *pb.DeadTaskRequest) (api.DeadID, error) {
	return ReadDeadID(tenant, r.GetId())
}

// ListDeadRequest builds the message that selects dead tasks.
func ListDeadRequest(r api.DeadRequest) *pb.ListDeadRequest {
	return &pb.ListDeadRequest{
		Activities: r.Activities, Queues: r.Queues, Fingerprint: r.Fingerprint, From: int64(r.From), To: int64(r.To), Requeued: r.Requeued,
		Limit: int64(r.Limit), Cursor: r.Cursor,
	}
}

// ReadListDeadRequest reads a selection of dead tasks.
func ReadListDeadRequest(tenant string, r *pb.ListDeadRequest) (api.DeadRequest, error) {
	return api.DeadRequest{
		Tenant: tenant, Activities: r.GetActivities(), Queues: r.GetQueues(), Fingerprint: r.GetFingerprint(), From: model.Time(r.GetFrom()),
		To: model.Time(r.GetTo()), Requeued: r.Requeued, Limit: int(r.GetLimit()), Cursor: r.GetCursor(),
	}, nil
}

// DeadTask builds the message for a task that failed permanently.
func DeadTask(d api.DeadTask) *pb.DeadTask {
	b := &d.Body
	return &pb.DeadTask{
		Id: DeadID(d.ID), Requeued: d.Requeued, Address: Address(b.Address), Spec: TaskSpec(&b.Spec), Input: Payload(b.Input), Scheduled: int64(b.Scheduled),
		At: int64(b.At), Attempts: int64(b.Attempts), LeftOut: int64(b.LeftOut), Failure: Failure(b.Failure), Fingerprint: text(b.Fingerprint),
		Failed: each(b.Failed, func(a model.FailedAttempt) *pb.FailedAttempt {
			return &pb.FailedAttempt{Attempt: int64(a.Attempt), At: int64(a.At), Worker: text(a.Worker), Failure: Failure(&a.Failure)}
		}),
		RequeuedAt: int64(b.Requeued.At), RequeuedAddress: optionalAddress(b.Requeued.Address), RequeuedRun: Run(b.Requeued.Run),
	}
}

// ReadDeadTask reads a dead task.
func ReadDeadTask(tenant string, d *pb.DeadTask) (out api.DeadTask, err error) {
	out = api.DeadTask{Requeued: d.GetRequeued(), Body: model.DeadTask{
		Address: ReadAddress(tenant, d.GetAddress()), Input: ReadPayload(d.GetInput()), Scheduled: model.Time(d.GetScheduled()), At: model.Time(d.GetAt()),
		Attempts: int(d.GetAttempts()), LeftOut: int(d.GetLeftOut()), Failure: ReadFailure(d.GetFailure()), Fingerprint: d.GetFingerprint(),
		Failed: each(d.GetFailed(), func(a *pb.FailedAttempt) model.FailedAttempt {
			attempt := model.FailedAttempt{Attempt: int(a.GetAttempt()), At: model.Time(a.GetAt()), Worker: a.GetWorker()}
			if f := ReadFailure(a.GetFailure()); f != nil {
				attempt.Failure = *f
			}
			return attempt
		}),
		Requeued: model.Requeue{At: model.Time(d.GetRequeuedAt()), Address: readOptionalAddress(tenant, d.GetRequeuedAddress())},
	}}

	if out.ID, err = ReadDeadID(tenant, d.GetId()); err != nil {
		return out, err
	}
	if out.Body.Requeued.Run, err = ReadRun(d.GetRequeuedRun()); err != nil {
		return out, err
	}
	spec, err := ReadTaskSpec(tenant, d.GetSpec())
	if spec != nil {
		out.Body.Spec = *spec
	}
	return out, err
}

// DeadPage builds the message for one page of dead tasks.
func DeadPage(p api.DeadPage) *pb.DeadPage {
	return &pb.DeadPage{Tasks: each(p.Tasks, DeadTask), Cursor: p.Cursor}
}

// ReadDeadPage reads a page of dead tasks.
func ReadDeadPage(tenant string, p *pb.DeadPage) (out api.DeadPage, err error) {
	out.Cursor = p.GetCursor()
	out.Tasks, err = readEach(tenant, p.GetTasks(), ReadDeadTask)
	return out, err
}

// DeadGroups builds the message with groups of dead tasks that failed in the same way.
func DeadGroups(gs []api.DeadGroup) *pb.DeadGroups {
	return &pb.DeadGroups{Groups: each(gs, func(g api.DeadGroup) *pb.DeadGroup {
		return &pb.DeadGroup{
			Activity: g.Activity, Fingerprint: text(g.Fingerprint), Count: g.Count, First: int64(g.First), Last: int64(g.Last), Message: text(g.Message),
		}
	})}
}

// ReadDeadGroups reads groups of dead tasks.
func ReadDeadGroups(_ string, gs *pb.DeadGroups) ([]api.DeadGroup, error) {
	return each(gs.GetGroups(), func(g *pb.DeadGroup) api.DeadGroup {
		return api.DeadGroup{
			Activity: g.GetActivity(), Fingerprint: g.GetFingerprint(), Count: g.GetCount(), First: model.Time(g.GetFirst()), Last: model.Time(g.GetLast()),
			Message: g.GetMessage(),
		}
	}), nil
}

// RequeueRequest builds the message that schedules a dead task again.
func RequeueRequest(r api.RequeueRequest) *pb.RequeueRequest {
	out := &pb.RequeueRequest{Id: DeadID(r.ID), Again: r.Again, RequestId: r.RequestID, DryRun: r.DryRun}
	if r.Input != nil { // an empty input is not the same as none
		out.Input = &pb.Payload{Data: r.Input.Data, Encoding: r.Input.Encoding}
	}
	return out
}

// ReadRequeueRequest reads a requeue.
func ReadRequeueRequest(tenant string, r *pb.RequeueRequest) (api.RequeueRequest, error) {
	id, err := ReadDeadID(tenant, r.GetId())
	out := api.RequeueRequest{ID: id, Again: r.GetAgain(), RequestID: r.GetRequestId(), DryRun: r.GetDryRun()}
	if p := r.GetInput(); p != nil {
		input := ReadPayload(p)
		out.Input = &input
	}
	return out, err
}

// RequeueReply builds the message that names the task that the requeue has created or found.
func RequeueReply(r api.RequeueReply) *pb.RequeueReply {
	return &pb.RequeueReply{Address: optionalAddress(r.Address), Run: Run(r.Run), Existing: r.Existing}
}

// ReadRequeueReply reads the task that the requeue has created or found.
func ReadRequeueReply(tenant string, r *pb.RequeueReply) (api.RequeueReply, error) {
	run, err := ReadRun(r.GetRun())
	return api.RequeueReply{Address: readOptionalAddress(tenant, r.GetAddress()), Run: run, Existing: r.GetExisting()}, err
}

// UndoRequeueRequest builds the message that undoes a requeue.
func UndoRequeueRequest(r api.UndoRequest) *pb.UndoRequeueRequest {
	return &pb.UndoRequeueRequest{Id: DeadID(r.ID), RequestId: r.RequestID}
}

// ReadUndoRequeueRequest reads which requeue to undo.
func ReadUndoRequeueRequest(tenant string, r *pb.UndoRequeueRequest) (api.UndoRequest, error) {
	id, err := ReadDeadID(tenant, r.GetId())
	return api.UndoRequest{ID: id, RequestID: r.GetRequestId()}, err
}
