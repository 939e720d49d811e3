package userdb

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Verdict is what became of a letter.
type Verdict struct {
	ID string
	// Refused is why it can never be delivered. Later is that it could not be delivered now, and is
	// put off. Untried is that this attempt was not made, or has certainly had no effect. None of
	// them: it was delivered.
	Refused string
	Later   bool
	Untried bool
}

// Round passes on one page of an outbox.
type Round struct {
	Cluster string
	// Reach tells whether the receiver can be reached. Otherwise no attempt is made, and none is
	// noted.
	Reach func(context.Context) error
	// Deliver delivers letters. What it returns no verdict for may have been delivered.
	Deliver func(context.Context, []Letter) []Verdict
	// Within is how long Deliver may take: its context ends then, and that of the round does not.
	// So one slow letter does not keep the verdicts on the others from being carried out.
	Within time.Duration
}

// deliver calls Deliver for as long as it may take.
func (r *Round) deliver(ctx context.Context, letters []Letter) []Verdict {
	if r.Within > 0 {
		limited, cancel := context.WithTimeout(ctx, r.Within)
		defer cancel()
		ctx = limited
	}
	return r.Deliver(ctx, letters)
}

// Bounds of a page of the outbox.
const (
	pageTransactions = 64
	pageBytes        = 4 << 20
)

// Relay takes a page of waiting letters and hands them to Deliver, in the order in which each
// transaction put them. What that returns a verdict for is removed, marked or put off; the rest
// waits. It returns how many letters were dealt with. A crash in between repeats deliveries.
//
// The attempt is noted and committed before Deliver is called. So every letter that may have been
// delivered has the time of its first attempt, however the relay ends.
//
// On PostgreSQL a relay keeps others from its letters while it delivers them. SQLite has one lock
// for everybody, so the relay does not hold it: there, two relays may deliver the same letter,
// which takes effect once.
func (d *Database) Relay(ctx context.Context, r *Round) (n int, err error) {
	letters, err := d.begun(ctx, r)
	if err != nil || len(letters) == 0 {
		return 0, err
	}

	if d.dialect == &postgres {
		err = d.within(ctx, func(tx Tx) error {
			mine, err := d.held(ctx, tx, letters)
			if err != nil || len(mine) == 0 {
				return err
			}
			verdicts := r.deliver(ctx, mine)
			n = decided(verdicts)
			return d.judge(ctx, tx, mine, verdicts)
		})
		return n, err
	}

	verdicts := r.deliver(ctx, letters)
	err = d.patiently(ctx, func(tx Tx) error { return d.judge(ctx, tx, letters, verdicts) })
	return decided(verdicts), err
}

// begun reads a page and notes that its letters are about to be delivered. They wait when the
// receiver cannot be reached.
func (d *Database) begun(ctx context.Context, r *Round) (letters []Letter, err error) {
	read := func(tx Tx) error {
		var text string
		if err := tx.QueryRow(ctx, d.sql(Outbox, d.dialect.page), r.Cluster, int64(pageTransactions), int64(pageBytes)).Scan(&text); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), &letters); err != nil || len(letters) == 0 {
			return err
		}
		return r.Reach(ctx)
	}

	if d.dialect == &postgres { // the page is locked until the attempt is noted
		err = d.within(ctx, func(tx Tx) error {
			if err := read(tx); err != nil || len(letters) == 0 {
				return err
			}
			return d.attempt(ctx, tx, letters)
		})
		return letters, err
	}

	if err = d.within(ctx, read); err != nil || len(letters) == 0 {
		return nil, err
	}
	var mine []Letter

	err = d.patiently(ctx, func(tx Tx) error {
		err := d.attempt(ctx, tx, letters)
		if err == nil {
			mine, err = d.held(ctx, tx, letters)
		}
		return err
	})

	return mine, err
}

// attempt notes that letters are about to be delivered, except those that another relay has begun
// to deliver since they were read.
func (d *Database) attempt(ctx context.Context, tx Tx, letters []Letter) error {
	_, err := tx.Exec(ctx, d.sql(Outbox, d.dialect.attempt), numbered(letters, 0))
	return err
}

// held are the letters whose last attempt is this one, without those that come after a missing one
// for the same target.
func (d *Database) held(ctx context.Context, tx Tx, letters []Letter) ([]Letter, error) {
	var text string
	if err := tx.QueryRow(ctx, d.sql(Outbox, d.dialect.held), numbered(letters, 1)).Scan(&text); err != nil {
		return nil, err
	}
	var ids []string
	if err := json.Unmarshal([]byte(text), &ids); err != nil {
		return nil, err
	}
	missing := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(letters), func(l Letter) bool {
		missing[l.Execution] = missing[l.Execution] || !slices.Contains(ids, l.ID)
		return missing[l.Execution]
	}), nil
}

// numbered is the ids of letters, each with the number of its attempts, for a statement.
func numbered(letters []Letter, more int) string {
	tries := make(map[string]int, len(letters))
	for i := range letters {
		tries[letters[i].ID] = letters[i].Tries + more
	}
	text, _ := json.Marshal(tries) //nolint:errchkjson // strings and numbers
	return string(text)
}

// patiently is within, repeated at once when others were in the way.
func (d *Database) patiently(ctx context.Context, fn func(Tx) error) error {
	for try := 0; ; try++ {
		if err := d.within(ctx, fn); !passing(err) || !pause(ctx, try) {
			return err
		}
	}
}

// decided is how many letters were dealt with.
func decided(verdicts []Verdict) (n int) {
	for _, v := range verdicts {
		if v.Later || !v.Untried {
			n++
		}
	}
	return n
}

// judge carries verdicts out.
func (d *Database) judge(ctx context.Context, tx Tx, letters []Letter, verdicts []Verdict) error {
	delivered, untried := []string{}, map[string]bool{}
	for _, v := range verdicts {
		var err error
		untried[v.ID] = v.Untried
		switch {
		case v.Refused != "":
			_, err = tx.Exec(ctx, d.sql(Outbox, `update {table} set error = $2 where id = $1 and error is null`), v.ID, v.Refused)
		case v.Later: // a second longer each time, at most a minute
			_, err = tx.Exec(ctx, d.sql(Outbox, `update {table} set due = {now} + 1000 * (case when tries < 60 then tries else 60 end) where id = $1`), v.ID)
		case v.Untried: // it waits
		default:
			delivered = append(delivered, v.ID)
		}
		if err != nil {
			return err
		}
	}

	if err := d.release(ctx, tx, letters, untried); err != nil || len(delivered) == 0 {
		return err
	}
	ids, err := json.Marshal(delivered)
	if err != nil {
		return err
	}

	_, err = tx.Exec(ctx, d.sql(Outbox, d.dialect.finished), string(ids))
	return err
}

// release takes back the notes of attempts that had no effect, where there was none before and
// nobody else has made one since.
func (d *Database) release(ctx context.Context, tx Tx, letters []Letter, untried map[string]bool) error {
	for i := range letters {
		l := &letters[i]
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

// InDoubt reports whether an earlier attempt to deliver the letter may have succeeded so long ago
// that the receiver has forgotten it. The receiver remembers for so long. A quarter of that is left
// for clocks that are set while a letter waits, and for the delivery.
func (l *Letter) InDoubt(remembers time.Duration) bool {
	margin := remembers / 4
	age := millis(l.Now - l.Tried)
	return l.Tried != 0 && (age > remembers-margin || age < -margin)
}
