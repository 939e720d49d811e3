package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ncruces/go-sqlite3"
	"go.uber.org/goleak"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/dialtest"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store/postgres"
)

func TestMain(m *testing.M) {
	// Most of these tests spend their time waiting for a commit or a timer.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(pgtest.Main(dialtest.Main(m, "internal/e2e")))
}

// patience is the time limit of short waits, on a machine that is ten times as slow as usual.
const patience = 5 * time.Minute

// site is a store for one test.
type site struct {
	t    *testing.T
	kind string // memory, sqlite, postgres
	url  string
	path string // of the file, for sqlite
	cfg  embedded.Config
}

var kinds = []string{"memory", "sqlite", "postgres"}

// newSite makes an empty store.
func newSite(t *testing.T, kind string) *site {
	t.Helper()
	s := &site{t: t, kind: kind, cfg: embedded.Config{AllowUnsafe: true}}
	switch kind {
	case "memory":
		s.url = "memory:"
	case "sqlite":
		s.path = filepath.Join(t.TempDir(), "e2e.db")
		s.url = "file:" + s.path
	case "postgres":
		s.url = migrated.URL(t)
	}
	return s
}

// migrated is an empty store in PostgreSQL.
var migrated = pgtest.Template{Fill: func(ctx context.Context, url string) error {
	_, err := postgres.Migrate(ctx, postgres.Config{URL: url, AllowUnsafe: true})
	return err
}}

// onStores runs a test on an empty store of each kind, or of one kind in short mode.
func onStores(t *testing.T, kinds []string, f func(t *testing.T, s *site)) {
	t.Helper()
	for _, kind := range dialtest.Some(t, kinds) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(t, newSite(t, kind))
		})
	}
}

// durable has the kinds of stores that can be opened again.
var durable = []string{"sqlite", "postgres"}

// open opens the store. The app is closed at the end of the test, unless the test has closed it
// before.
func (s *site) open(defs ...perdure.Definition) *perdure.App {
	s.t.Helper()
	app, err := s.cfg.Open(s.t.Context(), s.url, defs...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := app.Close(); err != nil {
			s.t.Errorf("close: %v", err)
		}
	})
	return app
}

// reopen closes the app and opens the store again.
func (s *site) reopen(app *perdure.App, defs ...perdure.Definition) *perdure.App {
	s.t.Helper()
	if err := app.Close(); err != nil {
		s.t.Fatal(err)
	}
	return s.open(defs...)
}

// caller returns a client of the app whose context ends after patience.
func caller(t *testing.T, app *perdure.App) perdure.Client {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return app.With(ctx)
}

// mustStart starts an execution.
func mustStart[I, O any](t *testing.T, c perdure.Client, w *perdure.Workflow[I, O], in I, opts ...perdure.StartOption) perdure.Execution[O] {
	t.Helper()
	exec, err := w.Start(c, in, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return exec
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end, next := time.Now().Add(patience), backoff(); !ok(); next() {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// backoff returns a function that pauses between two checks of a condition: for 5 ms, and then
// longer each time, up to a tenth of a second. Checks take processor time from the code that they
// wait for.
func backoff() (next func()) {
	pause := 5 * time.Millisecond
	return func() {
		time.Sleep(pause)
		pause = min(pause*5/4, 100*time.Millisecond)
	}
}

// reason waits until the reason of the execution contains a text.
func reason(t *testing.T, app *perdure.App, to perdure.Target, want string) perdure.Info {
	t.Helper()
	var info perdure.Info
	var err error
	for end, next := time.Now().Add(patience), backoff(); ; next() {
		if info, err = app.Executions().Describe(t.Context(), to); err == nil && strings.Contains(info.Reason, want) {
			return info
		}
		if time.Now().After(end) {
			t.Fatalf("described as %+v, %v; want reason %q", info, err, want)
		}
	}
}

// equal checks that a call returns a value.
func equal[T comparable](t *testing.T, what string, got T, err error, want T) {
	t.Helper()
	if err != nil || got != want {
		t.Errorf("%s = %v, %v; want %v", what, got, err, want)
	}
}

// untilExplained calls try with a time limit that is meant to expire. try returns a problem if the
// error of its call does not explain why the call could not succeed. On a busy machine a short
// limit may expire too early for that, so untilExplained calls try with longer and longer limits.
// It reports the last problem as an error.
func untilExplained(t *testing.T, shortest time.Duration, try func(limit time.Duration) (problem string)) {
	t.Helper()
	problem := ""
	for limit := shortest; limit <= time.Minute; limit *= 4 {
		if problem = try(limit); problem == "" {
			return
		}
	}
	t.Error(problem)
}

// wantError checks that an error is of a kind and contains all names.
func wantError(t *testing.T, what string, err, kind error, names ...string) {
	t.Helper()
	if err == nil || !errors.Is(err, kind) {
		t.Errorf("%s: error %v, want one that is %q", what, err, kind)
		return
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %q does not name %q", what, err, name)
		}
	}
}

// kindsOf returns the kinds of the events of a run, in order.
func kindsOf(t *testing.T, app *perdure.App, to perdure.Target) []string {
	t.Helper()
	var kinds []string
	for e, err := range app.Histories().Events(t.Context(), to) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// list returns the refs of the executions that a query selects, without their run ids.
func list(t *testing.T, app *perdure.App, query string) []string {
	t.Helper()
	var refs []string
	for info, err := range app.Executions().List(t.Context(), query) {
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, info.Ref.Workflow+"/"+info.Ref.Key)
	}
	return refs
}

// sql runs a statement directly on the store, without the engine, and returns the rows as texts.
func (s *site) sql(statement string, args ...any) [][]string {
	s.t.Helper()
	if s.kind == "sqlite" {
		return s.sqlite(statement)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		s.t.Fatal(err)
	}

	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, statement, args...)
	if err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}

	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]string, error) {
		values, err := row.Values()
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = fmt.Sprint(v)
		}
		return texts, err
	})
	if err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}

	return out
}

