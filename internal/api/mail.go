package api

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Mailer is a Backend whose requests can also leave with a transaction of ordinary code: they are
// composed, which checks them, kept in the transaction, and delivered once it has committed.
type Mailer interface {
	// Cluster is the id of the engine's store.
	Cluster() string
	// Compose is the message of a request, if that is in order by the rules of a direct call.
	Compose(r Request) (model.Message, error)
	// Reach tells whether the engine can take messages now. An error means that nothing should be
	// sent to it.
	Reach(ctx context.Context) error
	// RequestRetention is how long the engine knows the request id of a message that it has taken.
	RequestRetention() time.Duration
	// Deliver sends a composed message and returns what the direct call would have. Repeated with
	// the same request id while the engine remembers it, it changes nothing.
	Deliver(ctx context.Context, m *model.Message) error
	// Inbox is how a transaction in the database of the store hands a message over by itself; false
	// when the store has no such thing.
	Inbox() (Inbox, bool)
	// Hint tells that a message may have come to the inbox of a shard.
	Hint(s model.ShardID)
	// DeadLetters returns messages of a tenant that were handed over so and refused, ordered by id.
	DeadLetters(ctx context.Context, tenant string, after model.RunID, limit int) ([]DeadLetter, error)
}

// Request is a request that a client sends without waiting for what the code answers: one of the
// types below. It can leave with a transaction.
type Request interface{ request() }

func (*StartRequest) request()  {}
func (*SignalRequest) request() {}
func (*SettleRequest) request() {}
func (*CancelRequest) request() {}
func (*CallRequest) request()   {}

// Inbox is a table of the store that takes messages from any transaction.
type Inbox struct {
	// Here is an expression that tells whether a transaction is in a database that has the tables
	// of such a store, and may use them. It never fails.
	Here string
	// Put stores a message if the database is that of this very store: its parameters are shard,
	// id, tenant, workflow, key, request id, body and cluster. It changes one row, or none.
	Put string
	// Shards is the number of shards.
	Shards int
}

// DeadLetter is a message that was refused after its transaction had committed.
type DeadLetter struct {
	ID      model.RunID
	Message model.Message
	Reason  string
	// Unreadable tells that it was not refused: it cannot be read, and the message has what is
	// known of it.
	Unreadable bool
}
