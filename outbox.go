package perdure

import (
	"time"

	"github.com/perdure/perdure/internal/userdb"
)

// Outbox lets transactions of a database start and signal executions (App.InTx, InPgx) even if the
// engine keeps its tables in another database. The messages go into a table of the transaction's
// database, which Open creates, and the app delivers them after the commit. Every process that has
// the outbox delivers the messages of all processes.
func Outbox[T any](db TxSource[T], opts ...OutboxOption) Definition {
	d := outboxDefinition{db: db.db, every: time.Second, at: callerPosition()}
	for _, o := range opts {
		o.applyOutbox(&d)
	}
	return d
}

// OutboxOption configures an Outbox: PollEvery.
type OutboxOption interface{ applyOutbox(*outboxDefinition) }

// PollEvery sets how often the app reads the table of an Outbox to find messages of other
// processes. The default is 1 s, and the minimum is 1 ms. The app does not wait for the next poll
// to deliver messages of this process: it delivers them soon after their commit.
func PollEvery(d time.Duration) OutboxOption { return pollOption(d) }

type pollOption time.Duration

func (p pollOption) applyOutbox(o *outboxDefinition) {
	o.every = time.Duration(p)
}

type outboxDefinition struct {
	db    *userdb.Database
	every time.Duration
	at    string
}

func (d outboxDefinition) define(r *registry) {
	if d.db == nil {
		r.wrong("an outbox has no database: give it perdure.SQL(db) or perdure.Pgx(pool), after the pool was made (%s)", d.at)
		return
	}
	if d.every < time.Millisecond || d.every > maxTaskTime {
		r.wrong("the PollEvery of an outbox is %s, must be at least a millisecond and at most 100 years (%s)", d.every, d.at)
		return
	}
	r.outboxes = append(r.outboxes, d)
}