func (s *site) sqlite(statements string) (out [][]string) {
	s.t.Helper()
	db, err := sqlite3.OpenFlags("file:"+s.path+"?_pragma=busy_timeout(5000)", sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	if err := db.Exec("pragma busy_timeout = 5000"); err != nil {
		s.t.Fatal(err)
	}

	for rest := statements; strings.TrimSpace(rest) != ""; {
		stmt, tail, err := db.Prepare(rest)
		if err != nil {
			s.t.Fatalf("%s: %v", rest, err)
		}
		rest = tail
		if stmt == nil {
			continue
		}

		for stmt.Step() {
			row := make([]string, stmt.ColumnCount())
			for i := range row {
				row[i] = stmt.ColumnText(i)
			}
			out = append(out, row)
		}

		if err := errors.Join(stmt.Err(), stmt.Close()); err != nil {
			s.t.Fatalf("%s: %v", statements, err)
		}
	}

	return out
}

// contents counts the rows of every table that can contain data of an execution. It is nil for the
// memory store.
func (s *site) contents() map[string]string {
	s.t.Helper()
	if s.kind == "memory" {
		return nil
	}
	tables := []string{"executions", "labels", "history", "timers", "messages", "inbox", "requests", "settings", "dead"}
	prefix := "perdure_"

	if s.kind == "postgres" {
		prefix = "perdure." // not the table of runnable runs, which the owner writes later
	} else {
		tables = append(tables, "starts")
	}

	out := map[string]string{}
	for _, table := range tables {
		out[table] = s.sql("select count(*) from " + prefix + table)[0][0]
	}
	return out
}

// checkUnchanged checks that nothing was stored since the counts in before were taken. There may be
// fewer remembered answers, because owners remove answers that their callers have received.
func (s *site) checkUnchanged(before map[string]string) {
	s.t.Helper()
	after := s.contents()
	then, _ := strconv.Atoi(before["requests"])
	if now, _ := strconv.Atoi(after["requests"]); now < then {
		after["requests"] = before["requests"]
	}
	if !maps.Equal(before, after) {
		s.t.Errorf("rows before %v, after %v: something was stored", before, after)
	}
}

// sorted returns a sorted copy.
func sorted(texts []string) []string { return slices.Sorted(slices.Values(texts)) }

// patiently makes a call that cannot succeed, and returns its error. The caller gives up after a
// second, or later if the machine is so busy that the error does not name the cause yet.
func patiently(t *testing.T, cause string, call func(context.Context) error) error {
	t.Helper()
	for wait := time.Second; ; wait *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		err := call(ctx)
		cancel()
		if err == nil || strings.Contains(err.Error(), cause) || wait > patience {
			return err
		}
	}
}
