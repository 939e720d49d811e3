package e2e_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
)

// damaged is a workflow whose rows a test changes directly in the store.
var damaged = perdure.NewWorkflow("damaged", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
	for i := range 3 {
		if _, err := perdure.Do(ctx, "step", func(context.Context) (int, error) { return i, nil }, perdure.StepKey(fmt.Sprint(i))); err != nil {
			return "", err
		}
	}
	return perdure.NewSignal[string]("word").Receive(ctx)
})

// A row that cannot be decoded stops its execution, whose reason names the row. The engine does not
// guess, loses no data of the execution, and continues all other executions. When the row is
// repaired, the execution continues too (reliability I14, I23).
func TestCorruptedRows(t *testing.T) {
	t.Parallel()
	word := perdure.NewSignal[string]("word")
	for _, c := range []struct {
		name  string
		table string
		// column is the damaged column of the row that where selects.
		column, where string
		input         string
		kinds         []string
	}{
		{"an event", "history", "body", "seq = 2", "in", durable},
		{"the start", "executions", "start", "true", "in", durable},
		// PostgreSQL has no such table
		{"a large start", "starts", "body", "true", strings.Repeat("large ", 2000), []string{"sqlite"}},
		{"what it waits for", "executions", "waits", "true", "in", durable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onStores(t, c.kinds, func(t *testing.T, s *site) {
				a := newAlive()
				app := s.open(damaged, a.w)
				client := caller(t, app)
				a.start(t, app, client)
				exec := mustStart(t, client, damaged, c.input, perdure.RawKey("k"))
				info := reason(t, app, exec, "waits for signal word")
				if err := app.Close(); err != nil {
					t.Fatal(err)
				}
				restore := s.damage(c.table, c.column, c.where)

				app = s.open(damaged, a.w)
				client = caller(t, app)
				err := word.Send(client, exec, "hello")
				if err == nil || !errors.Is(err, perdure.ErrBlocked) && !fault.Is(err, fault.Corrupt) {
					t.Errorf("a signal to it: %v, want an error that says it is blocked or corrupt", err)
				}
				// Describe fails if the execution's own row cannot be read. In the other cases the
				// description has the reason.
				described, err := app.Executions().Describe(t.Context(), exec)
				text := described.Reason
				switch {
				case c.table != "history" && fault.Is(err, fault.Corrupt):
					text = err.Error()
					if !strings.Contains(text, "execution "+exec.String()+" cannot be read") || strings.Count(text, model.WayOut) != 1 {
						t.Errorf("the error of the description does not say what to do: %v", err)
					}
				case err != nil || described.Ref != info.Ref || !described.Status.Open() || !strings.Contains(text, "cannot be read"):
					t.Errorf("described as %+v, %v; want a reason that says it cannot be read", described, err)
				}
				if !strings.Contains(text, info.Ref.Run) {
					t.Errorf("the run is not named: %s", text)
				}
				if got := list(t, app, `workflow = "alive"`); len(got) != 1 {
					t.Errorf("the other one is listed as %v", got)
				}
				if got := list(t, app, ""); len(got) != 2 {
					t.Errorf("all are listed as %v", got)
				}
				var failed error
				for _, err := range app.Histories().Events(t.Context(), exec) {
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
				a.checkEnd(t, client, "ab")
			})
		})
	}
}

