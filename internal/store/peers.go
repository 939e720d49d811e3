package store

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Peers is how nodes of a shared store talk to each other beside its contents: short letters
// between two processes that are alive. They are never the truth. One may be lost, also after it
// was put, and may come twice; whoever counts on an answer asks again. A store that one process
// opens has no peers: it refuses letters.
type Peers interface {
	// PutPeerMail leaves letters for other nodes, which need not exist. It does not wait for them
	// to be durable.
	PutPeerMail(ctx context.Context, rows []PeerMail) error
	// TakePeerMail removes the oldest letters for a node and returns them in the order of their
	// ids, at most limit and about maxBytes of bodies, but at least one if there is one.
	// [View.PeerMail] tells with each renewal whether there are any.
	TakePeerMail(ctx context.Context, node model.NodeID, limit, maxBytes int) ([]PeerMail, error)
}

// PeerMail is a letter from one node to another.
type PeerMail struct {
	To, From model.NodeID
	// ID is a UUIDv7, by which letters are ordered and old ones are swept. Re is the letter that
	// this one answers; zero for none.
	ID, Re model.RunID
	Body   []byte
}
