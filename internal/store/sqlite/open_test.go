package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Config{
		"file:app.db":                                 {Path: "app.db"},
		"FILE:app.db":                                 {Path: "app.db"},
		"file:./data/app.db":                          {Path: "./data/app.db"},
		"file:/var/lib/app.db":                        {Path: "/var/lib/app.db"},
		"file:///var/lib/app.db":                      {Path: "/var/lib/app.db"},
		"file://localhost/var/lib/app.db":             {Path: "/var/lib/app.db"},
		"file:a%20b%3Fc.db":                           {Path: "a b?c.db"},
		"file:app.db?shards=32":                       {Path: "app.db", Shards: 32},
		"file:app.db?readonly=true":                   {Path: "app.db", ReadOnly: true},
		"file:app.db?readonly=0&readers=2&wal_mib=64": {Path: "app.db", Readers: 2, WALSize: 64 << 20},
		"app.db":            {Path: "app.db"},
		"./data/app.db":     {Path: "./data/app.db"},
		"/var/lib/app:1.db": {Path: "/var/lib/app:1.db"},
		`C:\data\app.db`:    {Path: `C:\data\app.db`},
		"file:app.db?":      {Path: "app.db"},
	} {
		got, err := ParseURL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}

	for text, says := range map[string]string{
		"":                                "is empty",
		"file:":                           "names no file",
		"file:///":                        "names no file",
		"file:?shards=4":                  "names no file",
		":memory:":                        "memory:",
		"postgres://host/db":              `scheme "postgres", want file`,
		"sqlite:app.db":                   `scheme "sqlite", want file`,
		"file://data/app.db":              `names the host "data"`,
		"file:app.db#top":                 "fragment",
		"app.db?shards=4":                 "write file: in front",
		"file:a%zz.db":                    "write %25",
		"file:app.db?shard=4":             `unknown parameter "shard"`,
		"file:app.db?cache=shared&mode=x": `unknown parameter "cache"`,
		"file:app.db?shards=many":         `"many"`,
		"file:app.db?shards=0":            "want a number from 1 on",
		"file:app.db?readonly=perhaps":    "want true or false",
		"file:app.db?shards=4&shards=5":   "given 2 times",
		"file:app.db?a;b":                 "semicolon",
	} {
		_, err := ParseURL(text)
		wantKind(t, err, fault.Invalid, says)
	}
}

func TestConfigReportsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Config{Shards: 5000, Readers: -1, WALSize: 7})
	wantKind(t, err, fault.Invalid, "no path", "shards is 5000", "readers is -1", "wal size is 7")
}

func TestOpenSaysWhatIsWrongWithThePath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, contents string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(contents), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}

	text := file("notes.txt", strings.Repeat("these are notes\n", 1000), 0o600)
	locked := file("locked.db", "", 0o400)
	orphan := file("orphan.db", "", 0o600)
	file("orphan.db-wal", "a log", 0o600)
	file("missing.db-wal", "a log", 0o600)

	for _, c := range []struct {
		path     string
		readOnly bool
		kind     fault.Kind
		says     string
	}{
		{filepath.Join(dir, "nowhere", "app.db"), false, fault.NotFound, "create the directory"},
		{filepath.Join(dir, "nowhere", "app.db"), true, fault.NotFound, "nowhere"},
		{filepath.Join(text, "app.db"), false, fault.Invalid, "a file in a directory"},
		{dir, false, fault.Invalid, "is a directory"},
		{dir, true, fault.Invalid, "is a directory"},
		{text, false, fault.Invalid, "is not an SQLite file"},
		{text, true, fault.Invalid, "is not an SQLite file"},
		{file("short.db", "SQLite", 0o600), false, fault.Invalid, "is not an SQLite file"},
		{locked, false, fault.Denied, "writable"},
		{orphan, false, fault.Corrupt, "but its log"},
		{filepath.Join(dir, "missing.db"), false, fault.Corrupt, "but its log"},
		{filepath.Join(dir, "none.db"), true, fault.NotFound, "does not exist"},
		{file("empty.db", "", 0o600), true, fault.NotFound, "is empty"},
	} {
		t.Run(fmt.Sprintf("%s,%v", filepath.Base(c.path), c.readOnly), func(t *testing.T) {
			t.Parallel()
			_, err := Open(t.Context(), Config{Path: c.path, ReadOnly: c.readOnly})
			wantKind(t, err, c.kind, c.says, dir)
		})
	}
}

