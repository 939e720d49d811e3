package pgproxy_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// stage is a database with a proxy in front of it.
type stage struct {
	proxy  *pgproxy.Proxy
	url    string    // through the proxy
	server string    // without the proxy
	direct *pgx.Conn // without the proxy
}

func setup(t *testing.T) *stage {
	t.Helper()
	return setupIn(t, pgtest.URL(t), "main")
}

// setupIn creates a stage in a schema, because creating a database takes ten times as long.
func setupIn(t *testing.T, database, schema string) *stage {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	server := u.String()
	s := &stage{server: server, direct: connect(t, server)}
	s.exec(t, s.direct, "create schema "+schema)
	s.proxy = pgproxy.New(t, u.Host)
	s.url = s.proxy.URL(server)
	s.exec(t, s.direct, "create table t (n int primary key)")
	return s
}

// connect opens a connection that is closed at the end of the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

func (s *stage) exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// has asks the server directly, without the proxy, whether a row is committed.
func (s *stage) has(t *testing.T, n int) bool {
	t.Helper()
	return s.count(t, "select count(*) from t where n = $1", n) == 1
}

// count asks the server directly, without the proxy, for a number.
func (s *stage) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := s.direct.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// wait fails the test when a channel is not closed in time.
func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("still waiting after a minute: %s", what)
	}
}

// eventually waits for a condition on the server.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("still not true after a minute: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// writers insert a row in every way that commits.
var writers = map[string]func(ctx context.Context, conn *pgx.Conn, n int) error{
	"explicit commit": func(ctx context.Context, conn *pgx.Conn, n int) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into t values ($1)", n); err != nil {
			return err
		}
		return tx.Commit(ctx)
	},
	"implicit commit of a batch": func(ctx context.Context, conn *pgx.Conn, n int) error {
		var batch pgx.Batch
		batch.Queue("select 1")
		batch.Queue("insert into t values ($1)", n)
		batch.Queue("select 2")
		return conn.SendBatch(ctx, &batch).Close()
	},
	"explicit commit in a batch": func(ctx context.Context, conn *pgx.Conn, n int) error {
		var batch pgx.Batch
		batch.Queue("begin")
		batch.Queue("insert into t values ($1)", n)
		batch.Queue("commit")
		return conn.SendBatch(ctx, &batch).Close()
	},
	"autocommit, extended": func(ctx context.Context, conn *pgx.Conn, n int) error {
		_, err := conn.Exec(ctx, "insert into t values ($1)", n)
		return err
	},
	"autocommit, simple": func(ctx context.Context, conn *pgx.Conn, n int) error {
		_, err := conn.Exec(ctx, fmt.Sprintf("insert into t values (%d)", n))
		return err
	},
	"several statements": func(ctx context.Context, conn *pgx.Conn, n int) error {
		_, err := conn.Exec(ctx, fmt.Sprintf("begin; insert into t values (%d); commit", n))
		return err
	},
	"copy": func(ctx context.Context, conn *pgx.Conn, n int) error {
		_, err := conn.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"n"}, pgx.CopyFromRows([][]any{{n}}))
		return err
	},
	"copy in a transaction": func(ctx context.Context, conn *pgx.Conn, n int) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"n"}, pgx.CopyFromRows([][]any{{n}})); err != nil {
			return err
		}
		return tx.Commit(ctx)
	},
}

// everyWriter runs a test for each way to commit.
func everyWriter(t *testing.T, test func(t *testing.T, s *stage, conn *pgx.Conn, write func(context.Context, int) error)) {
	t.Parallel()
	database := pgtest.URL(t)
	schemas := 0
	for name, write := range writers {
		schemas++
		schema := fmt.Sprintf("s%d", schemas)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setupIn(t, database, schema)
			conn := connect(t, s.url)
			// The first write has no fault and must succeed. It also lets the driver prepare its
			// statements before the test starts.
			if err := write(t.Context(), conn, 0); err != nil || !s.has(t, 0) {
				t.Fatalf("undisturbed: %v, committed: %v", err, s.has(t, 0))
			}
			test(t, s, conn, func(ctx context.Context, n int) error { return write(ctx, conn, n) })
		})
	}
}

// lost checks that an error leaves the outcome open. It must not be an error that the server has
// sent.
func lost(t *testing.T, err error) {
	t.Helper()
	var answered *pgconn.PgError
	if err == nil || errors.As(err, &answered) {
		t.Errorf("error = %v, want one of the connection", err)
	}
}

func TestReset(t *testing.T) {
	everyWriter(t, func(t *testing.T, s *stage, _ *pgx.Conn, write func(context.Context, int) error) {
		trigger := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Reset})
		lost(t, write(t.Context(), 1))
		wait(t, "done", trigger.Done())
		if s.has(t, 1) {
			t.Error("a request that was reset before it reached the server is committed")
		}
		if reply := trigger.Reply(); reply.Reached || reply.Answered || reply.Committed() {
			t.Errorf("reply = %+v, want one of a request that never arrived", reply)
		}
	})
}

