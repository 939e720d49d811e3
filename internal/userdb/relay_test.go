package userdb_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/userdb"
)

// putMessages puts messages with the ids into the outbox. The first character of an id is the key
// of the execution that receives the message.
func putMessages(t *testing.T, db *sql.DB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := db.ExecContext(t.Context(), `insert into perdure_outbox (id, cluster, kind, execution, body) values ($1, 'c', 'signal', $2, $3)`,
			id, "w/"+id[:1], []byte("body")); err != nil {
			t.Fatal(err)
		}
	}
}

// notes returns the messages whose first attempt is recorded.
func notes(t *testing.T, db *sql.DB) (ids []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `select id from perdure_outbox where tried is not null order by id`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()

	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

func reach(context.Context) error { return nil }

// relay makes one round and returns the messages that Deliver got.
func relay(t *testing.T, d *userdb.Database, verdict func(*userdb.OutboxMessage) (userdb.Verdict, bool)) (got []userdb.OutboxMessage) {
	t.Helper()
	_, err := d.Relay(t.Context(), &userdb.Round{Cluster: "c", Reach: reach, Deliver: func(_ context.Context, messages []userdb.OutboxMessage) (verdicts []userdb.Verdict) {
		got = messages
		for i := range messages {
			if v, ok := verdict(&messages[i]); ok {
				v.ID = messages[i].ID
				verdicts = append(verdicts, v)
			}
		}
		return verdicts
	}})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func unknown(*userdb.OutboxMessage) (userdb.Verdict, bool) { return userdb.Verdict{}, false }

// The relay records and commits the time of the first attempt before the delivery. Later attempts
// do not change that time.
func TestAttemptIsNotedBeforeDelivery(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, d *userdb.Database) {
		putMessages(t, db, "a")
		got := relay(t, d, func(*userdb.OutboxMessage) (userdb.Verdict, bool) {
			if n := notes(t, db); len(n) != 1 { // reads on another connection
				t.Errorf("while it is delivered, %v are noted", n)
			}
			return userdb.Verdict{}, false
		})
		if len(got) != 1 || got[0].Tried != 0 || got[0].Tries != 0 {
			t.Fatalf("%+v", got)
		}

		if _, err := db.ExecContext(t.Context(), `update perdure_outbox set tried = 7`); err != nil {
			t.Fatal(err)
		}

		for n := range 2 {
			got = relay(t, d, func(*userdb.OutboxMessage) (userdb.Verdict, bool) {
				return userdb.Verdict{Later: n == 1, Untried: n == 1}, n == 1
			})
			if len(got) != 1 || got[0].Tried != 7 || got[0].Tries != n+1 {
				t.Fatalf("%+v", got)
			}
		}

		if n := notes(t, db); len(n) != 1 {
			t.Error("a later attempt that had no effect has erased the note of the first")
		}
	})
}

// The relay records nothing while the receiver cannot be reached, because the message has certainly
// not been delivered.
func TestNothingIsNotedInAnOutage(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, d *userdb.Database) {
		putMessages(t, db, "a", "b")
		away := errors.New("away")
		_, err := d.Relay(t.Context(), &userdb.Round{Cluster: "c", Reach: func(context.Context) error { return away }, Deliver: func(context.Context, []userdb.OutboxMessage) []userdb.Verdict {
			t.Error("messages are delivered")
			return nil
		}})
		if !errors.Is(err, away) {
			t.Errorf("error %v", err)
		}
		if n := notes(t, db); len(n) != 0 {
			t.Errorf("%v are noted", n)
		}
	})
}

// The relay removes the record of an attempt that had no effect. It keeps the record if it does not
// know whether the attempt had an effect.
func TestNotesOfAttemptsWithoutEffect(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, d *userdb.Database) {
		putMessages(t, db, "a", "b", "c", "d", "e")
		relay(t, d, func(l *userdb.OutboxMessage) (userdb.Verdict, bool) {
			return map[string]userdb.Verdict{
				"b": {Untried: true}, "c": {Later: true, Untried: true}, "d": {Later: true}, "e": {},
			}[l.ID], l.ID != "a"
		})

		if n := notes(t, db); !slices.Equal(n, []string{"a", "d"}) {
			t.Errorf("%v are noted", n)
		}
		got := relay(t, d, unknown)
		var ids []string
		for i := range got {
			ids = append(ids, got[i].ID)
		}
		if !slices.Equal(ids, []string{"a", "b"}) { // c and d are deferred
			t.Errorf("%v are delivered next", ids)
		}
	})
}

