package pgproxy_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
)

// A throttled path is as slow as its rate says. A client that gives up in the middle of a request
// leaves no trace on the server.
func TestThrottle(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn := connect(t, s.url)
	const rate, size = 4 << 20, 2 << 20
	s.proxy.Throttle(rate)
	begun := time.Now()
	var n int
	if err := conn.QueryRow(t.Context(), "select length($1::text)", strings.Repeat("x", size)).Scan(&n); err != nil || n != size {
		t.Fatalf("%d, %v", n, err)
	}

	if took := time.Since(begun); took < time.Second*size/rate {
		t.Errorf("%d bytes took %s at %d per second", size, took, rate)
	}
	s.proxy.Throttle(1 << 20)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := conn.Exec(ctx, "insert into t select 1 where length($1::text) > 0", strings.Repeat("x", 16<<20))
	lost(t, err)
	_ = conn.PgConn().Conn().Close()
	s.proxy.Throttle(0)
	eventually(t, "the connection has ended", func() bool { return s.proxy.Conns() == 0 })
	if s.has(t, 1) {
		t.Error("half of a request came through")
	}
}

func TestBlackhole(t *testing.T) {
	t.Parallel()
	sessions := func(t *testing.T, s *stage) (n int) {
		t.Helper()
		err := s.direct.QueryRow(t.Context(), "select count(*) from pg_stat_activity where application_name = 'client' and datname = current_database()").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// start blocks directions while a client is connected, lets the client write, and then closes
	// its connection.
	start := func(t *testing.T, directions ...pgproxy.Direction) *stage {
		t.Helper()
		s := setup(t)
		conn := connect(t, s.url+"&application_name=client")
		s.proxy.Blackhole(directions...)
		s.proxy.Blackhole(directions...) // a second call changes nothing
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := conn.Exec(ctx, "insert into t values (1)")
		lost(t, err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v, want silence until the deadline", err)
		}

		// The driver closes its connection only after it has tried to cancel the query, for up to
		// 15 s.
		_ = conn.PgConn().Conn().Close()
		return s
	}

	t.Run("to the client", func(t *testing.T) {
		t.Parallel()
		s := start(t, pgproxy.ToClient)
		// The way to the server is open, but the client may have given up before the server was
		// done.
		eventually(t, "the row is there", func() bool { return s.has(t, 1) })
		// The server learns that its client is gone.
		eventually(t, "the session has ended", func() bool { return sessions(t, s) == 0 })
	})
	t.Run("to the server", func(t *testing.T) {
		t.Parallel()
		s := start(t, pgproxy.ToServer)
		if s.has(t, 1) {
			t.Error("the request came through")
		}
		// The server does not learn that its client is gone, and keeps its session.
		if n := sessions(t, s); n != 1 {
			t.Errorf("%d sessions, want the one of the lost client", n)
		}
		s.proxy.Heal()
		eventually(t, "the session has ended", func() bool { return sessions(t, s) == 0 })
	})
	t.Run("both", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := pgx.Connect(ctx, s.url); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a new connection: %v, want silence until the deadline", err)
		}
		s.proxy.Heal()
		s.proxy.Heal() // a second call changes nothing
		if err := connect(t, s.url).Ping(t.Context()); err != nil {
			t.Errorf("healed: %v", err)
		}
	})
	t.Run("a patient client", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		conn := connect(t, s.url)
		s.proxy.Blackhole()
		answered := make(chan error, 1)
		go func() { answered <- writers["autocommit, simple"](t.Context(), conn, 1) }()
		select {
		case err := <-answered:
			t.Errorf("an answer out of a black hole: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		s.proxy.Heal()
		if err := <-answered; err != nil || !s.has(t, 1) {
			t.Errorf("a client that waited: %v, want its row and an answer in the end", err)
		}
	})
	t.Run("a client that leaves", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		conn := connect(t, s.url+"&application_name=client")
		s.proxy.Blackhole(pgproxy.ToServer)
		_ = conn.PgConn().Conn().Close()
		time.Sleep(100 * time.Millisecond) // nothing may happen in this time
		if n := sessions(t, s); n != 1 {
			t.Errorf("%d sessions, want one: the server cannot know", n)
		}
		s.proxy.Heal()
		eventually(t, "the session has ended", func() bool { return sessions(t, s) == 0 })
	})
	t.Run("a server that leaves", func(t *testing.T) {
		t.Parallel()
		s := setup(t)
		conn := connect(t, s.url+"&application_name=client")
		s.proxy.Blackhole(pgproxy.ToClient)
		s.exec(t, s.direct, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'client' and datname = current_database()")
		eventually(t, "the session has ended", func() bool { return sessions(t, s) == 0 })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := conn.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v, want silence: the client cannot know", err)
		}
	})
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		s.proxy.CutAll()
		eventually(t, "the session has ended", func() bool { return sessions(t, s) == 0 })
		if s.has(t, 1) {
			t.Error("the request came through")
		}
	})
}