// The engine does not guess an outcome that it cannot decode. A caller who asks for the result gets
// an error that names the broken row. The engine refuses a new start with the key, and the workflow
// does not run again.
func TestCorruptedOutcome(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		a := newAlive()
		var ran atomic.Int64
		w := perdure.NewWorkflow("damaged", func(perdure.WorkflowCtx, string) (string, error) {
			ran.Add(1)
			return "the result", nil
		})

		app := s.open(w, a.w)
		c := caller(t, app)
		a.start(t, app, c)
		if _, err := w.Run(c, "in", perdure.RawKey("k")); err != nil {
			t.Fatal(err)
		}
		exec := w.Execution(perdure.RawKey("k"))
		info, err := app.Executions().Describe(t.Context(), exec)
		if err != nil {
			t.Fatal(err)
		}

		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		restore := s.damage("executions", "outcome", "true")
		app = s.open(w, a.w)
		c = caller(t, app)
		before := s.contents()

		calls := map[string]func() error{
			"result":   func() error { _, err := exec.Result(c); return err },
			"poll":     func() error { _, err := exec.Poll(c); return err },
			"run":      func() error { _, err := w.Run(c, "in", perdure.RawKey("k")); return err },
			"start":    func() error { _, err := w.Start(c, "in", perdure.RawKey("k")); return err },
			"describe": func() error { _, err := app.Executions().Describe(t.Context(), exec); return err },
		}
		for what, call := range calls {
			err := call()
			if err == nil || !errors.Is(err, perdure.ErrBlocked) && !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), info.Ref.Run) || !strings.Contains(err.Error(), "outcome") {
				t.Errorf("%s: %v, want an error that says it is blocked or corrupt, and names the run and the column", what, err)
			}
		}

		s.checkUnchanged(before)
		if got := list(t, app, ""); len(got) != 2 {
			t.Errorf("all are listed as %v", got)
		}
		a.say(t, caller(t, app), "b")
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		restore()
		app = s.open(w, a.w)
		c = caller(t, app)
		got, err := w.Run(c, "in", perdure.RawKey("k"))
		equal(t, "the result once the row is as it was", got, err, "the result")
		if n := ran.Load(); n != 1 {
			t.Errorf("the code ran %d times", n)
		}
		a.checkEnd(t, c, "ab")
	})
}

// If the engine cannot decode a remembered answer, it does not treat the request as new.
func TestCorruptedAnswer(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		word := perdure.NewSignal[string]("word")
		a := newAlive()
		app := s.open(damaged, a.w)
		c := caller(t, app)
		a.start(t, app, c)
		exec := mustStart(t, c, damaged, "in", perdure.RawKey("k"))
		if err := word.Send(c, exec, "hello", perdure.RequestID("r1")); err != nil {
			t.Fatal(err)
		}

		got, err := exec.Result(c)
		equal(t, "result", got, err, "hello")
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		restore := s.change("requests", "body", "id = 'r1'")
		app = s.open(damaged, a.w)
		c = caller(t, app)
		before := s.contents()
		if err := word.Send(c, exec, "hello", perdure.RequestID("r1")); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "r1") {
			t.Errorf("the same request: %v, want an error of kind corrupt that names it", err)
		}
		s.checkUnchanged(before)
		a.say(t, caller(t, app), "b")
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		restore()
		app = s.open(damaged, a.w)
		c = caller(t, app)
		if err := word.Send(c, exec, "hello", perdure.RequestID("r1")); err != nil {
			t.Errorf("the same request once the row is as it was: %v", err)
		}
		a.checkEnd(t, c, "ab")
	})
}

