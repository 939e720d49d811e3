package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/pgtest"
)

// damaged is an execution in whose rows bytes are changed behind everybody's back.
var damaged = perdure.NewWorkflow("damaged", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
	for i := range 3 {
		if _, err := perdure.Do(ctx, "step", func(context.Context) (int, error) { return i, nil }, perdure.StepKey(fmt.Sprint(i))); err != nil {
			return "", err
		}
	}
	return perdure.NewSignal[string]("word").Receive(ctx)
})

// A row that cannot be understood keeps its execution from going on, which says so; nobody guesses, nothing of it is lost, and all others go on. Once
// the row is as it was, so does this one (reliability I14, I23).
func TestCorruptedRows(t *testing.T) {
	t.Parallel()
	word := perdure.NewSignal[string]("word")
	for _, c := range []struct {
		name  string
		table string
		// column is what is damaged, of the row that where selects.
		column, where string
	}{
		{"an event", "history", "body", "seq = 2"},
		{"the start", "executions", "start", "true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onStores(t, durable, func(t *testing.T, s *site) {
				a := newAlive()
				app := s.open(damaged, a.w)
				client := caller(t, app)
				a.start(t, app, client)
				exec, err := damaged.Start(client, "in", perdure.RawKey("k"))
				if err != nil {
					t.Fatal(err)
				}
				info := reason(t, app, exec, "waits for signal word")
				if err := app.Close(); err != nil {
					t.Fatal(err)
				}
				restore := s.damage(c.table, c.column, c.where)

				app = s.open(damaged, a.w)
				client = caller(t, app)
				err = word.Send(client, exec, "hello")
				if err == nil || !errors.Is(err, perdure.ErrBlocked) && !fault.Is(err, fault.Corrupt) {
					t.Errorf("a signal to it: %v, want an error that says it is blocked or corrupt", err)
				}
				described, err := app.Describe(t.Context(), exec)
				switch {
				case err != nil && !fault.Is(err, fault.Corrupt):
					t.Errorf("describe: %v", err)
				case err == nil && !strings.Contains(described.Reason, "cannot be read"):
					t.Errorf("described as %+v, want a reason that says it cannot be read", described)
				}
				if text := described.Reason + fmt.Sprint(err); !strings.Contains(text, strings.TrimPrefix(info.Ref.Run, "run_")) && !strings.Contains(text, "damaged") {
					t.Errorf("neither the run nor the execution is named: %s", text)
				}
				t.Logf("described as %+v, %v", described, err)
				var failed error
				for _, err := range app.History(t.Context(), exec) {
					failed = err
				}
				if !fault.Is(failed, fault.Corrupt) {
					t.Errorf("history: %v, want an error of kind corrupt", failed)
				}
				a.say(t, client, "b")
				eventually(t, "the other one goes on", func() bool { return strings.Count(strings.Join(kindsOf(t, app, a.exec), " "), "step_completed") == 2 })

				if err := app.Close(); err != nil {
					t.Fatal(err)
				}
				restore()
				app = s.open(damaged, a.w)
				client = caller(t, app)
				if err := word.Send(client, exec, "again"); err != nil {
					t.Fatal(err)
				}
				got, err := exec.Result(client)
				equal(t, "the result once the row is as it was", got, err, "again")
				a.ends(t, client, "ab")
			})
		})
	}
}

// damage flips bytes in a column of the execution damaged/k, and returns how to undo it.
func (s *site) damage(table, column, where string) (restore func()) {
	s.t.Helper()
	prefix, hex, unhex := "perdure.", "encode(%s, 'hex')", "decode('%s', 'hex')"
	if s.kind == "sqlite" {
		prefix, hex, unhex = "perdure_", "hex(%s)", "x'%s'"
	}
	where += fmt.Sprintf(" and run in (select run from %sexecutions where workflow = 'damaged')", prefix)
	body := s.sql(fmt.Sprintf("select "+hex+" from %s%s where %s", column, prefix, table, where))[0][0]
	set := func(body string) {
		s.sql(fmt.Sprintf("update %s%s set %s = "+unhex+" where %s", prefix, table, column, body, where))
	}
	flipped := []byte(body)
	copy(flipped, "ff") // no CBOR begins so
	flipped[len(body)/2] ^= 1
	set(string(flipped))
	return func() { set(body) }
}