func TestDropReply(t *testing.T) {
	everyWriter(t, func(t *testing.T, s *stage, conn *pgx.Conn, write func(context.Context, int) error) {
		trigger := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply})
		lost(t, write(t.Context(), 1))
		// The client gets the error only after the server is done, so the row is committed already.
		if !s.has(t, 1) {
			t.Error("the server has answered, and the row is not there")
		}
		wait(t, "done", trigger.Done())
		if reply := trigger.Reply(); !reply.Reached || !reply.Committed() {
			t.Errorf("reply = %+v, want a commit", reply)
		}
		if !trigger.Request().Commits() {
			t.Errorf("request = %+v, want one that commits", trigger.Request())
		}
		if err := conn.Ping(t.Context()); err == nil {
			t.Error("the connection still works")
		}

		// The rule strikes only once.
		if err := writers["explicit commit"](t.Context(), connect(t, s.url), 2); err != nil {
			t.Errorf("the next commit: %v", err)
		}
	})
}

func TestDropReplyOfACommitThatFails(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.exec(t, s.direct, "create table d (n int unique deferrable initially deferred)")
	conn := connect(t, s.url)
	trigger := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply})
	_, err := conn.Exec(t.Context(), "insert into d values (1), (1)")
	lost(t, err)
	if reply := trigger.Reply(); reply.Committed() || reply.SQLState != "23505" || reply.String() != "error 23505" {
		t.Errorf("reply = %+v, want the unique violation that the client missed", reply)
	}

	// The server answers a COMMIT of a failed transaction with a rollback and no error.
	conn = connect(t, s.url)
	s.exec(t, conn, "begin")
	if _, err := conn.Exec(t.Context(), "select 1/0"); err == nil {
		t.Fatal("1/0")
	}
	trigger = s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply})
	_, err = conn.Exec(t.Context(), "commit")
	lost(t, err)
	if reply := trigger.Reply(); reply.Committed() || reply.String() != "ROLLBACK" {
		t.Errorf("reply = %+v, want a rollback", reply)
	}
}

func TestOrphan(t *testing.T) {
	everyWriter(t, func(t *testing.T, s *stage, _ *pgx.Conn, write func(context.Context, int) error) {
		release := make(chan struct{})
		trigger := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Orphan, Until: release})
		// The proxy cuts the client off immediately, not when it releases the request.
		lost(t, write(t.Context(), 1))
		wait(t, "hit", trigger.Hit())
		// A reader does not see the row now, but the row may still be committed later.
		if s.has(t, 1) {
			t.Error("committed before its time")
		}

		close(release)
		wait(t, "done", trigger.Done())
		if !s.has(t, 1) || !trigger.Reply().Committed() {
			t.Errorf("the orphan did not commit: %v", trigger.Reply())
		}
	})
}

// TestOrphanAndFence follows docs/architecture.md, "When a commit does not succeed": after an
// unknown outcome, the lane fences itself with an exclusive update of its own row. The update waits
// for the orphan or excludes it. Only after that does the lane read.
func TestOrphanAndFence(t *testing.T) {
	t.Parallel()
	commit := func(ctx context.Context, conn *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue("update fence set batch = batch + 1, epoch = 1/(case epoch when $1 then 1 else 0 end)", 1)
		batch.Queue("insert into t values ($1)", 1)
		return conn.SendBatch(ctx, &batch).Close()
	}
	for name, test := range map[string]struct {
		hold      pgproxy.Hold
		committed bool
		reply     string
	}{
		"the orphan holds the row: the fence waits until the orphan has committed":   {pgproxy.HoldCommit, true, "UPDATE 1, INSERT 0 1"},
		"the orphan has not begun: the fence is first, and the orphan never commits": {pgproxy.HoldRequest, false, "error 22012"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			s.exec(t, s.direct, "create table fence (epoch int, batch int)")
			s.exec(t, s.direct, "insert into fence values (1, 0)")
			conn := connect(t, s.url)
			release := make(chan struct{})
			trigger := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Orphan, Until: release, Hold: test.hold})
			lost(t, commit(t.Context(), conn))
			wait(t, "hit", trigger.Hit())
			begun := func() bool {
				t.Helper()
				return s.count(t, "select count(*) from pg_locks where mode = 'RowExclusiveLock' and relation = 't'::regclass") > 0
			}
			if test.hold == pgproxy.HoldCommit {
				eventually(t, "the orphan has done its statements", begun)
			} else if begun() {
				t.Error("the orphan has done its statements")
			}

			fenced := make(chan error, 1)
			fence := connect(t, s.server)
			go func() {
				_, err := fence.Exec(t.Context(), "update fence set epoch = 2")
				fenced <- err
			}()
			if test.hold == pgproxy.HoldCommit {
				eventually(t, "the fence waits for the orphan", func() bool {
					return s.count(t, "select count(*) from pg_locks where not granted and pid = $1", fence.PgConn().PID()) > 0
				})
				close(release)
			}
			if err := <-fenced; err != nil {
				t.Fatal(err)
			}
			if got := s.has(t, 1); got != test.committed {
				t.Errorf("behind the fence: committed = %v, want %v", got, test.committed)
			}

			if test.hold != pgproxy.HoldCommit {
				close(release)
			}
			wait(t, "done", trigger.Done())
			if got := s.has(t, 1); got != test.committed {
				t.Errorf("at the end: committed = %v, want %v", got, test.committed)
			}
			if reply := trigger.Reply(); reply.String() != test.reply {
				t.Errorf("reply = %q, want %q", reply, test.reply)
			}
		})
	}
}

