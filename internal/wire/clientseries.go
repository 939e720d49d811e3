package wire

import (
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// SeriesRequest builds the message that asks what happened in the last hour.
func SeriesRequest(r api.SeriesRequest) *pb.SeriesRequest {
	return &pb.SeriesRequest{Step: int64(r.Step), Levels: r.Levels}
}

// ReadSeriesRequest reads the question what happened in the last hour.
func ReadSeriesRequest(tenant string, r *pb.SeriesRequest) (api.SeriesRequest, error) {
	return api.SeriesRequest{Tenant: tenant, Step: time.Duration(r.GetStep()), Levels: r.GetLevels()}, nil
}

// SeriesReply builds the message with the numbers of the last hour, by time.
func SeriesReply(s api.Series) *pb.SeriesReply {
	return &pb.SeriesReply{
		From: int64(s.From), Step: int64(s.Step), Partial: s.Partial, Lines: each(s.Lines, seriesLine),
		Queues: each(s.Queues, seriesOf), Limits: each(s.Limits, seriesOf), Cut: s.Cut,
		Nodes: each(s.Nodes, func(n api.SeriesNode) *pb.SeriesNode {
			return &pb.SeriesNode{Node: node(n.Node), Answered: n.Answered, Since: int64(n.Since)}
		}),
	}
}

// ReadSeriesReply reads the numbers of the last hour.
func ReadSeriesReply(tenant string, r *pb.SeriesReply) (out api.Series, err error) {
	out = api.Series{
		From: model.Time(r.GetFrom()), Step: time.Duration(r.GetStep()), Partial: r.GetPartial(), Lines: each(r.GetLines(), readSeriesLine),
		Queues: each(r.GetQueues(), readSeriesOf), Limits: each(r.GetLimits(), readSeriesOf), Cut: r.GetCut(),
	}
	out.Nodes, err = readEach(tenant, r.GetNodes(), func(_ string, n *pb.SeriesNode) (api.SeriesNode, error) {
		id, err := readNode(n.GetNode())
		return api.SeriesNode{Node: id, Answered: n.GetAnswered(), Since: model.Time(n.GetSince())}, err
	})
	return out, err
}

func seriesLine(l api.SeriesLine) *pb.SeriesLine {
	return &pb.SeriesLine{Name: l.Name, Points: l.Points}
}

func readSeriesLine(l *pb.SeriesLine) api.SeriesLine {
	return api.SeriesLine{Name: l.GetName(), Points: l.GetPoints()}
}

func seriesOf(s api.SeriesOf) *pb.SeriesOf {
	return &pb.SeriesOf{Name: s.Name, Lines: each(s.Lines, seriesLine)}
}

func readSeriesOf(s *pb.SeriesOf) api.SeriesOf {
	return api.SeriesOf{Name: s.GetName(), Lines: each(s.GetLines(), readSeriesLine)}
}
