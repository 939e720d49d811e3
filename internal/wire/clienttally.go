package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// TallyRequest builds the message that counts executions.
func TallyRequest(r api.TallyRequest) *pb.TallyRequest {
	return &pb.TallyRequest{Select: ListRequest(r.ListRequest), ByWorkflow: r.ByWorkflow, ByStatus: r.ByStatus, ByReason: r.ByReason, Bound: int64(r.Bound)}
}

// ReadTallyRequest reads a request to count executions.
func ReadTallyRequest(tenant string, r *pb.TallyRequest) (out api.TallyRequest, err error) {
	out = api.TallyRequest{ByWorkflow: r.GetByWorkflow(), ByStatus: r.GetByStatus(), ByReason: r.GetByReason(), Bound: int(r.GetBound())}
	out.ListRequest, err = ReadListRequest(tenant, r.GetSelect())
	return out, err
}

// TallyReply builds the message for a count that stops at a bound.
func TallyReply(t api.Tally) *pb.TallyReply {
	return &pb.TallyReply{Count: t.Count, AtLeast: t.AtLeast, Others: t.Others, Groups: each(t.Groups, func(g api.TallyGroup) *pb.TallyGroup {
		return &pb.TallyGroup{Workflow: g.Workflow, Status: pb.Status(g.Status), Reason: string(g.Reason), Count: g.Count}
	})}
}

// ReadTallyReply reads a count.
func ReadTallyReply(tenant string, r *pb.TallyReply) (t api.Tally, err error) {
	t = api.Tally{Count: r.GetCount(), AtLeast: r.GetAtLeast(), Others: r.GetOthers()}
	t.Groups, err = readEach(tenant, r.GetGroups(), func(_ string, g *pb.TallyGroup) (out api.TallyGroup, err error) {
		out = api.TallyGroup{Workflow: g.GetWorkflow(), Reason: model.ReasonCode(g.GetReason()), Count: g.GetCount()}
		out.Status, err = readStatus(g.GetStatus())
		return out, err
	})
	return t, err
}
