package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
)

// with adds parameters to a URL.
func with(t testing.TB, base string, pairs ...string) string {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func exec(t testing.TB, c *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// expectRefusal checks that a store cannot be opened, and that the error says why.
func expectRefusal(t *testing.T, c postgres.Config, kind fault.Kind, says ...string) {
	t.Helper()
	s, err := postgres.Open(t.Context(), c)
	if err == nil {
		_ = s.Close()
		t.Errorf("opened, want an error that says %q", says)
		return
	}
	if got := fault.KindOf(err); got != kind {
		t.Errorf("kind %s, want %s: %v", got, kind, err)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

// If many processes find an empty database, one of them creates the store, and all of them use it.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	base := pgtest.URL(t)
	const processes = 8
	stores := make([]*postgres.Store, processes)
	errs := make([]error, processes)

	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			stores[i], errs[i] = postgres.Open(t.Context(), postgres.Config{URL: base, Shards: testShards, AllowUnsafe: true})
		})
	}

	wg.Wait()
	for i, s := range stores {
		if errs[i] != nil {
			t.Fatalf("process %d: %v", i, errs[i])
		}
		defer s.Close()
		if !reflect.DeepEqual(s.Info(), stores[0].Info()) {
			t.Errorf("process %d opened %+v, the first one %+v", i, s.Info(), stores[0].Info())
		}
	}

	var migrations, shards int
	known := stores[0].Info().Version
	err := connect(t, base).QueryRow(t.Context(), `select (select count(*) from perdure.migrations), (select count(*) from perdure.shards)`).Scan(&migrations, &shards)
	if err != nil || migrations != known || shards != testShards {
		t.Errorf("%d migrations ran and made %d shards, %v", migrations, shards, err)
	}
}

// A migration that is interrupted at any of its requests leaves nothing behind, unless it was
// already committed. The next call of Open completes the store.
func TestMigrationInterrupted(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	for _, f := range []pgproxy.Fault{pgproxy.Reset, pgproxy.DropReply} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			base := server.NewDatabase(t)
			admin := connect(t, base)
			proxy := pgproxy.New(t, server.Addr())

			interrupted, stride := 0, 1
			if testing.Short() {
				stride = 7
			}
			for nth := 1; ; nth += stride {
				c := postgres.Config{URL: proxy.URL(base), Schema: fmt.Sprintf("m%d", nth), Shards: testShards, AllowUnsafe: true}
				ctx, cancel := context.WithCancel(t.Context()) // without this, Open would try again
				seen := 0

				trigger := proxy.Inject(pgproxy.Rule{Fault: f, Match: func(pgproxy.Request) bool {
					if seen++; seen == nth {
						cancel()
					}
					return seen == nth
				}})

				s, err := postgres.Open(ctx, c)
				cancel()
				if err == nil {
					_ = s.Close()
				}
				if trigger.Cancel() {
					break // there are fewer statements
				}

				<-trigger.Done()
				if err != nil {
					interrupted++
					var tables int
					err := admin.QueryRow(t.Context(), `select count(*) from pg_tables where schemaname = $1`, c.Schema).Scan(&tables)
					if err != nil || tables != 0 && tables < 13 {
						t.Errorf("interrupted at request %d: %d tables are left, %v", nth, tables, err)
					}
				}

				_ = openConfig(t, c).Close()
			}

			if interrupted*stride < 10 {
				t.Errorf("only %d requests could be interrupted", interrupted)
			}
		})
	}
}

func TestMigrations(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.URL(t)
	c := postgres.Config{URL: base, Shards: 20, AllowUnsafe: true}

	st, err := postgres.Check(t.Context(), c)
	if err != nil || st.Version != 0 || len(st.Pending) != st.Known || st.Known == 0 {
		t.Fatalf("status of an empty database: %+v, %v", st, err)
	}
	c.NoMigrate = true
	expectRefusal(t, c, fault.Conflict, "version 0", "perdure migrate")
	admin := connect(t, base)
	var schemas int
	if err := admin.QueryRow(t.Context(), `select count(*) from pg_namespace where nspname = 'perdure'`).Scan(&schemas); err != nil || schemas != 0 {
		t.Fatalf("looking created %d schemas, %v", schemas, err)
	}

	if st, err = postgres.Migrate(t.Context(), c); err != nil || st.Version != st.Known || st.Shards != 20 || len(st.Pending) != 0 {
		t.Fatalf("status after a migration: %+v, %v", st, err)
	}
	s := openConfig(t, c) // works with NoMigrate, because there is nothing to migrate
	if i := s.Info(); i.Shards != 20 || i.Cluster != st.Cluster || i.Version != st.Known {
		t.Errorf("info %+v does not fit %+v", i, st)
	}

	c.Shards = 21
	expectRefusal(t, c, fault.Conflict, "20 shards", "21")
	c.Shards = 0 // use the number of the existing store
	if i := openConfig(t, c).Info(); i.Shards != 20 {
		t.Errorf("%d shards, want those it was created with", i.Shards)
	}

	// Open accepts a newer schema if all migrations that it does not know say that they are
	// compatible.
	exec(t, admin, fmt.Sprintf(`insert into perdure.migrations values (98, '0098_future', 0, %d)`, st.Known))
	if i := openConfig(t, c).Info(); i.Version != 98 {
		t.Errorf("the store has version %d, want 98", i.Version)
	}
	exec(t, admin, `insert into perdure.migrations values (99, '0099_future', 0, 98)`)
	for _, no := range []bool{true, false} {
		c.NoMigrate = no
		expectRefusal(t, c, fault.Conflict, "version 99", "newer build")
	}
	if _, err = postgres.Check(t.Context(), c); fault.KindOf(err) != fault.Conflict {
		t.Errorf("check of a newer store: %v", err)
	}
}