// The engine logs mail that it cannot decode and leaves it in place. It delivers all other mail.
func TestCorruptedMail(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		var log logged
		s.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		child := perdure.NewWorkflow("child", func(_ perdure.WorkflowCtx, in int) (int, error) { return 2 * in, nil })

		parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, n int) (int, error) {
			sum := 0
			for i := range n {
				v, err := child.Run(ctx, i, perdure.RawKey(fmt.Sprint("child", i)))
				if err != nil {
					return 0, err
				}
				sum += v
			}
			return sum, nil
		})

		app := s.open(parent, child)
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		// The broken message goes to shard 1, and no address of this test is on that shard. Every
		// node reads the broken request.
		shards := map[string]int{"sqlite": 16, "postgres": 64}[s.kind]
		busy := map[model.ShardID]bool{}
		shardOf := func(workflow, key string) model.ShardID {
			return model.Address{Tenant: model.DefaultTenant, Type: workflow, Key: key}.Shard(shards)
		}
		busy[shardOf("parent", "p")] = true
		const n = 5
		for i := range n {
			busy[shardOf("child", fmt.Sprint("child", i))] = true
		}
		quiet := model.ShardID(0)
		for busy[quiet] {
			quiet++
		}

		if s.kind == "sqlite" {
			s.sql(fmt.Sprintf("insert into perdure_messages (to_shard, from_shard, seq, body) values (%d, %d, 1, x'ffff')", quiet, quiet))
			s.sql(fmt.Sprintf("insert into perdure_inbox (shard, id, not_before, body) values (%d, zeroblob(16), 0, x'ffff')", quiet))
		} else {
			s.sql("insert into perdure.messages (to_shard, from_shard, seq, body) values ($1, $1, 1, '\\xffff')", int16(quiet))
			s.sql("insert into perdure.inbox (shard, id, not_before, tenant, workflow, key, request, body) values ($1, gen_random_uuid(), 0, '', '', '', '', '\\xffff')", int16(quiet))
		}

		app = s.open(parent, child)
		apps := []*perdure.App{app}
		if s.kind == "postgres" {
			// Parent and child are on different nodes, so all their messages are mail.
			apps = append(apps, s.open(parent, child))
		}

		for i, app := range apps {
			got, err := parent.Run(caller(t, app), n, perdure.RawKey("p"))
			equal(t, fmt.Sprintf("result in app %d", i), got, err, n*(n-1))
		}

		eventually(t, "the log names the broken message", func() bool {
			return strings.Contains(log.String(), fmt.Sprintf("from shard %d to shard %d", quiet, quiet))
		})
	})
}

// logged is a log for tests.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns the whole log.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// damage flips bytes in a column of the execution damaged/k. The returned function restores them.
func (s *site) damage(table, column, where string) (restore func()) {
	s.t.Helper()
	prefix := "perdure."
	if s.kind == "sqlite" {
		prefix = "perdure_"
	}
	return s.change(table, column, where+fmt.Sprintf(" and run in (select run from %sexecutions where workflow = 'damaged')", prefix))
}

// change flips bytes in a column of one row. The returned function restores them.
func (s *site) change(table, column, where string) (restore func()) {
	s.t.Helper()
	prefix, read, write := "perdure.", "encode(%s, 'hex')", "decode('%s', 'hex')"
	if s.kind == "sqlite" {
		prefix, read, write = "perdure_", "hex(%s)", "x'%s'"
	}
	body := s.sql(fmt.Sprintf("select "+read+" from %s%s where %s", column, prefix, table, where))[0][0]
	set := func(body string) {
		s.sql(fmt.Sprintf("update %s%s set %s = "+write+" where %s", prefix, table, column, body, where))
	}
	flipped, err := hex.DecodeString(body)
	if err != nil {
		s.t.Fatal(err)
	}

	flipped[0] = 0xff // no stored value starts with this byte
	flipped[len(flipped)/2] ^= 1
	set(hex.EncodeToString(flipped))
	return func() { set(body) }
}

// A server that becomes read-only, as after a failover, accepts no writes. Callers get the reason,
// and everything continues when the server accepts writes again (reliability B5).
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
	err := patiently(t, "read only", func(ctx context.Context) error {
		_, err := a.w.Start(app.With(ctx), "", perdure.RawKey("refused"))
		return err
	})

	wantError(t, "a start on a read-only server", err, perdure.ErrUnavailable, "alive", pg.Addr(), "read only")
	t.Logf("the caller got: %v", err)
	s.checkUnchanged(before)
	_, err = s.cfg.Open(t.Context(), s.url, a.w)
	wantError(t, "open of a read-only server", err, perdure.ErrUnavailable, pg.Addr(), "read only")
	t.Logf("open: %v", err)
	set("off")
	a.checkEnd(t, c, "a")
}

