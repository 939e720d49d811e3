package engine

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A server that acquires a shard knows whether remote workers of the last owner may be on their way
// to this server.
func TestFormerOwners(t *testing.T) {
	t.Parallel()
	server, program, fresh := model.NodeID{1}, model.NodeID{2}, model.NodeID{3}
	member := func(id model.NodeID, tenants ...string) store.Member {
		m := store.Member{NodeInfo: store.NodeInfo{ID: id}, Expires: 10}
		for _, name := range tenants {
			m.Serves = append(m.Serves, store.Served{Tenant: name})
		}
		return m
	}
	view := func(owner model.NodeID, members ...store.Member) *store.View {
		return &store.View{Now: 5, Owners: []store.ShardOwner{{Shard: 0, Node: owner}}, Members: members}
	}
	stopping, dead := member(server, model.EveryTenant), member(server, model.EveryTenant)
	stopping.Draining, dead.Expires = true, 4
	none := model.NodeID{}

	for name, c := range map[string]struct {
		views []*store.View
		now   model.NodeID // the owner of the shard when the server acquires it
		want  bool
	}{
		"a live server has freed it":            {[]*store.View{view(server, member(server, model.EveryTenant, "default")), view(none, member(server, model.EveryTenant))}, none, true},
		"a server that stops has freed it":      {[]*store.View{view(server, member(server, model.EveryTenant)), view(none, stopping)}, none, false},
		"a server has stopped":                  {[]*store.View{view(server, member(server, model.EveryTenant)), view(none)}, none, false},
		"a server has died":                     {[]*store.View{view(server, member(server, model.EveryTenant)), view(server, dead)}, server, false},
		"a server was fenced":                   {[]*store.View{view(server, member(server, model.EveryTenant)), view(server)}, server, false},
		"a program has died":                    {[]*store.View{view(program, member(program, "default")), view(program)}, program, true},
		"a program has freed it":                {[]*store.View{view(program, member(program, "default")), view(none, member(program, "default"))}, none, true},
		"a node that has said nothing has died": {[]*store.View{view(fresh, member(fresh)), view(fresh)}, fresh, false},
		"nobody knows who had it":               {[]*store.View{view(none)}, none, false},
		"its owner was never seen":              {[]*store.View{view(fresh)}, fresh, false},
	} {
		var f former
		for _, v := range c.views {
			f.note(v)
		}
		if got := f.hasHanded(0, c.now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
