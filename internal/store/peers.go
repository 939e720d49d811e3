package store

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Peers lets the live nodes of a shared store exchange short notes. A note may be lost, even after
// it was stored, and may arrive twice. A node that needs an answer must ask again. A store that
// several nodes cannot share has no peers and refuses notes.
type Peers interface {
	// PutPeerMail stores notes for other nodes. The nodes need not exist. PutPeerMail does not wait
	// until the notes are durable.
	PutPeerMail(ctx context.Context, rows []PeerMail) error
	// TakePeerMail removes the oldest notes for a node and returns them in the order of their ids.
	// It takes at most limit notes and about maxBytes of bodies, but at least one note if there is
	// one. Each renewal of the lease reports in [View.PeerMail] whether notes wait for the node.
	TakePeerMail(ctx context.Context, node model.NodeID, limit, maxBytes int) ([]PeerMail, error)
}

// PeerMail is a note from one node to another.
type PeerMail struct {
	To, From model.NodeID
	// ID is a UUIDv7. It orders the notes and tells the sweep how old they are. Re is the id of the
	// note that this note answers; zero if it is not an answer.
	ID, Re model.RunID
	Body   []byte
}
