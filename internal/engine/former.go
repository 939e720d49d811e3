package engine

import (
	"maps"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// former knows which node owned each shard last, as far as the views have shown it. A server that
// acquires a shard keeps the work in it for remote workers that held it under the last owner. If no
// such worker can be on its way, the work need not wait for one. The zero value knows nothing. Only
// the members loop uses it.
type former struct {
	owners  map[model.ShardID]model.NodeID
	members map[model.NodeID]standing
}

// standing is what the last view with a node said about it.
type standing struct {
	server bool // remote workers may be connected to it, and outlive it
	lives  bool // it has its lease in the last view, and does not stop
}

// note takes in a view.
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

// mayServe reports whether a node is a server. A node that has said nothing about its code yet may
// be one.
func mayServe(m *store.Member) bool {
	for _, s := range m.Serves {
		if s.Tenant == model.EveryTenant {
			return true
		}
	}
	return len(m.Serves) == 0
}

// hasHanded reports whether it is certain that no remote worker on its way to this node holds
// something of the last owner of a shard. That is certain in two cases. If the owner is no server,
// its workers have ended with it, or they work for it through other nodes. If the owner has freed
// the shard and lives, it has taken everything back from its workers. A server that stops says so
// before it frees a shard.
func (f *former) hasHanded(shard model.ShardID, now model.NodeID) bool {
	m, known := f.members[f.owners[shard]]
	return known && (!m.server || m.lives && now.IsZero())
}
