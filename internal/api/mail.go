package api

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Mailer is the part of a Backend that sends a request together with a transaction of ordinary
// code. Compose checks the request and turns it into a message. The transaction stores the message,
// and Deliver sends it after the commit.
type Mailer interface {
	// Cluster is the id of the engine's store.
	Cluster() string
	// Compose returns the message of a request. It refuses everything that a direct call would
	// refuse.
	Compose(r Request) (model.Message, error)
	// Reach returns nil if the engine can accept messages now. After an error the caller should
	// send no messages.
	Reach(ctx context.Context) error
	// RequestRetention is how long the engine remembers the request id of a message that it has
	// accepted.
	RequestRetention() time.Duration
	// Deliver sends a composed message and returns what the direct call would have returned. A
	// repetition with the same request id has no effect while the engine remembers the id.
	Deliver(ctx context.Context, m *model.Message) error
	// Inbox says how a transaction in the database of the store delivers a message directly. It
	// returns false if the store cannot do that.
	Inbox() (Inbox, bool)
	// Hint tells the owner of a shard that the inbox of the shard may have a new message.
	Hint(s model.ShardID)
	// DeadLetters returns the messages of a tenant that came through the inbox and that the engine
	// refused, in the order of their ids.
	DeadLetters(ctx context.Context, tenant string, after model.RunID, limit int) ([]DeadLetter, error)
}

// Request is a request that can be sent with a transaction, because its client does not wait for an
// answer of the code. The types below implement it.
type Request interface{ request() }

func (*StartRequest) request()  {}
func (*SignalRequest) request() {}
func (*SettleRequest) request() {}
func (*CancelRequest) request() {}
func (*CallRequest) request()   {}

// Inbox describes a table of the store into which any transaction can write messages.
type Inbox struct {
	// The SQL expression Here is true if the database of the transaction has the tables of a
	// Perdure store and the database user may use them. The expression never fails.
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
	// Unreadable is true if the engine could not read the message. In that case Message has only
	// the parts that are known.
	Unreadable bool
}
