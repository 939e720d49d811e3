package feed

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of a portion.
const (
	portionChanges = 1_024
	// PortionBytes is roughly the size of a portion.
	PortionBytes = 256 << 10
	// MostTenants bounds the tenants of a subscription.
	MostTenants = 10_000
	// silence is how long a subscription lives while the other node asks for nothing.
	silence = 15 * time.Second
	// shardBytes and pieceBytes are roughly the memory of a shard in a piece, and of a piece.
	shardBytes = 2
	pieceBytes = 64
)

// errUnknown means that a node asks for the next portion of a subscription that has ended.
var errUnknown = fault.New(fault.NotFound, "the subscription has ended")

// bounds are how much a subscription keeps.
type bounds struct{ changes, bytes int }

// item is one thing that a subscription keeps: a change, or another piece.
type item struct {
	piece  Piece // its kind is PieceChanges if the item is a change
	change model.Change
	size   int
}

// subscription has what another node has not received yet of the changes that it wants. It is a
// state machine. The lock of the hub protects it.
type subscription struct {
	id      uint64
	version int64
	tenants map[string]bool

	items []item
	bytes int
	// number is the number of the last portion that was cut. sent is that portion, until the other
	// node confirms it.
	number int64
	sent   []Piece

	demander *demander // nil if the other node waits for nothing
	// heard is when the other node last asked for something, or stopped waiting.
	heard time.Duration
}

// demander is a demand that waits for its answer. ready tells the other node that there is
// something to cut.
type demander struct{ ready func() }

// take takes a demand: it drops the portion that the other node confirms, and updates the tenants.
// It reports whether the tenants have changed.
func (s *subscription) take(d *Demand) bool {
	if d.After == s.number {
		s.sent = nil
	}
	if d.Version == s.version {
		return false
	}
	s.version, s.tenants = d.Version, make(map[string]bool, len(d.Tenants))
	for _, t := range d.Tenants {
		s.tenants[t] = true
	}
	return true
}

// hasNews reports whether a node that has the portion with the given number can get another one.
func (s *subscription) hasNews(after int64) bool {
	return len(s.items) > 0 || s.sent != nil && after < s.number
}

// restart drops everything that is kept. The other node gets a gap notice.
func (s *subscription) restart(claims map[model.ShardID]bool) {
	s.items, s.bytes = nil, 0
	s.push(Piece{Kind: PieceRestart, Shards: sorted(claims), Version: s.version})
}

// push appends a piece that has no changes.
func (s *subscription) push(p Piece) {
	s.append(item{piece: p, size: pieceBytes + shardBytes*len(p.Shards) + len(p.Tenant)})
}

// add appends a change. If there is no room, it drops the changes of the tenant that has most of
// them. If many tenants have some, it drops everything.
func (s *subscription) add(c *model.Change, most bounds, claims map[model.ShardID]bool) {
	s.append(item{piece: Piece{Kind: PieceChanges}, change: *c, size: c.Size()})
	if s.fits(most) {
		return
	}
	if tenant, bytes := s.heaviest(); bytes >= s.bytes/4 {
		s.drop(tenant)
	}
	if !s.fits(most) {
		s.restart(claims)
	}
}

func (s *subscription) append(it item) {
	s.items = append(s.items, it)
	s.bytes += it.size
}

func (s *subscription) fits(most bounds) bool {
	return len(s.items) <= most.changes && s.bytes <= most.bytes
}

// heaviest returns the tenant whose changes need most of the memory, and how much they need.
func (s *subscription) heaviest() (tenant string, bytes int) {
	by := map[string]int{}
	for i := range s.items {
		if it := &s.items[i]; it.piece.Kind == PieceChanges {
			t := it.change.Address.Tenant
			if by[t] += it.size; by[t] > bytes {
				tenant, bytes = t, by[t]
			}
		}
	}
	return tenant, bytes
}

// drop drops the changes of a tenant. The watchers of the tenant get a gap notice.
func (s *subscription) drop(tenant string) {
	s.items = slices.DeleteFunc(s.items, func(it item) bool {
		gone := it.piece.Kind == PieceChanges && it.change.Address.Tenant == tenant || it.piece.Kind == PieceLost && it.piece.Tenant == tenant
		if gone {
			s.bytes -= it.size
		}
		return gone
	})
	s.push(Piece{Kind: PieceLost, Tenant: tenant})
}

// cut returns the portion that follows the one with the given number. If the other node asks for a
// portion again, because it has given up waiting for it, it gets the same portion.
func (s *subscription) cut(after int64) (Portion, error) {
	switch {
	case after == s.number:
	case after == s.number-1 && s.sent != nil:
		return Portion{Number: s.number, Pieces: s.sent}, nil
	default:
		return Portion{}, errUnknown
	}

	pieces := make([]Piece, 0, 1)
	n, bytes := 0, 0
	for n < len(s.items) && n < portionChanges && bytes < PortionBytes {
		it := &s.items[n]
		n++
		bytes += it.size
		last := len(pieces) - 1
		switch {
		case it.piece.Kind != PieceChanges:
			pieces = append(pieces, it.piece)
		case last >= 0 && pieces[last].Kind == PieceChanges:
			pieces[last].Changes = append(pieces[last].Changes, it.change)
		default:
			pieces = append(pieces, Piece{Kind: PieceChanges, Changes: []model.Change{it.change}})
		}
	}

	clear(s.items[:n]) // so that the garbage collector can free the texts
	s.bytes -= bytes
	if s.items = s.items[n:]; len(s.items) == 0 {
		s.items = nil
	}
	s.number++
	s.sent = pieces
	return Portion{Number: s.number, Pieces: pieces}, nil
}

// sorted returns the shards of a set.
func sorted(set map[model.ShardID]bool) []model.ShardID {
	all := make([]model.ShardID, 0, len(set))
	for s := range set {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}
