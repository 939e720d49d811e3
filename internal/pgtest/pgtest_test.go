package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if helper, ok := helpers[os.Getenv(helperEnv)]; ok {
		helper()
		return
	}
	goleak.VerifyTestMain(Main(m))
}

// connect opens a connection that is closed at the end of the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// run runs a statement that must succeed.
func run(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// query returns the single value of a query.
func query[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// eventually waits for a condition that another process fulfils.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("still not true after a minute: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestURLGivesAFreshDatabaseAndDropsIt(t *testing.T) {
	t.Parallel()
	var first string
	t.Run("first", func(t *testing.T) {
		first = URL(t)
		conn := connect(t, first)
		run(t, conn, "create table left_over ()")
		// A connection that the test does not close must not prevent the drop of the database.
		if _, err := pgx.Connect(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	})

	conn := connect(t, URL(t))
	u, err := url.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	if n := query[int](t, conn, "select count(*)::int from pg_database where datname = $1", strings.TrimPrefix(u.Path, "/")); n != 0 {
		t.Errorf("the database of the first test still exists")
	}
	if n := query[int](t, conn, "select count(*)::int from pg_class where relnamespace = 'public'::regnamespace"); n != 0 {
		t.Errorf("a fresh database has %d relations, want 0", n)
	}
}

func TestURLInParallel(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}

	t.Run("group", func(t *testing.T) {
		for range 8 {
			t.Run("database", func(t *testing.T) {
				t.Parallel()
				conn := connect(t, URL(t))
				run(t, conn, "create table t (n int)")
				mu.Lock()
				defer mu.Unlock()
				seen[query[string](t, conn, "select current_database()")] = true
			})
		}
	})

	if len(seen) != 8 {
		t.Errorf("8 tests got %d databases", len(seen))
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	show := func(t *testing.T, conn *pgx.Conn, name, want string) {
		t.Helper()
		if got := query[string](t, conn, "select current_setting($1)", name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}

	t.Run("default", func(t *testing.T) {
		t.Parallel()
		conn := connect(t, URL(t))
		show(t, conn, "fsync", "off")
		show(t, conn, "synchronous_commit", "on")
		show(t, conn, "server_encoding", "UTF8")
	})

	t.Run("durable", func(t *testing.T) {
		t.Parallel()
		pg := Start(t, Options{
			Fsync: true,
			Settings: map[string]string{
				"max_connections": "17",
				"search_path":     `"it's quoted", public`,
			},
			InitArgs: []string{"--wal-segsize=1"},
		})

		conn := connect(t, pg.NewDatabase(t))
		show(t, conn, "fsync", "on")
		show(t, conn, "full_page_writes", "on")
		show(t, conn, "max_connections", "17")
		show(t, conn, "search_path", `"it's quoted", public`)
		show(t, conn, "wal_segment_size", "1MB")
		show(t, conn, "data_directory", pg.DataDir())
	})

	t.Run("environment and place", func(t *testing.T) {
		t.Parallel()
		dir := publicDir(t)
		pg := Start(t, Options{Dir: dir, Env: []string{"PGTZ=Asia/Tokyo"}})
		if !strings.HasPrefix(pg.DataDir(), dir) {
			t.Errorf("data directory %s is not in %s", pg.DataDir(), dir)
		}
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pg.PID()))
		if err != nil || !strings.Contains(string(environ), "PGTZ=Asia/Tokyo") {
			t.Errorf("environment of the server = %q, %v; want our variable in it", environ, err)
		}
	})
}

func TestRestart(t *testing.T) {
	t.Parallel()
	pg := Start(t, Options{})
	url := pg.NewDatabase(t)
	conn := connect(t, url)
	run(t, conn, "create table t (n int)")

	for n, mode := range []Mode{Fast, Immediate} {
		run(t, conn, "insert into t values ($1)", n)
		pid, addr := pg.PID(), pg.Addr()
		if err := pg.Restart(t.Context(), mode); err != nil {
			t.Fatalf("restart %v: %v", mode, err)
		}
		if pg.PID() == pid || pg.Addr() != addr {
			t.Errorf("after restart %v: pid %d → %d, address %s → %s; want a new process on the old address", mode, pid, pg.PID(), addr, pg.Addr())
		}
		if err := conn.Ping(t.Context()); err == nil {
			t.Errorf("a connection survived restart %v", mode)
		}
		conn = connect(t, url)
		if got := query[int](t, conn, "select count(*)::int from t"); got != n+1 {
			t.Errorf("after restart %v: %d rows, want %d", mode, got, n+1)
		}
	}

	log, err := os.ReadFile(pg.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"received fast shutdown request", "received immediate shutdown request", "automatic recovery in progress"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	pg := Start(t, Options{})
	url := pg.NewDatabase(t)
	conn := connect(t, url)
	run(t, conn, "create table t (n int)")
	run(t, conn, "insert into t values (1)")
	run(t, conn, "begin")
	run(t, conn, "insert into t values (2)")
	// A backend that is busy would outlive its postmaster until it next waits for something.
	busy, watcher := connect(t, url), connect(t, url)
	pid := query[int](t, busy, "select pg_backend_pid()")
	failed := make(chan error, 1)
	go func() {
		_, err := busy.Exec(t.Context(), "select count(*) from generate_series(1, 100000000000)")
		failed <- err
	}()
	eventually(t, "the query runs", func() bool {
		// Use another connection: inside a transaction, the view of other sessions does not change.
		return query[string](t, watcher, "select state from pg_stat_get_activity($1)", pid) == "active"
	})

	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
	if isRunning(pid) {
		t.Errorf("backend %d survived", pid)
	}
	if err := <-failed; err == nil {
		t.Error("the query of a killed backend succeeded")
	}
	if pg.PID() != 0 {
		t.Errorf("pid of a dead server = %d, want 0", pg.PID())
	}
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("a dead server accepts connections")
	}
	if err := errors.Join(pg.Kill(), pg.Stop(Fast)); err != nil {
		t.Errorf("kill and stop of a dead server: %v", err)
	}

	if err := pg.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn = connect(t, url)
	if got := query[int](t, conn, "select sum(n)::int from t"); got != 1 {
		t.Errorf("sum = %d, want the committed row alone", got)
	}
}

func TestStartAfterTheServerDiedByItself(t *testing.T) {
	t.Parallel()
	pg := Start(t, Options{})
	pid := pg.PID()
	backends, err := children(pid)
	if err != nil || len(backends) == 0 {
		t.Fatalf("backends = %v, %v", backends, err)
	}

	// One backend notices the death of its postmaster late, and the server cannot start before
	// that.
	slow := backends[0]
	if err := errors.Join(syscall.Kill(slow, syscall.SIGSTOP), waitStopped(slow, stopTimeout), syscall.Kill(pid, syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is known to be down", func() bool { return pg.PID() == 0 })
	started := make(chan error, 1)
	go func() { started <- pg.Start(t.Context()) }()

	eventually(t, "the server has tried to start", func() bool {
		log, err := os.ReadFile(pg.LogFile())
		return err == nil && strings.Contains(string(log), "pre-existing shared memory block")
	})

	if err := syscall.Kill(slow, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	connect(t, pg.URL("postgres"))
}

func TestStartReportsATakenPort(t *testing.T) {
	t.Parallel()
	pg := Start(t, Options{})
	if err := pg.Stop(Fast); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", pg.Addr())
	if err != nil {
		t.Fatal(err)
	}

	defer listener.Close()
	begin := time.Now()
	if err := pg.Start(t.Context()); !errors.Is(err, errPortTaken) {
		t.Fatalf("start on a taken port: %v, want %v", err, errPortTaken)
	}
	if took := time.Since(begin); took > startTimeout/2 {
		t.Errorf("it took %v to notice", took)
	}
	_ = listener.Close()
	if err := pg.Start(t.Context()); err != nil {
		t.Errorf("start on the port when it is free again: %v", err)
	}
}

func TestStartIsNotFooledByAnotherServerOnItsPort(t *testing.T) {
	t.Parallel()
	pg, other := Start(t, Options{}), Start(t, Options{})
	if pg.password != other.password {
		t.Fatal("the test needs two servers with the same password")
	}
	own := pg.port
	if err := pg.Stop(Fast); err != nil {
		t.Fatal(err)
	}
	pg.port = other.port
	if err := pg.Start(t.Context()); !errors.Is(err, errPortTaken) {
		t.Errorf("start on the port of another server: %v, want %v", err, errPortTaken)
	}
	pg.port = own
}

func TestClosedServerStaysClosed(t *testing.T) {
	t.Parallel()
	pg, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pg.Close(), pg.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pg.DataDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory of a closed server: %v, want it gone", err)
	}
	if err := pg.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("start of a closed server: %v, want an error that says so", err)
	}
}

func TestFailedStartShowsTheLog(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Options{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), `unrecognized configuration parameter "no_such_setting"`) {
		t.Errorf("error = %v, want the complaint of the server in it", err)
	}
	_, err = Open(t.Context(), Options{InitArgs: []string{"--no-such-option"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("error = %v, want the complaint of initdb in it", err)
	}
}

func TestExternalServer(t *testing.T) {
	pg := Start(t, Options{})
	t.Setenv(EnvURL, pg.URL("postgres")+"&application_name=kept")
	got := URL(t)
	conn := connect(t, got)
	if dir := query[string](t, conn, "show data_directory"); dir != pg.DataDir() {
		t.Errorf("%s leads to the server in %s, want the one in %s", got, dir, pg.DataDir())
	}
	if name := query[string](t, conn, "show application_name"); name != "kept" {
		t.Errorf("application_name = %q: the parameters of the URL are lost", name)
	}
	if _, err := withDatabase("mysql://localhost/x", "y"); err == nil {
		t.Error("the URL of something else was accepted")
	}
}

func TestDatabaseName(t *testing.T) {
	t.Parallel()
	got := databaseName("TestX/" + strings.Repeat("ä b\"", 40))
	if len(got) > 63 || strings.Trim(got, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		t.Errorf("databaseName = %q, want at most 63 plain characters", got)
	}
	if first, second := databaseName("x"), databaseName("x"); first == second {
		t.Error("two names are equal")
	}
}