// The disk is full: what cannot be stored is not acknowledged, the caller hears why, and everything goes on when there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	s := newSite(t, "sqlite")
	s.path = filepath.Join(dir, "e2e.db")
	s.url = "file:" + s.path
	s.cfg.LeaseTTL = 3 * time.Second
	a := newAlive()
	keep := perdure.NewWorkflow("keep", func(_ perdure.WorkflowCtx, in string) (string, error) { return in[:1], nil })
	app := s.open(a.w, keep)
	c := caller(t, app)
	a.start(t, app, c)
	done := 0
	for ; done < 5; done++ {
		if _, err := keep.Run(c, strings.Repeat("x", 1000), perdure.RawKey(fmt.Sprint(done))); err != nil {
			t.Fatal(err)
		}
	}
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	var full error
	for full == nil { // there may be a little room left in the files that exist
		_, full = keep.Run(app.With(ctx), strings.Repeat("y", 100_000), perdure.RawKey(fmt.Sprint(done)))
		if full == nil {
			done++
		}
	}
	fails(t, "a start on a full disk", full, perdure.ErrUnavailable, "keep", s.path)
	if !strings.Contains(strings.ToLower(full.Error()), "full") && !strings.Contains(full.Error(), "space") {
		t.Errorf("error %q does not say what is the matter", full)
	}
	t.Logf("the caller heard: %v", full)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	// What was handed in when there was no room may have taken effect since; repeated, it does.
	if _, err := keep.Run(c, strings.Repeat("y", 100_000), perdure.RawKey(fmt.Sprint(done))); err != nil {
		t.Errorf("once there is room: %v", err)
	}
	a.ends(t, c, "a")
	app = s.reopen(app, a.w, keep)
	if got := list(t, app, `workflow = "keep" and status = "completed"`); len(got) != done+1 {
		t.Errorf("%d executions are stored, want %d", len(got), done+1)
	}
}

// fill writes until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<12); ; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// A server that becomes read-only, as after a failover, takes nothing; callers hear why, and everything goes on when it writes again (reliability B5).
func TestReadOnlyPostgres(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t, pgtest.Options{})
	s := newSite(t, "postgres")
	s.url = pg.NewDatabase(t)
	a := newAlive()
	app := s.open(a.w)
	c := caller(t, app)
	a.start(t, app, c)
	before := s.contents()
	set := func(value string) {
		s.sql("alter system set default_transaction_read_only = " + value)
		s.sql("select pg_reload_conf()")
	}
	set("on")
	eventually(t, "the server is read-only", func() bool { return s.sql("show default_transaction_read_only")[0][0] == "on" })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := a.w.Start(app.With(ctx), "", perdure.RawKey("refused"))
	fails(t, "a start on a read-only server", err, perdure.ErrUnavailable, "alive", "read-only")
	t.Logf("the caller heard: %v", err)
	s.unchanged(before)
	_, err = s.cfg.Open(ctx, s.url, a.w)
	if err == nil || !errors.Is(err, perdure.ErrUnavailable) && !errors.Is(err, perdure.ErrTimeout) || !strings.Contains(err.Error(), pg.Addr()) {
		t.Errorf("open of a read-only server: %v, want an error that says so and names %s", err, pg.Addr())
	}
	t.Logf("open: %v", err)
	ctx2 := context.WithoutCancel(t.Context())
	_ = ctx2
	s.sql("set default_transaction_read_only = off; alter system set default_transaction_read_only = off")
	s.sql("select pg_reload_conf()")
	a.ends(t, c, "a")
}

