package restapi

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
)

type graphInput struct {
	TargetPath

	Depth int `query:"depth" minimum:"1" maximum:"32" default:"8" doc:"How many edges the graph follows from the execution"`
}

// graph has nodes that wait for each other.
type graph struct {
	Nodes []graphNode `json:"nodes" doc:"The nodes; the first one is the execution"`
	Edges []graphEdge `json:"edges"`
	Cut   bool        `json:"cut" doc:"Whether the graph was cut at the depth, at 200 nodes or at 1,000 edges"`
	Alive []string    `json:"alive" doc:"Which code the live processes have, if code is missing"`
}

// reference names something.
type reference struct {
	Kind     string `json:"kind" enum:"execution,entity,limit,breaker,queue,code,shard,signal,promise,update,step"`
	Workflow string `json:"workflow,omitempty" doc:"The workflow of an execution"`
	Entity   string `json:"entity,omitempty" doc:"The name of an entity; for a service, the text service: followed by its name"`
	Key      string `json:"key,omitempty"`
	Name     string `json:"name,omitempty" doc:"The name of anything else"`
}

func referenceOf(r *model.Reference) reference {
	o := reference{Kind: r.Kind, Key: r.Address.Key, Name: r.Name}
	switch r.Kind {
	case model.RefExecution:
		o.Workflow = r.Address.Type
	case model.RefEntity:
		o.Entity = entityWord(r.Address.Type)
	}
	return o
}

// graphNode is something that waits, or something that other nodes wait for.
type graphNode struct {
	Of      reference `json:"of"`
	Run     string    `json:"run,omitempty"`
	Status  string    `json:"status,omitempty" doc:"The status of an execution"`
	Reasons []reason  `json:"reasons" doc:"Why it makes no progress, the main reason first"`
	Unknown string    `json:"unknown,omitempty" doc:"Why nothing else is known about it"`
}

// graphEdge says that one node waits for another.
type graphEdge struct {
	From   int  `json:"from" doc:"The node that waits, by its position in nodes"`
	To     int  `json:"to"`
	Reason *int `json:"reason,omitempty" doc:"The reason of the waiting node, by its position in reasons"`
	HeldBy bool `json:"held_by,omitempty" doc:"Whether the waiting node is an entity that the other node has locked"`
}

func (s *Server) explainGraph(ctx context.Context, who *authn.Identity, in *graphInput) (*reply[graph], error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	got, err := s.config.Backend.Explain(ctx, api.ExplainRequest{Target: t, Depth: in.Depth})
	if err != nil {
		return nil, err
	}
	g := graph{Nodes: each(got.Nodes, graphNodeOf), Cut: got.Cut, Alive: append([]string{}, got.Alive...)}
	g.Edges = each(got.Edges, func(e *api.ExplainedEdge) graphEdge {
		if e.Reason == api.HeldBy {
			return graphEdge{From: e.From, To: e.To, HeldBy: true}
		}
		return graphEdge{From: e.From, To: e.To, Reason: &e.Reason}
	})
	return ok(g)
}

func graphNodeOf(n *api.ExplainedNode) graphNode {
	o := graphNode{Of: referenceOf(&n.Of), Reasons: each(n.Reasons, reasonOf), Unknown: n.Unknown}
	if !n.Run.IsZero() {
		o.Run = n.Run.String()
	}
	if n.Status != 0 {
		o.Status = n.Status.String()
	}
	return o
}
