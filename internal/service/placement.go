package service

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Shards lists the shards with their owners, and with the nodes that should own them.
func (a *Admin) Shards(ctx context.Context) ([]api.ShardInfo, error) {
	view, err := a.store.Members(ctx)
	if err != nil {
		return nil, err
	}

	epochs := map[model.NodeID]int64{}
	for i := range view.Members {
		epochs[view.Members[i].ID] = view.Members[i].Epoch
	}
	list, layout, database := make([]api.ShardInfo, len(view.Owners)), view.Layout(), databases(a.store.Info())
	for i, o := range view.Owners {
		group := layout.GroupOf(o.Shard)
		list[i] = api.ShardInfo{Shard: o.Shard, Group: group, Database: database[group]}
		// A shard of a node that is gone has no owner until another node takes it.
		if epoch, ok := epochs[o.Node]; ok && epoch == o.Epoch {
			list[i].Owner, list[i].Target = o.Node, o.Node
		}
	}
	for _, m := range cluster.Plan(&view) {
		list[m.Shard].Target = m.To
	}

	return list, nil
}

// databases returns the databases that hold shard groups, by group.
func databases(info store.Info) map[string]string {
	of := map[string]string{}
	for _, d := range info.Databases {
		for _, group := range d.Groups {
			of[group] = d.Name
		}
	}
	return of
}

// DrainNode asks a node to hand its shards over, or withdraws that request.
func (a *Admin) DrainNode(ctx context.Context, r api.NodeDrain) error {
	if a.engine == nil {
		return errReadOnly("drain a node")
	}
	view, err := a.store.Members(ctx)
	if err != nil {
		return err
	}
	known := slices.ContainsFunc(view.Members, func(m store.Member) bool { return m.ID == r.Node })
	if known && !r.Undo {
		if why := cluster.MayDrain(&view, r.Node); why != "" {
			return fault.WithHint(fault.New(fault.Conflict, "drain node %s: %s", r.Node, why), "see perdure cluster nodes")
		}
	}

	// Each node checks again with its own view whether other nodes can take its shards. It keeps
	// its shards as long as no other node can take them.
	found, err := a.store.SetDrained(ctx, r.Node, !r.Undo)
	if err != nil {
		return err
	}
	if !found {
		return fault.WithHint(fault.New(fault.NotFound, "there is no node %s", r.Node), "see perdure cluster nodes; a node gets another id when it starts again")
	}
	a.engine.Rebalance()
	return nil
}

// Rebalance makes all nodes check immediately whether shards should move.
func (a *Admin) Rebalance(context.Context) error {
	if a.engine == nil {
		return errReadOnly("rebalance")
	}
	a.engine.Rebalance()
	return nil
}

// errReadOnly refuses a request that a process which only reads the store cannot serve.
func errReadOnly(what string) error {
	return fault.New(fault.Denied, "%s: the store is open for reading only", what)
}
