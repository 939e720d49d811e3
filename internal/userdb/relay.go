package userdb

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Verdict is the result of delivering one message.
type Verdict struct {
	ID string
	// Refused is why the message can never be delivered. Later means that the message could not be
	// delivered now and is deferred. Untried means that this attempt was not made, or certainly had
	// no effect. If no field is set, the message was delivered.
	Refused string
	Later   bool
	Untried bool
}

// Round delivers one page of an outbox.
type Round struct {
	Cluster string
	// Reach returns an error if the receiver cannot be reached. In that case the relay does not
	// make or record an attempt.
	Reach func(context.Context) error
	// Deliver delivers messages. If Deliver returns no verdict for a message, the message may have
	// been delivered.
	Deliver func(context.Context, []OutboxMessage) []Verdict
	// Within is how long Deliver may take. After that time, the context of Deliver ends, but not
	// the context of the round. So one slow message does not keep the relay from applying the
	// verdicts on the other messages.
	Within time.Duration
}

// deliver calls Deliver with its time limit.
func (r *Round) deliver(ctx context.Context, messages []OutboxMessage) []Verdict {
	if r.Within > 0 {
		limited, cancel := context.WithTimeout(ctx, r.Within)
		defer cancel()
		ctx = limited
	}
	return r.Deliver(ctx, messages)
}

// Bounds of a page of the outbox.
const (
	pageTransactions = 64
	pageBytes        = 4 << 20
)

// Relay takes a page of waiting messages and passes them to Deliver, in the order in which each
// transaction put them. After that it removes, marks or defers the messages that have a verdict.
// The other messages wait for the next round. Relay returns how many messages got a verdict. It
// does not count messages that were not tried. If the process crashes after Deliver, the next relay
// delivers the messages again.
//
// The relay records and commits the attempt before it calls Deliver. So every message that may have
// been delivered has the time of its first attempt, however the relay ends.
//
// On PostgreSQL a relay locks its messages while it delivers them. SQLite has only one lock for the
// whole database, so on SQLite the relay does not hold a lock while it delivers. There, two relays
// may deliver the same message, which still takes effect only once.
func (d *Database) Relay(ctx context.Context, r *Round) (n int, err error) {
	messages, err := d.startAttempt(ctx, r)
	if err != nil || len(messages) == 0 {
		return 0, err
	}

	if d.dialect == &postgres {
		err = d.within(ctx, func(tx Tx) error {
			mine, err := d.filterOwn(ctx, tx, messages)
			if err != nil || len(mine) == 0 {
				return err
			}
			verdicts := r.deliver(ctx, mine)
			n = countFinal(verdicts)
			return d.judge(ctx, tx, mine, verdicts)
		})
		return n, err
	}

	verdicts := r.deliver(ctx, messages)
	err = d.patiently(ctx, func(tx Tx) error { return d.judge(ctx, tx, messages, verdicts) })
	return countFinal(verdicts), err
}

// startAttempt reads a page and records that its messages are about to be delivered. It returns an
// error if the receiver cannot be reached.
func (d *Database) startAttempt(ctx context.Context, r *Round) (messages []OutboxMessage, err error) {
	read := func(tx Tx) error {
		var text string
		if err := tx.QueryRow(ctx, d.sql(Outbox, d.dialect.page), r.Cluster, int64(pageTransactions), int64(pageBytes)).Scan(&text); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), &messages); err != nil || len(messages) == 0 {
			return err
		}
		return r.Reach(ctx)
	}

	if d.dialect == &postgres { // the page stays locked until the attempt is recorded
		err = d.within(ctx, func(tx Tx) error {
			if err := read(tx); err != nil || len(messages) == 0 {
				return err
			}
			return d.attempt(ctx, tx, messages)
		})
		return messages, err
	}

	if err = d.within(ctx, read); err != nil || len(messages) == 0 {
		return nil, err
	}
	var mine []OutboxMessage

	err = d.patiently(ctx, func(tx Tx) error {
		err := d.attempt(ctx, tx, messages)
		if err == nil {
			mine, err = d.filterOwn(ctx, tx, messages)
		}
		return err
	})

	return mine, err
}

