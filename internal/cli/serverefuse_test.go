package cli

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
)

// refused runs serve and returns its exit code and its complaint on one line.
func refused(ctx context.Context, change func(*options), args ...string) (code int, complaint string) {
	var err bytes.Buffer
	o := &options{Streams: Streams{In: strings.NewReader(""), Out: io.Discard, Err: &err}, connectInside: openStore, machine: thisMachine()}
	o.connect = o.connectOwn
	if change != nil {
		change(o)
	}
	// Without a deadline: the server would try until then to reach a database that it cannot use.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(5*time.Minute, cancel).Stop()
	code = o.run(ctx, append([]string{"serve"}, args...))
	return code, strings.Join(strings.Fields(err.String()), " ")
}

// shifted is a store with a clock that is wrong, or that answers late.
type shifted struct {
	store.Store

	by, late time.Duration
}

// Members returns the view with another time.
func (s shifted) Members(ctx context.Context) (store.View, error) {
	time.Sleep(s.late)
	v, err := s.Store.Members(ctx)
	v.Now = v.Now.Add(s.by)
	return v, err
}

// A database that a server cannot rely on is refused: one that may lose commits, has another
// encoding, or only reads; a clock that is wrong; a round trip that is too long for the lease; and
// in production a superuser. The server serves in all other cases.
func TestServeRefusesDatabases(t *testing.T) {
	t.Parallel()
	key := writeFile(t, t.TempDir(), "key", serveKey)
	server := pgtest.Start(t, pgtest.Options{Fsync: true})
	good := server.NewDatabase(t)
	run := func(statement string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	run("create database ascii template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'")
	run("create database reading template template0")
	run("alter database reading set default_transaction_read_only = on")
	run("create database careless template template0")
	run("alter database careless set synchronous_commit = off")
	run("create role app login password 'app'")
	run("create database owned template template0 owner app")
	owned, err := url.Parse(server.URL("owned"))
	if err != nil {
		t.Fatal(err)
	}
	owned.User = url.UserPassword("app", "app")

	clock := func(by time.Duration) func(*options) {
		return func(o *options) {
			o.wrap = func(s store.Store) store.Store { return shifted{Store: s, by: by} }
		}
	}
	slow := func(o *options) {
		o.wrap = func(s store.Store) store.Store { return shifted{Store: s, late: 100 * time.Millisecond} }
	}
	for _, c := range []struct {
		want, next string // what is wrong, and what to do
		code       int
		url        string
		change     func(*options)
		args       []string
	}{
		{"has the encoding SQL_ASCII", "create a database with encoding 'UTF8'", 2, server.URL("ascii"), nil, nil},
		{"is read only", "connect to the primary", 5, server.URL("reading"), nil, []string{"--store-wait", "1s"}},
		{"synchronous_commit=off and may lose commits", "set synchronous_commit=on", 2, server.URL("careless"), nil, nil},
		{"differ by 1h", "synchronize both clocks", 2, good, clock(90 * time.Minute), nil},
		{"differ by -", "synchronize both clocks", 2, good, clock(-time.Hour), nil},
		{"a lease of 1s is too short", "set --lease to", 2, good, slow, []string{"--lease", "1s"}},
		{"which is a superuser", "create a role that only owns the schema", 2, good, nil, []string{"--production"}},
		{"has version", "run `perdure migrate`", 4, owned.String(), nil, []string{"--no-migrate"}},
	} {
		file := writeFile(t, t.TempDir(), "perdure.toml", "store = '"+c.url+"'")
		code, complaint := refused(t.Context(), c.change, append([]string{"--config", file, "--listen", "127.0.0.1:0", "--admin-key-file", key}, c.args...)...)
		if code != c.code || !strings.Contains(complaint, c.want) || !strings.Contains(complaint, c.next) {
			t.Errorf("%s: exit %d, want %d, %q and %q:\n%s", strings.Join(c.args, " "), code, c.code, c.want, c.next, complaint)
		}
	}

	shown := openFile(t, t.TempDir(), "perdure.toml", "store = '"+owned.String()+"'")
	if code, complaint := refused(t.Context(), nil, "--config", shown, "--listen", "127.0.0.1:0", "--admin-key-file", key); code != 2 || !strings.Contains(complaint, "all users of this machine can read the password of the store") {
		t.Errorf("a password that all can read: exit %d: %s", code, complaint)
	}

	// A role that owns its schema, a clock that is a little wrong: the server serves.
	s := startServe(t, "--config", writeFile(t, t.TempDir(), "perdure.toml", "store = '"+owned.String()+"'\nproduction = true"), "--listen", "127.0.0.1:0", "--admin-key-file", key)
	s.end()
}

// A standby is refused until it is promoted.
func TestServeRefusesStandby(t *testing.T) {
	t.Parallel()
	key := writeFile(t, t.TempDir(), "key", serveKey)
	server := pgtest.Start(t, pgtest.Options{Fsync: true})
	url := server.URL("postgres")
	if err := server.Stop(pgtest.Fast); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(server.DataDir(), "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, t.TempDir(), "perdure.toml", "store = '"+url+"'")
	code, complaint := refused(t.Context(), nil, "--config", file, "--listen", "127.0.0.1:0", "--admin-key-file", key, "--store-wait", "1s")
	if code != 5 || !strings.Contains(complaint, "is read only (a standby") || !strings.Contains(complaint, "connect to the primary") {
		t.Errorf("a standby: exit %d: %s", code, complaint)
	}
}

// A machine that lets a server have too few files open is refused, by every kind of server.
func TestServeRefusesMachine(t *testing.T) { //nolint:paralleltest // it sets the environment
	key := writeFile(t, t.TempDir(), "key", serveKey)
	few := func(o *options) { o.machine.openFiles = func() (uint64, bool) { return 1024, true } }
	unknown := func(o *options) { o.machine.openFiles = func() (uint64, bool) { return 0, false } }

	for _, c := range []struct {
		want   string
		code   int
		change func(*options)
		env    map[string]string
		args   []string
	}{
		{"may have 1024 files and connections open, must be >= 4096 (raise the limit", 2, few, nil, nil},
		{"--listen is", 2, few, nil, []string{"--listen", "x"}},
		{"has no policy", 2, unknown, nil, []string{"--policies", writeFile(t, t.TempDir(), "a.cedar", "")}},
		{"may have 1024 files", 2, few, nil, []string{"--flovyn-contract"}},
		{"authentication is off, and --production is set", 2, nil, map[string]string{"FLOVYN_SECURITY_ENABLED": "false"}, []string{"--flovyn-contract", "--production"}},
		{"signatures of tokens are not verified, and --production is set", 2, nil, map[string]string{"JWT_SKIP_SIGNATURE_VERIFICATION": "true"}, []string{"--flovyn-contract", "--production"}},
		{"the admin key has 5 bytes, must be >= 16", 2, nil, map[string]string{"PERDURE_ADMIN_KEY": "short"}, []string{"--flovyn-contract"}},
		{"has no policy", 2, nil, nil, []string{"--flovyn-contract", "--policies", writeFile(t, t.TempDir(), "b.cedar", "")}},
		{"--log-format is", 2, nil, nil, []string{"--flovyn-contract", "--log-format", "xml"}},
		{"serve needs that of a store", 2, nil, map[string]string{"DATABASE_URL": "grpc://127.0.0.1:1"}, []string{"--flovyn-contract"}},
		{"tokens need an audience", 2, nil, nil, []string{"--flovyn-contract", "--jwt-keys", key, "--jwt-issuer", "i"}},
		{`$SERVER_PORT is "x", must be a port`, 2, nil, map[string]string{"SERVER_PORT": "x"}, []string{"--flovyn-contract"}},
	} {
		t.Run(c.want, func(t *testing.T) { //nolint:paralleltest // it sets the environment
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			code, complaint := refused(t.Context(), c.change, append([]string{"--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", key}, c.args...)...)
			if code != c.code || !strings.Contains(complaint, c.want) {
				t.Errorf("exit %d, want %d and %q:\n%s", code, c.code, c.want, complaint)
			}
		})
	}
}

// The limit of the control group becomes the limit of Go, unless the environment has one.
func TestMemoryLimit(t *testing.T) { //nolint:paralleltest // the limit is that of the process
	old := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(old) })
	dir := t.TempDir()
	for text, want := range map[string]int64{"1000000000\n": 900_000_000, "max\n": math.MaxInt64, "": math.MaxInt64} {
		debug.SetMemoryLimit(math.MaxInt64)
		writeFile(t, dir, "memory.max", text)
		m := machine{memory: func() (uint64, bool) { return memoryLimit(dir) }}
		m.limitMemory(slog.New(slog.DiscardHandler))
		if got := debug.SetMemoryLimit(-1); got != want {
			t.Errorf("memory.max is %q: the limit is %d, want %d", text, got, want)
		}
	}

	t.Setenv("GOMEMLIMIT", "1GiB")
	debug.SetMemoryLimit(math.MaxInt64)
	machine{memory: func() (uint64, bool) { return 1 << 30, true }}.limitMemory(slog.New(slog.DiscardHandler))
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("the limit is %d, although the environment has one", got)
	}
}

// A server has a floor for its heap, unless the environment says how far the heap may grow. The
// floor is smaller in a small container.
func TestHeapFloor(t *testing.T) { //nolint:paralleltest // the collector is that of the process
	t.Setenv("GOGC", "")
	old := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(old) })
	told := func() int {
		percent := debug.SetGCPercent(100)
		debug.SetGCPercent(percent)
		return percent
	}
	small := func() (uint64, bool) { return 40 << 20, true }
	unlimited := func() (uint64, bool) { return 0, false }

	runtime.GC()
	end := machine{memory: small}.floorHeap()
	if got := told(); got > 125 { // 5 MiB
		t.Errorf("the heap of a small container may grow by %d %%", got)
	}
	end()
	t.Setenv("GOGC", "100")
	end = machine{memory: unlimited}.floorHeap()
	if got := told(); got != 100 {
		t.Errorf("the heap may grow by %d %%, although the environment says 100", got)
	}
	end()
}
