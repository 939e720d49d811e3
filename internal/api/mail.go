package api

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Mailer is a Backend whose requests can also leave with a transaction of ordinary code. Compose
// checks a request and turns it into a message, the transaction stores the message, and Deliver
// sends it after the commit.
type Mailer interface {
	// Cluster is the id of the engine's store.
	Cluster() string
	// Compose returns the message of a request. It refuses what a direct call would refuse.
	Compose(r Request) (model.Message, error)
	// Reach reports whether the engine can take messages now. After an error the caller should send
	// none.
	Reach(ctx context.Context) error
	// RequestRetention is how long the engine knows the request id of a message that it has taken.
	RequestRetention() time.Duration
	// Deliver sends a composed message and returns what the direct call would have returned. A
	// repetition with the same request id has no effect while the engine remembers the id.
	Deliver(ctx context.Context, m *model.Message) error
	// Inbox returns how a transaction in the database of the store delivers a message directly. It
	// returns false when the store cannot do that.
	Inbox() (Inbox, bool)
	// Hint says that the inbox of a shard may have a new message.
	Hint(s model.ShardID)
	// DeadLetters returns messages of a tenant that came through the inbox and were refused, in the
	// order of their ids.
	DeadLetters(ctx context.Context, tenant string, after model.RunID, limit int) ([]DeadLetter, error)
}

// Request is a request that can leave with a transaction: its client does not wait for an answer of
// the code. Its types are listed below.
type Request interface{ request() }

func (*StartRequest) request()  {}
func (*SignalRequest) request() {}
func (*SettleRequest) request() {}
func (*CancelRequest) request() {}
func (*CallRequest) request()   {}

// Inbox describes a table of the store that takes messages from any transaction.
type Inbox struct {
	// Here is an SQL expression. It is true when the transaction's database has the tables of such
	// a store and the user may use them. It never fails.
	Here string
	// Put is an SQL statement that stores a message if the database belongs to this store. Its
	// parameters are shard, id, tenant, workflow, key, request id, body and cluster. It changes one
	// row or none.
	Put string
	// Layout says which address belongs to which shard.
	Layout model.Layout
}

// DeadLetter is a message that the engine refused after its transaction had committed.
type DeadLetter struct {
	ID      model.RunID
	Message model.Message
	Reason  string
	// Unreadable is true when the engine could not read the message. Message then has the parts
	// that are known.
	Unreadable bool
}
