package main

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

func TestNightly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out printed.Text
		if err := run(t.Context(), "memory:", &out); err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSpace(out.String()), "\n")

		want := []string{
			"3 nights to fill in",
			"report of sales until 1999-12-29 01:00",
			"report of sales until 1999-12-30 01:00",
			"report of sales until 1999-12-31 01:00",
			"report of sales until 2000-01-01 00:00",
			"nightly: 0 2 * * * Europe/Berlin, fires next at 2000-01-01T01:00:00Z",
			"often: every 1s, fires next at 2000-01-01T00:00:04Z",
		}

		slices.Sort(got) // the reports print concurrently with the program
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("it printed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