func TestRetargetAndCutAll(t *testing.T) {
	t.Parallel()
	first, second := pgtest.Start(t, pgtest.Options{}), pgtest.Start(t, pgtest.Options{})
	proxy := pgproxy.New(t, first.Addr())

	port := func(conn *pgx.Conn) (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), "select current_setting('port')::int").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}

	if first.URL("x") == second.URL("x") {
		t.Fatal("one server")
	}
	conn := connect(t, proxy.URL(first.URL("postgres")))
	if got := port(conn); got != first.Port() {
		t.Fatalf("port %d, want %d", got, first.Port())
	}

	proxy.Retarget(second.Addr())
	if got := port(conn); got != first.Port() {
		t.Errorf("an old connection has moved to port %d", got)
	}
	if got := port(connect(t, proxy.URL(second.URL("postgres")))); got != second.Port() {
		t.Errorf("a new connection goes to port %d, want %d", got, second.Port())
	}
	if n := proxy.Conns(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	proxy.CutAll()
	if n := proxy.Conns(); n != 0 {
		t.Errorf("%d connections after they were cut", n)
	}
	err := conn.Ping(t.Context())
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that was cut: %v, want a reset", err)
	}

	// No server listens.
	if err := second.Stop(pgtest.Fast); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), proxy.URL(second.URL("postgres"))); err == nil {
		t.Error("connected to a server that is down")
	}
}

func TestLastWordsOfTheServer(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t, pgtest.Options{})
	proxy := pgproxy.New(t, pg.Addr())
	conn := connect(t, proxy.URL(pg.NewDatabase(t)))
	trigger := proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply, Match: pgproxy.Mentions("pg_sleep")})
	sleeper := connect(t, proxy.URL(pg.URL("postgres")))
	failed := make(chan error, 1)
	go func() {
		_, err := sleeper.Exec(t.Context(), "select pg_sleep(1000)")
		failed <- err
	}()
	wait(t, "the sleeper sleeps", trigger.Hit())

	if err := pg.Stop(pgtest.Fast); err != nil {
		t.Fatal(err)
	}
	err := conn.Ping(t.Context())
	var last *pgconn.PgError
	if !errors.As(err, &last) || last.Code != "57P01" {
		t.Errorf("error = %v, want what the server said when it shut down", err)
	}
	lost(t, <-failed)
	if reply := trigger.Reply(); !reply.Reached || reply.Answered || reply.Committed() || reply.SQLState != "57P01" {
		t.Errorf("reply = %+v, want the end of the session instead of an answer", reply)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn := connect(t, s.url)
	waiting := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Orphan, Delay: time.Hour})
	lost(t, writers["autocommit, simple"](t.Context(), conn, 1))
	if err := s.proxy.Close(); err != nil {
		t.Error(err)
	}
	if reply := waiting.Reply(); reply.Reached || reply.String() != "never sent" {
		t.Errorf("reply = %v, want none: the proxy was closed first", reply)
	}
	if s.proxy.Conns() != 0 || s.has(t, 1) {
		t.Error("something is left of the connection")
	}
	if _, err := pgx.Connect(t.Context(), s.url); err == nil {
		t.Error("connected to a closed proxy")
	}
	if err := s.proxy.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}
