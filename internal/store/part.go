package store

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Part is a store that can hold some of the shards of a cluster, next to other stores that hold the
// rest. Package partitioned makes one store of several parts. One of the parts is the home: only
// the home has the epochs and the leases of the cluster.
type Part interface {
	Store
	Searcher

	// DrawEpoch takes the next epoch of the cluster. Package partitioned calls DrawEpoch only on
	// the home.
	DrawEpoch(ctx context.Context) (int64, error)
	// RegisterAt adds a node that the home has registered, with fences at the epoch of the home. It
	// replaces a registration of the same node with a lower epoch, and has no effect if the node is
	// already registered with this epoch. It refuses a node that is registered with a higher epoch.
	// A call that has returned an error may still take effect, but not after a later call for the
	// node has succeeded.
	RegisterAt(ctx context.Context, r PartRegistration) error
	// RefenceAt is Refence with an epoch that the home has drawn.
	RefenceAt(ctx context.Context, l LaneRef, epoch int64) (landed int64, err error)
	// LoadChannels returns the channels that lead to the given shards and have messages. It returns
	// each channel once, in any order.
	LoadChannels(ctx context.Context, shards []model.ShardID) ([]Channel, error)
	// LoadCursors returns the cursors of the given pairs of shards, in any order. It omits pairs
	// without a cursor.
	LoadCursors(ctx context.Context, pairs []Channel) ([]ChannelCursor, error)
	// AdvanceCursors raises the cursors of pairs whose receiver belongs to another part. Such a
	// cursor is a copy of the cursor of the receiver, and may be behind the original. A cursor
	// never goes back. Sweep deletes messages up to the copy, and Acquire counts all positions up
	// to the copy as sent.
	AdvanceCursors(ctx context.Context, cursors []ChannelCursor) error
}

// PartRegistration registers a node in a part.
type PartRegistration struct {
	Node  NodeInfo
	Lanes int
	TTL   time.Duration
	Epoch int64 // the epoch of the node in the home
}

// Channel is a pair of shards between which messages travel.
type Channel struct{ To, From model.ShardID }

// ChannelCursor is the position up to which the receiver has consumed the messages of a channel.
type ChannelCursor struct {
	Channel
	Position int64
}

// Database is a database that holds shard groups, in addition to the home of a cluster.
type Database struct {
	// Name is what operators call the database.
	Name string
	// Groups are the shard groups whose shards the database holds.
	Groups []string
	// URL names the database in messages for people. It has no credentials.
	URL string
}

// Parts returns into how many stores the shards are divided.
func (i *Info) Parts() int { return len(i.Databases) + 1 }

// PartsOfShards returns the part of each shard: 0 for the home, and n for the n-th database. The
// result is nil if the home holds all shards.
func (i *Info) PartsOfShards() []int {
	if len(i.Databases) == 0 {
		return nil
	}
	part := map[string]int{}
	for n := range i.Databases {
		for _, group := range i.Databases[n].Groups {
			part[group] = n + 1
		}
	}

	of := make([]int, i.Shards)
	for _, r := range i.Layout().Ranges() {
		for s := r.First; s < min(r.First+r.Count, len(of)); s++ {
			of[s] = part[r.Group]
		}
	}
	return of
}
