package main

import (
	"path/filepath"
	"testing"

	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
	"github.com/perdure/perdure/internal/pgtest"
)

func TestTransfer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The engine refuses a database server that can lose commits.
	url := pgtest.Start(t, pgtest.Options{Fsync: true}).NewDatabase(t)

	for _, c := range []struct{ name, engine, driver, accounts string }{
		{"sqlite", "file:" + filepath.Join(dir, "engine.db"), "sqlite3", "file:" + filepath.Join(dir, "accounts.db")},
		{"postgres", url, "pgx", url},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// The second run finds that everything is done.
			for life, placed := range []bool{false, true} {
				var out printed.Text
				if err := run(t.Context(), c.engine, c.driver, c.accounts, out.Say); err != nil {
					t.Fatal(err)
				}
				want := []string{"order o-1: alice has 7500 left", "order o-2 failed: bob does not have enough money", "all accounts together: 10000"}
				if placed {
					want = []string{"order o-1 was placed before", want[0], "order o-2 was placed before", want[1], want[2]}
				}
				if diff := printed.Diff(out.String(), want...); diff != "" {
					t.Errorf("life %d: %s", life, diff)
				}
			}
		})
	}
}
