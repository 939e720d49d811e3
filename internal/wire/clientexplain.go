package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// ExplainRequest builds the message that asks why an execution makes no progress.
func ExplainRequest(r api.ExplainRequest) *pb.ExplainRequest {
	return &pb.ExplainRequest{Target: Target(r.Target), Depth: int64(r.Depth)}
}

// ReadExplainRequest reads the question why an execution makes no progress.
func ReadExplainRequest(tenant string, r *pb.ExplainRequest) (api.ExplainRequest, error) {
	t, err := ReadTarget(tenant, r.GetTarget())
	return api.ExplainRequest{Target: t, Depth: int(r.GetDepth())}, err
}

// Explanation builds the message for a graph that shows which things wait for which other things.
func Explanation(g api.Explanation) *pb.Explanation {
	return &pb.Explanation{
		Nodes: each(g.Nodes, explainedNode), Cut: g.Cut, Alive: each(g.Alive, text),
		Edges: each(g.Edges, func(e api.ExplainedEdge) *pb.ExplainedEdge {
			return &pb.ExplainedEdge{From: int64(e.From), To: int64(e.To), Reason: int64(e.Reason)}
		}),
	}
}

func explainedNode(n api.ExplainedNode) *pb.ExplainedNode {
	return &pb.ExplainedNode{
		Of: reference(n.Of), Run: Run(n.Run), Status: pb.Status(n.Status), Reasons: each(n.Reasons, Reason), Unknown: text(n.Unknown),
	}
}

func reference(r model.Reference) *pb.Reference {
	out := &pb.Reference{Kind: r.Kind, Name: text(r.Name)}
	if !r.Address.IsZero() {
		out.Address = Address(r.Address)
	}
	return out
}

// ReadExplanation reads such a graph.
func ReadExplanation(tenant string, g *pb.Explanation) (out api.Explanation, err error) {
	out = api.Explanation{Cut: g.GetCut(), Alive: g.GetAlive(), Edges: each(g.GetEdges(), func(e *pb.ExplainedEdge) api.ExplainedEdge {
		return api.ExplainedEdge{From: int(e.GetFrom()), To: int(e.GetTo()), Reason: int(e.GetReason())}
	})}
	out.Nodes, err = readEach(tenant, g.GetNodes(), readExplainedNode)
	return out, err
}

func readExplainedNode(tenant string, n *pb.ExplainedNode) (out api.ExplainedNode, err error) {
	out.Of = model.Reference{Kind: n.GetOf().GetKind(), Name: n.GetOf().GetName()}
	if a := n.GetOf().GetAddress(); a != nil {
		out.Of.Address = ReadAddress(tenant, a)
	}
	out.Unknown = n.GetUnknown()
	if out.Run, err = ReadRun(n.GetRun()); err != nil {
		return out, err
	}
	if out.Status, err = readStatus(n.GetStatus()); err != nil {
		return out, err
	}
	out.Reasons, err = readEach(tenant, n.GetReasons(), ReadReason)
	return out, err
}