// A schema must be a plain name.
func TestSchemaNames(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.URL(t)
	for _, name := range []string{
		`x"; drop table y; --`, "Perdure", "1x", "a b", "a.b", "a-b", "é", strings.Repeat("a", 49), "a\x00b", "x\n", "pg_x'",
	} {
		expectRefusal(t, postgres.Config{URL: base, Schema: name, AllowUnsafe: true}, fault.Invalid, "schema")
	}

	// the store quotes these names everywhere
	for _, name := range []string{"select", "_", strings.Repeat("a", 48), "user"} {
		s := openURL(t, base, func(c *postgres.Config) { c.Schema = name })
		l := newLoad(t, s, 4)
		l.lane.Write(func(b *store.Batch) { l.writeMixed(b, 4) })
	}

	s := openURL(t, with(t, base, "schema", "by_url", "shards", "17", "pool", "2"), func(c *postgres.Config) { c.Shards = 0 })
	if i := s.Info(); i.Shards != 17 || !strings.Contains(i.URL, "by_url") {
		t.Errorf("parameters of the URL are not used: %+v", i)
	}
}

func TestConfigProblems(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.URL(t)
	expectRefusal(t, postgres.Config{
		URL: with(t, base, "prepare", "maybe", "pool", "many"), Schema: "No", Shards: -1, Lease: time.Millisecond, PoolSize: 5000,
	}, fault.Invalid, "prepare", "pool", "schema", "shards", "lease") // one error has all problems
	expectRefusal(t, postgres.Config{URL: with(t, base, "shards", "5000")}, fault.Invalid, "5000 shards")
}

// Open refuses a server that may lose acknowledged commits, wherever that is configured.
func TestUnsafeServer(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	for name, server := range map[string]*pgtest.Server{
		"fsync": pgtest.Start(t, pgtest.Options{}), "synchronous_commit": pgtest.Start(t, pgtest.Options{Fsync: true, Settings: map[string]string{"synchronous_commit": "off"}}),
	} {
		expectRefusal(t, postgres.Config{URL: server.NewDatabase(t)}, fault.Invalid, name+"=off", "lose")
	}

	safe := pgtest.Start(t, pgtest.Options{Fsync: true, Settings: map[string]string{"synchronous_commit": "on"}})
	base := safe.NewDatabase(t)
	expectRefusal(t, postgres.Config{URL: with(t, base, "synchronous_commit", "off")}, fault.Invalid, "synchronous_commit=off")
	s := openConfig(t, postgres.Config{URL: base})
	if s.Info().Shards != postgres.DefaultShards {
		t.Errorf("%d shards by default", s.Info().Shards)
	}

	// A commit connection checks this again, because a changed setting of a role applies to new
	// connections.
	b := newLoad(t, s, 1).lane.Batch()
	exec(t, connect(t, base), `alter role current_user set synchronous_commit = off`)
	_, err := s.Commit(t.Context(), b)
	if store.ClassOf(err) != store.Away || !strings.Contains(err.Error(), "synchronous_commit=off") {
		t.Errorf("committed on a connection that does not wait: %v", err)
	}
}

// Neither errors nor Info carry a password.
func TestCredentials(t *testing.T) {
	t.Parallel()
	postgres.Sequential(t)
	base := pgtest.URL(t)
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	s := openURL(t, base)
	if i := s.Info(); strings.Contains(i.URL, password) || strings.Contains(i.URL, "@") {
		t.Errorf("info names %s", i.URL)
	}
	const secret = "s3cr3t/?#"
	wrong := *u
	wrong.User = url.UserPassword(u.User.Username(), secret)
	gone := wrong
	gone.Host = "127.0.0.1:1"

	for name, bad := range map[string]string{
		"wrong password": wrong.String(), "nobody there": gone.String(),
		"not a URL": "postgres://user:" + secret + "@host:notaport/db?x=%zz", "unescaped": "postgres://user:" + secret + "@h/db",
		"keywords": "host=127.0.0.1 port=x password='" + secret + "'", "unknown parameter": with(t, base, "nonsense", "1", "password", secret),
	} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: bad, AllowUnsafe: true})
		if err == nil {
			t.Errorf("%s: opened", name)
			continue
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if text := fmt.Sprintf("%v %+v", e, e); strings.Contains(text, "s3cr3t") {
				t.Errorf("%s: the password is in %T: %s", name, e, text)
			}
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, seed := range []string{"postgres://u:s3cr3t@h/d", "host=x password=s3cr3t", "postgres://u:s3cr3t", "postgres://u:s3cr3t@[::1/d", "s3cr3t@", "postgres://s3cr3t:s3cr3t@h:p"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := postgres.Check(ctx, postgres.Config{URL: url}); err == nil {
			t.Skip()
		} else if fault.KindOf(err) == fault.Invalid && strings.Contains(url, "s3cr3t") && strings.Contains(err.Error(), "s3cr3t") &&
			!strings.Contains(err.Error(), "schema") {
			t.Fatalf("the URL is in %q", err)
		}
	})
}
