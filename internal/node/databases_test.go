package node_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/node"
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
	if err != nil || st.Databases != "frankfurt (eu)" || st.Groups != "gpu=2,eu=4" {
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