func TestHang(t *testing.T) {
	everyWriter(t, func(t *testing.T, s *stage, _ *pgx.Conn, write func(context.Context, int) error) {
		trigger := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Hang})
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { failed <- write(ctx, 1) }()
		wait(t, "done", trigger.Done())
		if !s.has(t, 1) || !trigger.Reply().Committed() {
			t.Errorf("not committed: %v", trigger.Reply())
		}
		select {
		case err := <-failed:
			t.Errorf("the client got an answer: %v", err)
		default:
		}
		cancel()
		lost(t, <-failed)
	})
}

func TestDelay(t *testing.T) {
	everyWriter(t, func(t *testing.T, s *stage, _ *pgx.Conn, write func(context.Context, int) error) {
		const delay = 100 * time.Millisecond
		for n, hold := range []pgproxy.Hold{pgproxy.HoldRequest, pgproxy.HoldCommit} {
			trigger := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Delay, Delay: delay, Hold: hold})
			begin := time.Now()
			if err := write(t.Context(), n+1); err != nil {
				t.Errorf("the delayed write failed: %v", err)
			}
			if took := time.Since(begin); took < delay {
				t.Errorf("took %v, want at least %v", took, delay)
			}
			wait(t, "done", trigger.Done())
			if !s.has(t, n+1) || !trigger.Reply().Committed() {
				t.Errorf("not committed: %v", trigger.Reply())
			}
		}
	})
}

func TestDelayCommits(t *testing.T) {
	everyWriter(t, func(t *testing.T, s *stage, conn *pgx.Conn, write func(context.Context, int) error) {
		const delay = 100 * time.Millisecond
		s.proxy.DelayCommits(delay)
		for n := range 2 {
			begin := time.Now()
			if err := write(t.Context(), n+1); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took < delay {
				t.Errorf("a commit took %v, want at least %v", took, delay)
			}
		}

		// With a delay of an hour, the test ends only if a ping is not delayed, and if commits are
		// no longer delayed after the reset.
		s.proxy.DelayCommits(time.Hour)
		if err := conn.Ping(t.Context()); err != nil {
			t.Errorf("a request that commits nothing: %v", err)
		}
		s.proxy.DelayCommits(0)
		if err := write(t.Context(), 10); err != nil {
			t.Errorf("a commit after the delay has been lifted: %v", err)
		}
	})
}

func TestHoldCommitKeepsTheLocks(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn := connect(t, s.url)
	s.proxy.DelayCommits(time.Hour)
	failed := make(chan error, 1)
	go func() { failed <- writers["implicit commit of a batch"](t.Context(), conn, 1) }()

	eventually(t, "the batch has written, and waits to commit", func() bool {
		_, err := s.direct.Exec(t.Context(), "set lock_timeout = '50ms'; insert into t values (1); delete from t")
		var refused *pgconn.PgError
		return errors.As(err, &refused) && refused.Code == "55P03"
	})

	s.proxy.CutAll()
	lost(t, <-failed)
	eventually(t, "the server has rolled back the batch whose connection was cut", func() bool {
		_, err := s.direct.Exec(t.Context(), "insert into t values (1)")
		return err == nil
	})
}

