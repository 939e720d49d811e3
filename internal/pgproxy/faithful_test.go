package pgproxy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestForwardsFaithfully(t *testing.T) {
	t.Parallel()
	s := setup(t)
	// Clients that prefer TLS connect without it.
	conn := connect(t, strings.Replace(s.url, "sslmode=disable", "sslmode=prefer", 1))

	t.Run("large values both ways", func(t *testing.T) {
		var length int
		var back string
		value := strings.Repeat("perdure ", 1<<20)
		if err := conn.QueryRow(t.Context(), "select length($1::text), $1::text", value).Scan(&length, &back); err != nil {
			t.Fatal(err)
		}
		if length != len(value) || back != value {
			t.Errorf("sent %d bytes, the server got %d, %d came back", len(value), length, len(back))
		}
	})
	t.Run("many rows", func(t *testing.T) {
		rows, _ := conn.Query(t.Context(), "select n, repeat('x', n % 100) from generate_series(1, 100000) n")
		count := 0
		var n int
		var x string
		if _, err := pgx.ForEachRow(rows, []any{&n, &x}, func() error { count++; return nil }); err != nil || count != 100000 {
			t.Errorf("%d rows, %v; want 100000", count, err)
		}
	})
	t.Run("errors", func(t *testing.T) {
		var failed *pgconn.PgError
		if _, err := conn.Exec(t.Context(), "select $1::int / 0", 1); !errors.As(err, &failed) || failed.Code != "22012" {
			t.Errorf("error = %v, want a division by zero", err)
		}
		if _, err := conn.CopyFrom(t.Context(), pgx.Identifier{"missing"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}})); err == nil {
			t.Error("copied to a table that does not exist")
		}
		if err := conn.Ping(t.Context()); err != nil {
			t.Errorf("the connection after errors: %v", err)
		}
	})
	t.Run("copy", func(t *testing.T) {
		rows := make([][]any, 20000)
		for i := range rows {
			rows[i] = []any{i + 1000}
		}
		if n, err := conn.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"n"}, pgx.CopyFromRows(rows)); err != nil || n != 20000 {
			t.Errorf("copied %d rows, %v", n, err)
		}
		var out strings.Builder
		if _, err := conn.PgConn().CopyTo(t.Context(), &out, "copy t to stdout"); err != nil || strings.Count(out.String(), "\n") != 20000 {
			t.Errorf("copied %d rows out, %v", strings.Count(out.String(), "\n"), err)
		}
	})
	t.Run("notifications", func(t *testing.T) {
		s.exec(t, conn, "listen news")
		s.exec(t, s.direct, "notify news, 'hello'")
		if n, err := conn.WaitForNotification(t.Context()); err != nil || n.Payload != "hello" {
			t.Errorf("notification = %v, %v", n, err)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		sleeper := connect(t, s.url)
		failed := make(chan error, 1)
		go func() {
			_, err := sleeper.Exec(t.Context(), "select pg_sleep(1000)")
			failed <- err
		}()

		eventually(t, "the sleeper sleeps", func() bool {
			var n int
			err := s.direct.QueryRow(t.Context(), "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()").Scan(&n)
			return err == nil && n == 1
		})

		if err := sleeper.PgConn().CancelRequest(t.Context()); err != nil {
			t.Errorf("cancel: %v", err)
		}
		var cancelled *pgconn.PgError
		if err := <-failed; !errors.As(err, &cancelled) || cancelled.Code != "57014" {
			t.Errorf("error = %v, want a cancelled query", err)
		}
	})
	t.Run("orderly end", func(t *testing.T) {
		other := connect(t, s.url)
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
		eventually(t, "only the first connection is left", func() bool { return s.proxy.Conns() == 1 })
	})
	t.Run("not our protocol", func(t *testing.T) {
		if _, err := pgconn.Connect(t.Context(), strings.Replace(s.url, "sslmode=disable", "sslmode=require", 1)); err == nil {
			t.Error("TLS, out of the blue")
		}
		eventually(t, "only the first connection is left", func() bool { return s.proxy.Conns() == 1 })
	})
}