// Files and servers that cannot be used: an error that names them and says what is the matter, and nothing is changed.
func TestStoresThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	a := newAlive()
	try := func(t *testing.T, cfg embedded.Config, url string) error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		cfg.AllowUnsafe = true
		app, err := cfg.Open(ctx, url, a.w)
		if err == nil {
			t.Errorf("%s was opened: close: %v", url, app.Close())
			return errors.New("no error")
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it took too long to find out: %v", err)
		}
		return err
	}
	is := func(t *testing.T, what string, err error, kind fault.Kind, names ...string) {
		t.Helper()
		if !fault.Is(err, kind) {
			t.Errorf("%s: %v is of kind %s, want %s", what, err, fault.KindOf(err), kind)
		}
		for _, name := range names {
			if !strings.Contains(fmt.Sprint(err), name) {
				t.Errorf("%s: %v does not name %q", what, err, name)
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "sqlite")
		app := s.open(a.w)
		is(t, "second process", try(t, s.cfg, s.url), fault.Conflict, s.path, "in use", fmt.Sprint(os.Getpid()))
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		is(t, "other number of shards", try(t, embedded.Config{Shards: 5}, s.url), fault.Conflict, s.path, "16", "5")
		if err := os.Chmod(s.path, 0o444); err != nil {
			t.Fatal(err)
		}
		is(t, "read-only file", try(t, s.cfg, s.url), fault.Denied, s.path)
		if err := os.Chmod(s.path, 0o644); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		is(t, "directory", try(t, s.cfg, "file:"+dir), fault.Invalid, dir)
		is(t, "missing directory", try(t, s.cfg, "file:"+dir+"/no/where.db"), fault.NotFound, dir+"/no")
		text := filepath.Join(dir, "text.txt")
		if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 500)), 0o600); err != nil {
			t.Fatal(err)
		}
		is(t, "another file", try(t, s.cfg, "file:"+text), fault.Invalid, text)
		if b, err := os.ReadFile(text); err != nil || !strings.HasPrefix(string(b), "this is no database") || len(b) != 20*500 {
			t.Errorf("the file was changed: %v", err)
		}
		s.sql("update perdure_meta set value = value + 1 where name = 'schema'")
		is(t, "newer schema", try(t, s.cfg, s.url), fault.Conflict, s.path, "version")
		s.sql("update perdure_meta set value = value - 1 where name = 'schema'")
		s.open(a.w)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, "postgres")
		app := s.open(a.w)
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		good, err := url.Parse(s.url)
		if err != nil {
			t.Fatal(err)
		}
		with := func(change func(*url.URL)) string {
			u := *good
			change(&u)
			return u.String()
		}
		secret := "correct-horse"
		for _, c := range []struct {
			name  string
			url   string
			kind  fault.Kind
			names []string
		}{
			{"nobody listens", with(func(u *url.URL) { u.Host = "127.0.0.1:1" }), fault.Unavailable, []string{"127.0.0.1:1", "refused"}},
			{"wrong password", with(func(u *url.URL) { u.User = url.UserPassword("postgres", secret) }), fault.Denied, []string{good.Host, "password"}},
			{"no such role", with(func(u *url.URL) { u.User = url.UserPassword("nobody", secret) }), fault.Denied, []string{good.Host, "nobody"}},
			{"no such database", with(func(u *url.URL) { u.Path = "/nowhere" }), fault.NotFound, []string{good.Host, "nowhere"}},
			{"no such host", with(func(u *url.URL) { u.Host = "no.such.host.invalid:5432" }), fault.Unavailable, []string{"no.such.host.invalid"}},
			{"not a URL", "postgres://user:" + secret + "@host:port/db", fault.Invalid, []string{"URL"}},
			{"unknown parameter", with(func(u *url.URL) { u.RawQuery += "&shards=many" }), fault.Invalid, []string{"shards"}},
			{"other scheme", "mysql://user:" + secret + "@host/db", fault.Invalid, []string{"mysql"}},
			{"no scheme", "app.db", fault.Invalid, []string{"app.db"}},
			{"wrong schema name", with(func(u *url.URL) { u.RawQuery += "&schema=Robert';drop" }), fault.Invalid, []string{"schema"}},
			{"other number of shards", with(func(u *url.URL) { u.RawQuery += "&shards=7" }), fault.Conflict, []string{"64", "7"}},
		} {
			err := try(t, s.cfg, c.url)
			is(t, c.name, err, c.kind, c.names...)
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error tells the password: %v", c.name, err)
			}
		}
		unsafe := s.cfg
		unsafe.AllowUnsafe = false
		if _, err := unsafe.Open(t.Context(), s.url, a.w); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "fsync=off") {
			t.Errorf("a server that may lose commits: %v", err)
		}
		s.sql("insert into perdure.migrations (version, name) select max(version) + 1, 'from the future' from perdure.migrations")
		is(t, "newer schema", try(t, s.cfg, s.url), fault.Conflict, good.Host, "version")
		s.sql("delete from perdure.migrations where name = 'from the future'")
		s.open(a.w)
	})
}