// attempt records an attempt to deliver messages. It leaves out messages for which another relay
// has recorded an attempt since this relay read them.
func (d *Database) attempt(ctx context.Context, tx Tx, messages []OutboxMessage) error {
	_, err := tx.Exec(ctx, d.sql(Outbox, d.dialect.attempt), encodeTries(messages, 0))
	return err
}

// filterOwn returns the messages whose last recorded attempt is this attempt. If it leaves out a
// message because another relay has made an attempt, it also leaves out the later messages to the
// same target.
func (d *Database) filterOwn(ctx context.Context, tx Tx, messages []OutboxMessage) ([]OutboxMessage, error) {
	var text string
	if err := tx.QueryRow(ctx, d.sql(Outbox, d.dialect.held), encodeTries(messages, 1)).Scan(&text); err != nil {
		return nil, err
	}
	var ids []string
	if err := json.Unmarshal([]byte(text), &ids); err != nil {
		return nil, err
	}
	missing := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(messages), func(l OutboxMessage) bool {
		missing[l.Execution] = missing[l.Execution] || !slices.Contains(ids, l.ID)
		return missing[l.Execution]
	}), nil
}

// encodeTries encodes the ids of messages with their numbers of attempts, for a statement.
func encodeTries(messages []OutboxMessage, more int) string {
	tries := make(map[string]int, len(messages))
	for i := range messages {
		tries[messages[i].ID] = messages[i].Tries + more
	}
	text, _ := json.Marshal(tries) //nolint:errchkjson // strings and numbers
	return string(text)
}

// patiently is like within, but retries if other transactions interfered.
func (d *Database) patiently(ctx context.Context, fn func(Tx) error) error {
	for try := 0; ; try++ {
		if err := d.within(ctx, fn); !isTransient(err) || !pause(ctx, try) {
			return err
		}
	}
}

// countFinal returns the number of verdicts, without messages that were not tried.
func countFinal(verdicts []Verdict) (n int) {
	for _, v := range verdicts {
		if v.Later || !v.Untried {
			n++
		}
	}
	return n
}

// judge applies verdicts.
func (d *Database) judge(ctx context.Context, tx Tx, messages []OutboxMessage, verdicts []Verdict) error {
	delivered, untried := []string{}, map[string]bool{}
	for _, v := range verdicts {
		var err error
		untried[v.ID] = v.Untried
		switch {
		case v.Refused != "":
			_, err = tx.Exec(ctx, d.sql(Outbox, `update {table} set error = $2 where id = $1 and error is null`), v.ID, v.Refused)
		case v.Later: // a second longer each time, at most a minute
			_, err = tx.Exec(ctx, d.sql(Outbox, `update {table} set due = {now} + 1000 * (case when tries < 60 then tries else 60 end) where id = $1`), v.ID)
		case v.Untried: // the message stays as it is
		default:
			delivered = append(delivered, v.ID)
		}
		if err != nil {
			return err
		}
	}

	if err := d.release(ctx, tx, messages, untried); err != nil || len(delivered) == 0 {
		return err
	}
	ids, err := json.Marshal(delivered)
	if err != nil {
		return err
	}

	_, err = tx.Exec(ctx, d.sql(Outbox, d.dialect.finished), string(ids))
	return err
}

// release removes the records of attempts that had no effect. It removes a record only if the
// record is about the first attempt, and no other relay has made an attempt since.
func (d *Database) release(ctx context.Context, tx Tx, messages []OutboxMessage, untried map[string]bool) error {
	for i := range messages {
		l := &messages[i]
		if l.Tried != 0 || !untried[l.ID] {
			continue
		}
		query := d.sql(Outbox, `update {table} set tried = null where id = $1 and tries = $2`)
		if _, err := tx.Exec(ctx, query, l.ID, int64(l.Tries)+1); err != nil {
			return err
		}
	}
	return nil
}

// InDoubt reports whether an earlier attempt to deliver the message may have succeeded so long ago
// that the receiver has forgotten that delivery. remembers is how long the receiver remembers.
// InDoubt keeps a quarter of that time as a margin, because a clock may be set while a message
// waits, and because the delivery takes time.
func (l *OutboxMessage) InDoubt(remembers time.Duration) bool {
	margin := remembers / 4
	age := millis(l.Now - l.Tried)
	return l.Tried != 0 && (age > remembers-margin || age < -margin)
}
