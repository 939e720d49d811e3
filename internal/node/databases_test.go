package node_test

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
)

// A store is divided by AddGroups, all its databases are migrated, and a node opens it only with
// all of them.
func TestSeveralDatabases(t *testing.T) {
	t.Parallel()
	cfg := node.Config{URL: pgtest.URL(t), AllowUnsafe: true, Databases: map[string]string{"frankfurt": pgtest.URL(t)}}
	refuse := func(says string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
	add := func(groups string) error {
		_, err := node.AddGroups(t.Context(), cfg, groups)
		return err
	}

	refuse("holds no shard group", add("gpu=2"))
	refuse(`the database "paris" is not configured`, add("eu=4@paris"))
	if err := add("gpu=2,eu=4@frankfurt"); err != nil {
		t.Fatal(err)
	}
	st, err := node.Migrate(t.Context(), cfg)
	if err != nil || len(st.Databases) != 1 || st.Databases[0].Name != "frankfurt" || !slices.Equal(st.Databases[0].Groups, []string{"eu"}) || st.Groups != "gpu=2,eu=4" {
		t.Errorf("status %+v, %v", st, err)
	}

	open := func(change func(c *node.Config)) error {
		c := cfg
		change(&c)
		s, err := node.OpenStore(t.Context(), c)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	if err := open(func(*node.Config) {}); err != nil {
		t.Error(err)
	}
	refuse("has the databases [frankfurt] next to this one, and [] are configured", open(func(c *node.Config) { c.Databases = nil }))
	refuse("is the database frankfurt of a cluster", open(func(c *node.Config) { c.URL, c.Databases = c.Databases["frankfurt"], nil }))
	refuse("does not belong to the cluster", open(func(c *node.Config) { c.Databases = map[string]string{"frankfurt": pgtest.URL(t)} }))
	refuse("no PostgreSQL URL", open(func(c *node.Config) { c.Databases = map[string]string{"frankfurt": "file:x"} }))
	refuse("only a store in PostgreSQL", open(func(c *node.Config) { c.URL = "memory:" }))

	// The text of a user who forgot the name may have a password.
	err = open(func(c *node.Config) { c.Databases = map[string]string{"postgres://u:secret@host/db": ""} })
	if refuse("not a list of names", err); err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows a password: %v", err)
	}
}

// If AddGroups ends before the first database knows the new group, the store does not open. Every
// error says which command continues, and that command does.
func TestAddGroupsThatEndsInBetween(t *testing.T) {
	t.Parallel()
	cfg := node.Config{URL: pgtest.URL(t), AllowUnsafe: true, Databases: map[string]string{"frankfurt": pgtest.URL(t)}}
	if _, err := node.AddGroups(t.Context(), cfg, "eu=4@frankfurt"); err != nil {
		t.Fatal(err)
	}
	open := func() error {
		s, err := node.OpenStore(t.Context(), cfg)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	hints := func(what string, err error, command string) {
		t.Helper()
		var f *fault.Error
		if !errors.As(err, &f) || !strings.Contains(f.Hint, command) {
			t.Errorf("%s: %v (%+v), want a hint with %q", what, err, f, command)
		}
	}

	target, err := url.Parse(cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := pgproxy.New(t, target.Host)
	broken := cfg
	broken.URL = proxy.URL(cfg.URL)
	trigger := proxy.Inject(pgproxy.Rule{Fault: pgproxy.Reset, Nth: 2, Match: pgproxy.Mentions("meta set databases")})
	_, err = node.AddGroups(t.Context(), broken, "us=2@frankfurt")
	if trigger.Cancel() {
		t.Fatalf("the fault has not occurred: %v", err)
	}
	hints("the command", err, "perdure migrate --groups us=2@frankfurt")
	hints("open", open(), "perdure migrate --groups us=2,")
	_, err = node.Migrate(t.Context(), cfg)
	hints("migrate", err, "perdure migrate --groups us=2,")

	st, err := node.AddGroups(t.Context(), cfg, "us=2@frankfurt")
	if err != nil || st.Groups != "eu=4,us=2" {
		t.Fatalf("%+v, %v", st, err)
	}
	if err := open(); err != nil {
		t.Error(err)
	}
}

// The state of the schema includes every database: whether this process knows it, reaches it, and
// whether it belongs to the cluster.
func TestSchemaOfSeveralDatabases(t *testing.T) {
	t.Parallel()
	cfg := node.Config{URL: pgtest.URL(t), AllowUnsafe: true, Databases: map[string]string{"frankfurt": pgtest.URL(t)}}
	if _, err := node.AddGroups(t.Context(), cfg, "eu=4@frankfurt"); err != nil {
		t.Fatal(err)
	}

	for url, says := range map[string]string{
		cfg.Databases["frankfurt"]: "",
		"":                         "database frankfurt is not configured",
		cfg.URL:                    "does not belong to the cluster under this name",
		pgtest.URL(t):              "database frankfurt has version 0 of the schema",
		"postgres://user:secret@host:no-port/name": "cannot be read",
	} {
		c := cfg
		c.Databases = maps.Clone(cfg.Databases)
		c.Databases["frankfurt"] = url
		st, err := node.CheckSchema(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}

		found := st.Missing()
		switch {
		case says == "" && found == nil && st.Databases[0].Version == st.Latest:
		case says == "" || found == nil || !strings.Contains(found.Error(), says) || !strings.Contains(st.Databases[0].Problem, says):
			t.Errorf("with the URL %q: %v, status %+v; want %q", url, found, st.Databases, says)
		case strings.Contains(found.Error(), "secret"):
			t.Errorf("the error shows a password: %v", found)
		}
	}
}

// A URL in the place of the name of a database is refused, and no error shows the password of the
// URL.
func TestPlacesShowNoPassword(t *testing.T) {
	t.Parallel()
	for _, databases := range []map[string]string{nil, {"frankfurt": "postgres://frankfurt.invalid/app"}} {
		for _, groups := range []string{
			"eu=64@postgres://user:secret@host/db", "eu=postgres://user:secret@host/db", "postgres://user:secret@host/db", "eu=64@frankfurt,postgres://user:sec,ret=secret@host",
			"eu=64@host=db password=secret", "eu=64@password=secret", "eu=64@secret@host",
		} {
			_, err := node.AddGroups(t.Context(), node.Config{URL: "postgres://main.invalid/app", Databases: databases}, groups)
			for _, err := range []error{err, node.CheckPlaces(groups)} {
				if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "name=shards@database") {
					t.Errorf("%s: %v, want an error that does not quote it", groups, err)
				}
			}
		}
	}
}