func TestOpenTakesOddNames(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "with space & 100% #1? ünïcode")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a?b#c%20d.db")
	s := openTest(t, Config{Path: path})
	closeTest(t, s)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	openTest(t, Config{Path: path})
	_, err := Open(t.Context(), Config{Path: link})
	wantKind(t, err, fault.Conflict)
}

func TestShardsAreFixed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	s := openTest(t, Config{Path: path, Shards: 24})
	if got := s.Info().Shards; got != 24 {
		t.Errorf("%d shards, want 24", got)
	}
	closeTest(t, s)
	_, err := Open(t.Context(), Config{Path: path, Shards: 16})
	wantKind(t, err, fault.Conflict, "24 shards", "16 are asked for")
	s = openTest(t, Config{Path: path})
	if got := s.Info().Shards; got != 24 {
		t.Errorf("%d shards, want 24", got)
	}
}

func TestUserTablesLiveBesideOurs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	c, err := openConn(t.Context(), &Config{Path: path}, modeCreate, "create table orders (id integer primary key); pragma user_version = 77")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}

	s := openTest(t, Config{Path: path})
	onWriter(t, s, func(w *writer) {
		if n, _, err := w.number("pragma user_version"); n != 77 || err != nil {
			t.Errorf("user_version is %d, %v", n, err)
		}
		strange, _, err := w.number("select count(*) from sqlite_schema where name not like 'perdure\\_%' escape '\\' and name not like 'sqlite\\_autoindex\\_perdure%' escape '\\'")
		if strange != 1 || err != nil {
			t.Errorf("%d names are not ours, want 1: %v", strange, err)
		}
	})
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	s := openTest(t, Config{Path: path})
	tamper(t, s, "update perdure_meta set value = 99 where name = 'schema'")
	closeTest(t, s)
	for _, readOnly := range []bool{false, true} {
		_, err := Open(t.Context(), Config{Path: path, ReadOnly: readOnly})
		wantKind(t, err, fault.Conflict, path, "version 99", "newer build")
	}
}

func TestOlderSchemaIsNotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	c, err := openConn(t.Context(), &Config{Path: path}, modeCreate, "create table orders (id integer primary key)")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), Config{Path: path, ReadOnly: true})
	wantKind(t, err, fault.NotFound, "holds no store")
}

func TestOlderSchemaNamesTheWayOut(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	s := openTest(t, Config{Path: path})
	tamper(t, s, "update perdure_meta set value = 1 where name = 'schema'")
	closeTest(t, s)
	_, err := Open(t.Context(), Config{Path: path, ReadOnly: true})
	wantKind(t, err, fault.Conflict, path, "version 1", "`perdure migrate`")
}