func TestNthMatchAndCancel(t *testing.T) {
	t.Parallel()
	s := setup(t)
	write := func(n int) error { return writers["explicit commit"](t.Context(), connect(t, s.url), n) }

	third := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Reset, Nth: 3})
	for n := 1; n <= 4; n++ {
		if err := write(n); (err != nil) != (n == 3) {
			t.Errorf("commit %d: %v; want the third to fail", n, err)
		}
	}
	wait(t, "the third", third.Done())

	count := 0
	special := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply, Match: func(r pgproxy.Request) bool {
		count++
		return r.Client["application_name"] == "special" && pgproxy.Mentions("insert into T")(r)
	}})
	if err := write(5); err != nil {
		t.Errorf("a request that does not match: %v", err)
	}
	if count < 3 { // begin, insert, commit, and what the driver prepares
		t.Errorf("the rule saw %d requests, want all", count)
	}
	conn := connect(t, s.url+"&application_name=special")
	_, err := conn.Exec(t.Context(), "insert into t values (6)")
	lost(t, err)
	if r := special.Request(); r.Kind != pgproxy.Query || r.InTx || len(r.SQL) != 1 || r.Conn == 0 {
		t.Errorf("request = %+v", r)
	}
	if special.Cancel() {
		t.Error("a rule that has struck was withdrawn")
	}

	never := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Reset})
	if !never.Cancel() || never.Cancel() {
		t.Error("a rule that waits must be withdrawn once")
	}
	if err := write(7); err != nil {
		t.Errorf("a withdrawn rule struck: %v", err)
	}

	// Both rules match both commits. The first rule strikes the first commit, the second rule the
	// second.
	first := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Reset})
	second := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply})
	lost(t, write(8))
	lost(t, write(9))
	if s.has(t, 8) || !s.has(t, 9) || first.Reply().Reached || !second.Reply().Committed() {
		t.Errorf("first: %v, second: %v; want a reset and then a lost reply", first.Reply(), second.Reply())
	}
}

func TestTheServersWordOnTransactionsCounts(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn := connect(t, s.url)

	// The client has sent a BEGIN, but no transaction block is open: the server has skipped
	// everything after the error.
	var batch pgx.Batch
	batch.Queue("select 1/0")
	batch.Queue("begin")
	if err := conn.SendBatch(t.Context(), &batch).Close(); err == nil {
		t.Fatal("1/0")
	}

	trigger := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.DropReply})
	lost(t, writers["autocommit, simple"](t.Context(), conn, 1))
	if trigger.Request().InTx || !s.has(t, 1) {
		t.Errorf("request = %+v, committed = %v; want a commit outside a transaction block", trigger.Request(), s.has(t, 1))
	}
}

func TestACopyIsStruckOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn := connect(t, s.url)
	begin := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Delay, Delay: time.Millisecond, Match: pgproxy.Mentions("copy")})
	end := s.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Delay, Delay: time.Millisecond})
	if err := writers["copy"](t.Context(), conn, 1); err != nil {
		t.Fatal(err)
	}
	wait(t, "the copy is done", begin.Done())
	if got := begin.Reply().String(); got != "COPY 1" {
		t.Errorf("reply = %q, want the reply to the whole copy", got)
	}
	if !end.Cancel() {
		t.Error("the same copy was struck a second time")
	}
}

func TestUnknownFaultIsAMistake(t *testing.T) {
	t.Parallel()
	s := setup(t)
	defer func() {
		if recover() == nil {
			t.Error("a rule without a fault was accepted")
		}
	}()
	s.proxy.Inject(pgproxy.Rule{})
}

func TestNothingBehindAStruckRequestReachesTheServer(t *testing.T) {
	t.Parallel()
	for _, fault := range []pgproxy.Fault{pgproxy.Reset, pgproxy.DropReply, pgproxy.Orphan, pgproxy.Hang} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			conn := connect(t, s.url)
			trigger := s.proxy.Inject(pgproxy.Rule{Fault: fault, Nth: 2})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			// Three transactions in flight at the same time, each with its own Sync.
			pipeline := conn.PgConn().StartPipeline(ctx)
			for n := 1; n <= 3; n++ {
				pipeline.SendQueryParams(fmt.Sprintf("insert into t values (%d)", n), nil, nil, nil, nil)
				pipeline.SendPipelineSync()
			}

			if err := pipeline.Flush(); err != nil {
				t.Fatal(err)
			}

			// DropReply and Hang let the client read the answer to the first transaction. Reset and
			// Orphan cut the client off immediately, so it may miss that answer.
			results, err := pipeline.GetResults()
			if err == nil {
				_, err = results.(*pgconn.ResultReader).Close()
			}

			if fault == pgproxy.DropReply || fault == pgproxy.Hang {
				if err != nil {
					t.Errorf("the answer before the one that is lost: %v", err)
				}
			}

			wait(t, "done", trigger.Done())
			cancel()
			_ = pipeline.Close()
			s.proxy.CutAll()
			if !s.has(t, 1) && fault != pgproxy.Reset {
				t.Error("the first is not committed")
			}
			if s.has(t, 2) != (fault != pgproxy.Reset) {
				t.Errorf("the second: committed = %v", s.has(t, 2))
			}
			if s.has(t, 3) {
				t.Error("the third is committed")
			}
		})
	}
}
