package service

import (
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Explain returns a graph that says why an execution makes no progress and what it depends on.
func (s *Service) Explain(ctx context.Context, r api.ExplainRequest) (api.Explanation, error) {
	depth := cmp.Or(r.Depth, api.DefaultDepth)
	if depth < 0 || depth > api.MaxDepth {
		return api.Explanation{}, fault.New(fault.Invalid, "explain: the depth is %d, must be between 1 and %d", r.Depth, api.MaxDepth)
	}
	d, err := s.Describe(ctx, r.Target)
	if err != nil {
		return api.Explanation{}, err
	}
	j, err := s.judge(ctx, r.Target.Address.Tenant)
	if err != nil {
		return api.Explanation{}, err
	}

	g := &explainer{judge: j, at: map[model.Reference]int{}}
	root := g.node(model.Reference{Kind: model.RefExecution, Address: d.Start.Address})
	n := &g.graph.Nodes[root]
	n.Run, n.Status, n.Reasons = d.Start.Run, d.Outcome.Status, d.Reasons
	for level := []int{root}; len(level) > 0; depth-- {
		next := g.follow(level)
		if depth == 0 {
			g.graph.Cut = g.graph.Cut || len(next) > 0
			g.forget(next)
			break
		}
		g.look(ctx, next)
		level = next
	}

	if ctx.Err() != nil {
		return api.Explanation{}, fault.New(fault.KindOf(ctx.Err()), "explain %s: %w", r.Target.Address, context.Cause(ctx))
	}
	g.graph.Alive = j.aliveIn(&g.graph)
	return g.graph, nil
}

// explainer builds a graph level by level, so that each owner is asked once per level.
type explainer struct {
	judge *judge
	graph api.Explanation
	at    map[model.Reference]int
	// held are the executions that have locked entities, by the entity's node in the graph.
	held map[int]model.Reference
}

// node returns the position of the node for a reference, and adds the node if necessary. It returns
// -1 when there is no room.
func (g *explainer) node(r model.Reference) int {
	if i, ok := g.at[r]; ok {
		return i
	}
	if len(g.graph.Nodes) >= api.MaxNodes {
		g.graph.Cut = true
		return -1
	}
	i := len(g.graph.Nodes)
	g.at[r], g.graph.Nodes = i, append(g.graph.Nodes, api.ExplainedNode{Of: r})
	return i
}

// follow adds what the nodes wait for, and returns the nodes that are new.
func (g *explainer) follow(level []int) (fresh []int) {
	join := func(from, reason int, to model.Reference) {
		known := len(g.graph.Nodes)
		if len(g.graph.Edges) >= api.MaxEdges {
			g.graph.Cut = true
			return
		}
		at := g.node(to)
		if at < 0 {
			return
		}
		if at == known {
			fresh = append(fresh, at)
		}
		if e := (api.ExplainedEdge{From: from, To: at, Reason: reason}); !slices.Contains(g.graph.Edges, e) {
			g.graph.Edges = append(g.graph.Edges, e)
		}
	}

	for _, from := range level {
		self := g.graph.Nodes[from].Of
		for i, r := range g.graph.Nodes[from].Reasons {
			for _, to := range r.References(g.judge.tenant) {
				if to.Stands() && to != self {
					join(from, i, to)
				}
			}
		}
		if holder, ok := g.held[from]; ok {
			join(from, api.HeldBy, holder)
		}
	}
	return fresh
}

// forget removes nodes that were added last, with their edges.
func (g *explainer) forget(last []int) {
	if len(last) == 0 {
		return
	}
	first := last[0]
	g.graph.Nodes = g.graph.Nodes[:first]
	g.graph.Edges = slices.DeleteFunc(g.graph.Edges, func(e api.ExplainedEdge) bool { return e.To >= first })
}

// look finds out why new nodes make no progress.
func (g *explainer) look(ctx context.Context, level []int) {
	var all []model.Address
	for _, i := range level {
		if a := g.graph.Nodes[i].Of.Address; !a.IsZero() {
			all = append(all, a)
		}
	}
	g.judge.ask(ctx, all)

	for _, i := range level {
		var err error
		switch g.graph.Nodes[i].Of.Kind {
		case model.RefExecution:
			err = g.lookExecution(ctx, i)
		case model.RefEntity:
			err = g.lookEntity(ctx, i)
		}
		if err != nil {
			g.graph.Nodes[i].Unknown = err.Error()
		}
	}
}

// lookExecution says why an execution makes no progress.
func (g *explainer) lookExecution(ctx context.Context, i int) error {
	n := &g.graph.Nodes[i]
	row, err := g.judge.service.execution(ctx, "explain", api.Target{Address: n.Of.Address})
	if err != nil {
		return err
	}
	n.Run, n.Status = row.Start.Run, row.Outcome.Status
	if row.Outcome.Status.Closed() {
		return nil
	}

	reasons, err := g.judge.run(ctx, row, nil, false)
	if err == nil {
		reasons, err = g.judge.throughEntities(ctx, &row.Start, reasons)
	}
	n.Reasons = reasons
	return err
}

// lookEntity says why the calls of an entity or a service do not run, and which section has locked
// it.
func (g *explainer) lookEntity(ctx context.Context, i int) error {
	n := &g.graph.Nodes[i]
	info, err := g.judge.whyEntity(ctx, n.Of.Address)
	if err != nil {
		return err
	}
	n.Reasons = info.Reasons
	if info.Entity.Locked() {
		if g.held == nil {
			g.held = map[int]model.Reference{}
		}
		g.held[i] = model.Reference{Kind: model.RefExecution, Address: info.Entity.Holder.Address}
	}
	return nil
}

// aliveIn lists the code of the live processes, if the graph shows an execution or entity whose
// code no process has.
func (j *judge) aliveIn(g *api.Explanation) []string {
	for i := range g.Nodes {
		d := api.Description{Reasons: g.Nodes[i].Reasons}
		if alive := j.aliveFor(&d); alive != nil {
			return alive
		}
	}
	return nil
}