// Some files and servers cannot be used. Open returns an error that names the file or server and
// says what is wrong. Open changes nothing.
func TestStoresThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	a := newAlive()
	tryFor := func(t *testing.T, limit time.Duration, cfg embedded.Config, url string) error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
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

	try := func(t *testing.T, cfg embedded.Config, url string) error {
		t.Helper()
		return tryFor(t, patience, cfg, url)
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
			{"no server", with(func(u *url.URL) { u.Host = "127.0.0.1:1" }), fault.Unavailable, []string{"127.0.0.1:1", "refused"}},
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
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				limit := patience
				if c.kind == fault.Unavailable {
					limit = 6 * time.Second // Open retries until its context ends
				}
				err := tryFor(t, limit, s.cfg, c.url)
				is(t, c.name, err, c.kind, c.names...)
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s: the error contains the password: %v", c.name, err)
				}
			})
		}

		unsafe := s.cfg
		unsafe.AllowUnsafe = false
		if _, err := unsafe.Open(t.Context(), s.url, a.w); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "fsync=off") {
			t.Errorf("a server that may lose commits: %v", err)
		}
		s.sql("insert into perdure.migrations (version, name, at) select max(version) + 1, 'from the future', max(at) from perdure.migrations")
		is(t, "newer schema", try(t, s.cfg, s.url), fault.Conflict, good.Host, "version")
		s.sql("delete from perdure.migrations where name = 'from the future'")
		s.open(a.w)
	})
}

// A store accepts no writes until the process opens it again. Callers get an error that says why
// and what to do, and the log has the same message once.
func TestStoreMustBeOpenedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, "sqlite")
	log := &lastErrors{}
	s.cfg.Logger = slog.New(log)
	// The same process opens the store again, so the store has no proof that the former node has
	// died.
	s.cfg.LeaseTTL = 2 * time.Second
	app, err := s.cfg.Open(t.Context(), s.url, damaged)
	if err != nil {
		t.Fatal(err)
	}

	client := caller(t, app)
	exec := mustStart(t, client, damaged, "in", perdure.RawKey("k"))
	reason(t, app, exec, "waits for signal word")
	if err := os.Rename(s.path, s.path+".away"); err != nil {
		t.Fatal(err)
	}

	told := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, perdure.ErrUnavailable) || !strings.Contains(err.Error(), "moved or deleted") || !strings.Contains(err.Error(), "restart the process") {
			t.Errorf("%s: %v, want it to name the reason, and what to do", what, err)
		}
	}

	_, err = exec.Result(client) // until the store notices
	told("result", err)
	_, err = damaged.Start(client, "in", perdure.RawKey("another"))
	told("start", err)
	told("signal", perdure.NewSignal[string]("word").Send(client, exec.Ref, "x"))
	told("close", app.Close())
	if got := log.all(); len(got) != 1 || !strings.Contains(got[0], "the error says what to do") {
		t.Errorf("logged as errors: %q, want one line that says what to do", got)
	}

	// Once the reason is gone, another process continues.
	if err := os.Rename(s.path+".away", s.path); err != nil {
		t.Fatal(err)
	}
	app = s.open(damaged)
	client = caller(t, app)
	if err := perdure.NewSignal[string]("word").Send(client, exec.Ref, "x"); err != nil {
		t.Fatal(err)
	}

	if got, err := exec.Result(client); err != nil || got != "x" {
		t.Errorf("result = %q, %v", got, err)
	}
}

// lastErrors keeps log records of level ERROR.
type lastErrors struct {
	mu    sync.Mutex
	lines []string
}

func (*lastErrors) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (l *lastErrors) WithAttrs([]slog.Attr) slog.Handler         { return l }
func (l *lastErrors) WithGroup(string) slog.Handler              { return l }

func (l *lastErrors) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Message)
	return nil
}

func (l *lastErrors) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines
}
