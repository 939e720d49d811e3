package feed

import "github.com/perdure/perdure/internal/model"

// Nodes send each other the following values. The numbers of the fields and the kinds must not
// change.

// Demand asks a node for the next portion of its changes. The node keeps the request until it has
// something to send. So the request also renews the subscription.
type Demand struct {
	// Subscription is an id that the sender draws for each new subscription.
	Subscription uint64 `cbor:"1,keyasint"`
	// After is the number of the last portion that the sender has, and confirms that portion. It is
	// zero if the sender has none.
	After int64 `cbor:"2,keyasint,omitempty"`
	// Version is the version of the set of tenants whose changes the sender wants. Tenants are
	// these tenants. The sender leaves them out once the receiver has confirmed the version.
	Version int64    `cbor:"3,keyasint,omitempty"`
	Tenants []string `cbor:"4,keyasint,omitempty"`
	// End ends the subscription.
	End bool `cbor:"5,keyasint,omitempty"`
}

// Portion is the answer to a Demand. The portions of a subscription have the numbers 1, 2, 3 and so
// on.
type Portion struct {
	Number int64   `cbor:"1,keyasint"`
	Pieces []Piece `cbor:"2,keyasint,omitempty"`
}

// PieceKind says what a piece of a portion reports.
type PieceKind uint8

// The kinds of pieces.
const (
	// PieceRestart reports that a subscription begins, or that the owner had no room for some
	// changes. Shards are all shards of the owner, Version is the version of the tenants.
	PieceRestart PieceKind = iota + 1
	// PieceClaim reports that the owner has acquired Shards. It comes before their changes.
	PieceClaim
	// PieceRelease reports that the owner has given up Shards. It comes after their changes.
	PieceRelease
	// PieceTenants reports that all later pieces have the changes of the tenants with this Version.
	PieceTenants
	// PieceLost reports that the owner had no room for some changes of Tenant.
	PieceLost
	// PieceChanges reports Changes.
	PieceChanges
)

// Piece is a part of a portion. The order of pieces matters.
type Piece struct {
	Kind    PieceKind       `cbor:"1,keyasint"`
	Shards  []model.ShardID `cbor:"2,keyasint,omitempty"`
	Version int64           `cbor:"3,keyasint,omitempty"`
	Tenant  string          `cbor:"4,keyasint,omitempty"`
	Changes []model.Change  `cbor:"5,keyasint,omitempty"`
}

// isForwarded reports whether nodes send each other changes of a class. All nodes learn of workers
// and settings from the store.
func isForwarded(c model.ChangeClass) bool {
	return c == model.ClassExecution || c == model.ClassTask || c == model.ClassEntity
}
