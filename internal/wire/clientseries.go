package wire

import (
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// SeriesRequest asks what happened in the last hour.
func SeriesRequest(r api.SeriesRequest) *pb.SeriesRequest {
	return &pb.SeriesRequest{Step: int64(r.Step)}
}

// ReadSeriesRequest reads the question what happened in the last hour.
func ReadSeriesRequest(tenant string, r *pb.SeriesRequest) (api.SeriesRequest, error) {
	return api.SeriesRequest{Tenant: tenant, Step: time.Duration(r.GetStep())}, nil
}

// SeriesReply has numbers by time.
func SeriesReply(s api.Series) *pb.SeriesReply {
	return &pb.SeriesReply{
		From: int64(s.From), Step: int64(s.Step), Partial: s.Partial,
		Lines: each(s.Lines, func(l api.SeriesLine) *pb.SeriesLine { return &pb.SeriesLine{Name: l.Name, Points: l.Points} }),
		Nodes: each(s.Nodes, func(n api.SeriesNode) *pb.SeriesNode {
			return &pb.SeriesNode{Node: node(n.Node), Answered: n.Answered, Since: int64(n.Since)}
		}),
	}
}

// ReadSeriesReply reads numbers by time.
func ReadSeriesReply(tenant string, r *pb.SeriesReply) (out api.Series, err error) {
	out = api.Series{
		From: model.Time(r.GetFrom()), Step: time.Duration(r.GetStep()), Partial: r.GetPartial(),
		Lines: each(r.GetLines(), func(l *pb.SeriesLine) api.SeriesLine { return api.SeriesLine{Name: l.GetName(), Points: l.GetPoints()} }),
	}
	out.Nodes, err = readEach(tenant, r.GetNodes(), func(_ string, n *pb.SeriesNode) (api.SeriesNode, error) {
		id, err := readNode(n.GetNode())
		return api.SeriesNode{Node: id, Answered: n.GetAnswered(), Since: model.Time(n.GetSince())}, err
	})
	return out, err
}
