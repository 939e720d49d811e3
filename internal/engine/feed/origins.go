package feed

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// origin is a node whose changes the feed has: this node, or a node to which it has subscribed.
type origin struct {
	claims  map[model.ShardID]bool // shards that the node owns, as it has said
	owned   int                    // shards whose changes the feed takes from the node
	tenants map[string]bool        // the feed gets the changes of these tenants
}

// has reports whether the feed gets the changes of a tenant from the origin.
func (o *origin) has(tenant string) bool { return o.tenants[tenant] }

// origins says from which node the feed takes the changes of each shard. It takes them from one
// node at a time: from the last one that has said that it owns the shard. The reports of two nodes
// about the move of a shard may arrive in any order. So changes of the old owner that arrive after
// the claim of the new owner are left out. They were durable before the claim, so the gap notice
// that follows each claim covers them. An origins is a state machine.
type origins struct {
	owner []*origin // by shard; nil if the feed does not get the changes of the shard
	free  int       // shards without an owner
	self  *origin
	all   []*origin
}

func newOrigins(shards int) *origins {
	o := &origins{owner: make([]*origin, shards), free: shards, self: &origin{claims: map[model.ShardID]bool{}}}
	o.all = []*origin{o.self}
	return o
}

// add adds a node that has claimed nothing.
func (s *origins) add() *origin {
	o := &origin{claims: map[model.ShardID]bool{}}
	s.all = append(s.all, o)
	return o
}

// remove removes a node. It reports whether changes may be missed.
func (s *origins) remove(o *origin) (missed bool) {
	missed = s.reset(o)
	s.all = slices.DeleteFunc(s.all, func(x *origin) bool { return x == o })
	return missed
}

// set makes a node the owner of a shard. If o is nil, the shard has no owner.
func (s *origins) set(shard model.ShardID, o *origin) {
	if was := s.owner[shard]; was != nil {
		was.owned--
	} else {
		s.free--
	}
	if s.owner[shard] = o; o != nil {
		o.owned++
	} else {
		s.free++
	}
}

// claim notes that a node says that it owns shards. If this node owns one of them, the feed still
// takes the changes of that shard from this node, which knows best what it owns.
func (s *origins) claim(o *origin, shards []model.ShardID) {
	for _, shard := range shards {
		o.claims[shard] = true
		if s.owner[shard] != s.self || o == s.self {
			s.set(shard, o)
		}
	}
}

// release notes that a node no longer owns shards. If another node has claimed one of them, the
// claim of that node is valid again. In this case changes of that node may have been left out, and
// release returns true.
func (s *origins) release(o *origin, shards []model.ShardID) (missed bool) {
	for _, shard := range shards {
		delete(o.claims, shard)
		if s.owner[shard] != o {
			continue
		}
		next := s.claimant(shard)
		s.set(shard, next)
		missed = missed || next != nil
	}
	return missed
}

// claimant returns a node that has claimed a shard, or nil. If several nodes have claimed the
// shard, at most one of them really owns it. When another one releases the shard, the hub chooses
// again.
func (s *origins) claimant(shard model.ShardID) *origin {
	for _, o := range s.all {
		if o.claims[shard] {
			return o
		}
	}
	return nil
}

// reset notes that nothing is known about a node. It reports whether changes of it may be missed.
func (s *origins) reset(o *origin) (missed bool) {
	missed = o.owned > 0
	for shard := range o.claims {
		missed = s.release(o, []model.ShardID{shard}) || missed
	}
	o.tenants = nil
	return missed
}

// takes reports whether the feed takes the changes of a shard from a node.
func (s *origins) takes(o *origin, shard model.ShardID) bool { return s.owner[shard] == o }

// lacks reports whether the feed lacks changes of a tenant.
func (s *origins) lacks(tenant string) bool {
	if s.free > 0 {
		return true
	}
	return slices.ContainsFunc(s.all, func(o *origin) bool { return o != s.self && o.owned > 0 && !o.has(tenant) })
}