// A relay does not remove the record of its attempt if another relay has begun to deliver the
// message since then.
func TestTwoRelaysOfOneMessage(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, d *userdb.Database) {
		putMessages(t, db, "a", "a2", "b")
		other := func() {
			if _, err := db.ExecContext(t.Context(), `update perdure_outbox set tries = tries + 1, tried = 7 where id = 'a' and tries = 1`); err != nil {
				t.Error(err)
			}
		}

		asked := 0
		_, err := d.Relay(t.Context(), &userdb.Round{
			Cluster: "c", Reach: func(context.Context) error {
				asked++
				return nil
			},
			Deliver: func(_ context.Context, messages []userdb.OutboxMessage) (verdicts []userdb.Verdict) {
				for i := range messages {
					verdicts = append(verdicts, userdb.Verdict{ID: messages[i].ID, Untried: true})
				}
				// On PostgreSQL the row is locked, so the other relay cannot take the message.
				if isSQLite(t, db) {
					other()
				}
				return verdicts
			},
		})
		if err != nil || asked != 1 {
			t.Fatal(asked, err)
		}

		want := []string{}
		if isSQLite(t, db) {
			want = []string{"a"}
		}
		if n := notes(t, db); !slices.Equal(n, want) {
			t.Errorf("%v are noted, want %v", n, want)
		}
	})
}

func isSQLite(t *testing.T, db *sql.DB) bool {
	t.Helper()
	return db.QueryRowContext(t.Context(), `select sqlite_version()`).Scan(new(string)) == nil
}

// A message is in doubt if its first attempt is so old, by the clock of the database, that the
// receiver may have forgotten the message. A message is also in doubt if the time of its first
// attempt is in the future. In that case the clock was set back, and the age of the attempt is
// unknown.
func TestInDoubt(t *testing.T) {
	t.Parallel()
	const now = int64(1_700_000_000_000)
	for age, want := range map[time.Duration]bool{
		0: false, 17 * time.Hour: false, 19 * time.Hour: true, 1000 * time.Hour: true, -time.Minute: false, -7 * time.Hour: true,
	} {
		l := userdb.OutboxMessage{Now: now, Tried: now - age.Milliseconds()}
		if l.InDoubt(24*time.Hour) != want {
			t.Errorf("tried %s ago: in doubt %v", age, !want)
		}
	}
	if l := (userdb.OutboxMessage{Now: now}); l.InDoubt(24 * time.Hour) {
		t.Error("a message that was never tried is in doubt")
	}
}

// Open upgrades the outbox of an older version. Because that version recorded no attempts, the
// upgrade sets the time of the first attempt of each waiting message to the time when the message
// was put.
func TestOutboxOfAnOlderVersion(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, _ *userdb.Database) {
		older := []string{`alter table perdure_outbox drop column tried`, `insert into perdure_outbox (id, cluster, kind, execution, at, body) values ('a', 'c', 'signal', 'w/a', 5, '')`}
		for _, query := range older {
			if _, err := db.ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}

		opened := make(chan error, 3)
		d := make([]*userdb.Database, 3)
		for i := range d {
			d[i] = userdb.New(userdb.Source{Pool: db, Begin: func(ctx context.Context) (userdb.Tx, error) {
				in, err := db.BeginTx(ctx, nil)
				return tx{in}, err
			}})
			go func() { opened <- d[i].Open(t.Context(), userdb.Outbox) }()
		}

		for range d {
			if err := <-opened; err != nil {
				t.Error(err)
			}
		}

		putMessages(t, db, "b")
		got := relay(t, d[0], unknown)
		if len(got) != 2 || got[0].Tried != 5 || !got[0].InDoubt(24*time.Hour) || got[1].Tried != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// If the delivery of one message takes all the time of a round, the relay defers that message, and
// removes the other messages, which it has delivered.
func TestSlowDeliveryKeepsBackNobody(t *testing.T) {
	onDatabases(t, func(t *testing.T, db *sql.DB, d *userdb.Database) {
		putMessages(t, db, "a", "b")
		_, err := d.Relay(t.Context(), &userdb.Round{Cluster: "c", Within: time.Millisecond, Reach: reach, Deliver: func(ctx context.Context, _ []userdb.OutboxMessage) []userdb.Verdict {
			<-ctx.Done()
			return []userdb.Verdict{{ID: "a", Later: true}, {ID: "b"}}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if n := notes(t, db); !slices.Equal(n, []string{"a"}) {
			t.Errorf("%v are left", n)
		}
		if got := relay(t, d, unknown); len(got) != 0 {
			t.Errorf("%+v are delivered at once", got)
		}
	})
}