func TestCheck(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	fresh := Status{Known: Latest(), Pending: migrations(), Store: storeURL(path)}

	check := func(want Status) {
		t.Helper()
		got, err := Check(t.Context(), Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}

	check(fresh)
	if _, err := os.Stat(path); err == nil {
		t.Fatal("the file was created")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	check(fresh)
	s := openTest(t, Config{Path: path, Shards: 20})
	done := Status{Version: Latest(), Known: Latest(), Shards: 20, Cluster: s.Info().Cluster, Store: storeURL(path)}
	check(done) // while the owner has the store open
	closeTest(t, s)
	check(done)
	s = openTest(t, Config{Path: path})
	tamper(t, s, "update perdure_meta set value = 99 where name = 'schema'")
	_, err := Check(t.Context(), Config{Path: path})
	wantKind(t, err, fault.Conflict, "version 99")
}

func TestMigrationsAreNumbered(t *testing.T) {
	t.Parallel()
	for i, name := range migrations() {
		if prefix := fmt.Sprintf("migrations/%04d_", i+1); !strings.HasPrefix(name, prefix) {
			t.Errorf("%s does not begin with %s", name, prefix)
		}
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	s := openTest(t, Config{Path: path})
	said := askChild(t, "open", path)
	for _, word := range []string{"conflict", path, fmt.Sprintf("pid %d", os.Getpid())} {
		if !strings.Contains(said, word) {
			t.Errorf("%q does not say %q", said, word)
		}
	}
	_, err := Open(t.Context(), Config{Path: path})
	wantKind(t, err, fault.Conflict, path)
	closeTest(t, s)
	if said := askChild(t, "open", path); said != "open" {
		t.Errorf("after close: %q", said)
	}
}

func TestReadOnlyBesideTheOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	s := openTest(t, Config{Path: path})
	f := storetest.New(t, s)
	lane := f.Join(1).Lanes[0]
	a := f.Subject()
	lane.Write(func(b *store.Batch) { b.Starts = []store.StartRow{a.StartRow()} })
	if said := askChild(t, "read", path); said != "1 <nil> conflict" {
		t.Errorf("another process read %q", said)
	}
	r := openTest(t, Config{Path: path, ReadOnly: true})
	if d := cmp.Diff(s.Info(), r.Info()); d != "" {
		t.Error(d)
	}
	lane.Write(func(b *store.Batch) { b.Events = []store.EventRow{a.Event(1)} })
	events, err := r.LoadEvents(t.Context(), a.RunKey, 0, 10, 1000)
	if err != nil || len(events) != 1 {
		t.Errorf("%d events, %v", len(events), err)
	}

	for name, err := range map[string]error{
		"commit":   second(r.Commit(t.Context(), lane.Batch())),
		"sweep":    second(r.Sweep(t.Context(), store.SweepRequest{})),
		"inbox":    r.PutInbox(t.Context(), nil),
		"acquire":  second(r.Acquire(t.Context(), lane.Ref.Node, lane.Ref.Epoch, nil)),
		"renew":    second(r.Renew(t.Context(), store.RenewRequest{})),
		"fence":    second(r.FenceNode(t.Context(), store.FenceRequest{Node: lane.Ref.Node, Epoch: lane.Ref.Epoch, Proven: true})),
		"register": second(r.Register(t.Context(), store.NodeInfo{}, 1, time.Hour)),
	} {
		if !fault.Is(err, fault.Conflict) || store.ClassOf(err) != store.Away {
			t.Errorf("%s: %v", name, err)
		}
	}

	// The reader continues to work when the owner closes the store and opens it again.
	closeTest(t, s)
	if page, err := r.List(t.Context(), store.Query{Tenant: model.DefaultTenant, Limit: 10}); err != nil || len(page.Executions) != 1 {
		t.Errorf("%d executions, %v", len(page.Executions), err)
	}
	openTest(t, Config{Path: path})
	if events, err := r.LoadEvents(t.Context(), a.RunKey, 0, 10, 1000); err != nil || len(events) != 1 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	dir := mountTest(t, "size=4m")
	path := filepath.Join(dir, "app.db")
	closeTest(t, openTest(t, Config{Path: path}))
	remount(t, dir, "remount,ro")
	_, err := Open(t.Context(), Config{Path: path})
	wantKind(t, err, fault.Denied, path, "read-only")
	_, err = Open(t.Context(), Config{Path: filepath.Join(dir, "new.db")})
	wantKind(t, err, fault.Denied, "new.db", "read-only")
}

func TestOpenConvergesAfterACrashAtAnyWrite(t *testing.T) {
	t.Parallel()
	sequential(t)
	every := 1
	if testing.Short() {
		every = 5
	}

	for survived, n := false, 1; !survived; n += every {
		path := filepath.Join(t.TempDir(), "app.db")
		fs := newFaultFS(t)
		fs.crashAfter(n)

		s, err := Open(t.Context(), Config{Path: path, vfs: fs.name})
		if survived = err == nil; survived {
			fs.heal()
			closeTest(t, s)
		}

		fs.heal()
		for range 1 + n%2 { // the second Open has nothing to migrate
			s = openTest(t, Config{Path: path})
			if i := s.Info(); i.Version != Latest() || i.Shards != defaultShards || i.Cluster == "" {
				t.Fatalf("crash after %d writes: %+v", n, i)
			}
			storetest.New(t, s).Join(1).Lanes[0].Write(func(*store.Batch) {})
			closeTest(t, s)
		}

		if n > 1000 {
			t.Fatal("open never succeeds")
		}
	}
}

func TestOpenWithoutPermission(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || os.Getuid() == 0 {
		t.Skip("root may do everything")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Path: filepath.Join(dir, "app.db")})
	wantKind(t, err, fault.Denied, dir)
}

func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("has no such modes")
	}
	path := filepath.Join(t.TempDir(), "app.db")

	want := func(mode os.FileMode) {
		t.Helper()
		for _, suffix := range []string{"", "-wal"} {
			if fi, err := os.Stat(path + suffix); err != nil || fi.Mode().Perm() != mode {
				t.Errorf("%s: mode %v, %v; want %v", filepath.Base(path)+suffix, fi.Mode(), err, mode)
			}
		}
	}

	s := openTest(t, Config{Path: path})
	want(0o600)
	closeTest(t, s)
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	openTest(t, Config{Path: path})
	want(0o660)
}
