package engine

import (
	"maps"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// former remembers which node owned each shard last. It learns the owners from the views of the
// cluster that the node reads with each renewal of its lease. When a server acquires a shard, it
// reserves runs and entities of the shard for the remote workers that held them under the last
// owner. former finds out whether such a worker can be on its way to this server. If not, the work
// need not wait. The zero value knows nothing. Only the members loop uses it.
type former struct {
	owners  map[model.ShardID]model.NodeID
	members map[model.NodeID]standing
}

// standing is what the last view that contained a node said about the node.
type standing struct {
	server bool // remote workers may be connected to the node, and outlive it
	lives  bool // in the last view the node has its lease and is not stopping
}

// note records the owners and the members that a view shows.
func (f *former) note(v *store.View) {
	if f.owners == nil {
		f.owners, f.members = map[model.ShardID]model.NodeID{}, map[model.NodeID]standing{}
	}
	used := map[model.NodeID]bool{}
	for _, o := range v.Owners {
		if !o.Node.IsZero() {
			f.owners[o.Shard] = o.Node
		}
		used[f.owners[o.Shard]] = true
	}

	for id, m := range f.members {
		m.lives = false
		f.members[id] = m
	}
	for i := range v.Members {
		m := &v.Members[i]
		f.members[m.ID] = standing{server: mayServe(m), lives: m.Expires >= v.Now && !m.Draining}
	}
	maps.DeleteFunc(f.members, func(id model.NodeID, m standing) bool { return !m.lives && !used[id] })
}

// mayServe reports whether a node may be a server. A node that has said nothing about its code yet
// may be one.
func mayServe(m *store.Member) bool {
	for _, s := range m.Serves {
		if s.Tenant == model.EveryTenant {
			return true
		}
	}
	return len(m.Serves) == 0
}

// hasHanded reports whether it is certain that no remote worker of the last owner of a shard is on
// its way to this node. The parameter now is the owner of the shard in the last view. It is zero if
// the last owner has freed the shard. There are two cases. In the first case the last owner is no
// server. The workers of such an owner have ended together with it, or they work for it through
// other nodes. In the second case the last owner has freed the shard and is still alive. Such an
// owner has taken all work back from its workers. A server that stops says so before it frees a
// shard, so hasHanded does not mistake a stopping server for a live owner.
func (f *former) hasHanded(shard model.ShardID, now model.NodeID) bool {
	m, known := f.members[f.owners[shard]]
	return known && (!m.server || m.lives && now.IsZero())
}
