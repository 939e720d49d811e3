package cluster

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Move is a shard that should have another owner.
type Move struct {
	Shard model.ShardID
	// From is zero for a shard that has no owner, and To is zero if no node can take the shard.
	From, To model.NodeID
}

// Plan returns which shards of a view should move, in order. The nodes of the view make these moves
// by themselves. For each move, one node gives the shard up, and then another node takes it.
func Plan(v *store.View) (moves []Move) {
	proposed := assign(v, livingIn(v))
	registered := map[model.NodeID]int64{}
	for i := range v.Members {
		registered[v.Members[i].ID] = v.Members[i].Epoch
	}

	for _, o := range v.Owners {
		from := o.Node
		if epoch, ok := registered[from]; !ok || epoch != o.Epoch {
			from = model.NodeID{}
		}
		if to := proposed[o.Shard]; to != from {
			moves = append(moves, Move{o.Shard, from, to})
		}
	}
	return moves
}

// assign returns the node that should own each shard of a view. It distributes the shards of each
// group to the nodes that take them, so a node that joins or leaves moves only shards of its own
// groups. A group without such a node has no owners.
func assign(v *store.View, live []store.Member) []model.NodeID {
	proposed := make([]model.NodeID, len(v.Owners))
	for _, r := range v.Layout().Ranges() {
		part := proposed[min(r.First, len(proposed)):min(r.First+r.Count, len(proposed))]
		distribute(part, r.First, takers(takersOf(live, r.Group)))
	}
	return proposed
}

// takersOf returns the nodes that take shards of a group. The result is a new slice.
func takersOf(live []store.Member, group string) []store.Member {
	out := make([]store.Member, 0, len(live))
	for i := range live {
		if live[i].TakesGroup(group) {
			out = append(out, live[i])
		}
	}
	return out
}

// livingIn returns the nodes of a view whose lease has not expired and that are not stopping.
func livingIn(v *store.View) (live []store.Member) {
	for _, n := range v.Members {
		if n.Expires >= v.Now && !n.Draining {
			live = append(live, n)
		}
	}
	return live
}

// MayDrain returns why the shards of a node cannot go to other nodes. It returns an empty text if
// they can.
func MayDrain(v *store.View, node model.NodeID) string {
	live := livingIn(v)
	if len(live) == 1 && live[0].ID == node {
		return "it is the only node"
	}

	for _, r := range v.Layout().Ranges() {
		capable := mostCapable(takersOf(live, r.Group))
		switch {
		case hasOlder(capable):
			return "the cluster has a node of an older version, and such a node cannot take part in a drain"
		case !slices.ContainsFunc(capable, func(n store.Member) bool { return n.ID == node }):
			continue // the node should own no shards of the group anyway
		case slices.ContainsFunc(capable, func(n store.Member) bool { return n.ID != node && !n.Drained }):
			continue
		case len(v.Groups) > 0:
			return "no other node that is not drained takes shards of group " + r.Group + " and can run as much as it does"
		}
		return "no other node that is not drained can run as much as it does"
	}
	return ""
}

// takers returns the nodes that shards are distributed to: the nodes that can run the most, except
// the nodes that an operator has drained. If an operator has drained all nodes that can run the
// most, they keep the shards, because no shard may be left without an owner. A node of an older
// build does not know about drains. While there is such a node, a drain has no effect.
func takers(live []store.Member) []store.Member {
	capable := mostCapable(live)
	if hasOlder(capable) {
		return capable
	}
	left := slices.DeleteFunc(slices.Clone(capable), func(n store.Member) bool { return n.Drained })
	if len(left) == 0 {
		return capable
	}
	return left
}

// mostCapable returns the nodes with the highest rank: the nodes that run user workflows or, if
// there are none, the nodes that execute tasks, and so on. The owner of a run should have its code.
// Otherwise the owner must hand every turn of the run to a worker of another node. A process that
// only executes tasks does not need to own shards, because its workers execute tasks of other
// owners.
func mostCapable(nodes []store.Member) []store.Member {
	most := runsNothing
	for i := range nodes {
		most = max(most, rankOf(&nodes[i]))
	}
	return slices.DeleteFunc(nodes, func(n store.Member) bool { return rankOf(&n) < most })
}

// rank is what a node can run.
type rank uint8

const (
	runsNothing rank = iota
	runsOurs         // built-in workflows that every app has: schedules
	runsTasks
	runsWorkflows
)

// rankOf ignores whether the workers of the node accept work now. Workers that drain or are under
// pressure soon accept work again, and shards should not move because of that.
func rankOf(n *store.Member) rank {
	r := runsNothing
	for i := range n.Serves {
		switch s := &n.Serves[i]; {
		case s.Tenant == model.EveryTenant:
			// A server keeps its rank regardless of its workers, because shards must not move when
			// workers connect.
			return runsWorkflows
		case s.Worker != "":
			r = max(r, runsTasks)
		case model.IsBuiltIn(s.Workflow):
			r = max(r, runsOurs)
		default:
			return runsWorkflows
		}
	}

	return r
}
