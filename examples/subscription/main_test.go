package main

import (
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

func TestSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out printed.Text
		if err := run(t.Context(), "memory:", &out); err != nil {
			t.Fatal(err)
		}

		if diff := printed.Diff(
			out.String(),
			"period 1: charged eve 10 EUR",
			`update to gold refused: there is no plan "gold": choose basic or pro`,
			"update to pro accepted: 25 EUR from the next period on",
			"period 2: charged eve 25 EUR",
			"period 3: charged eve 25 EUR",
			"period 4: charged eve 25 EUR",
			"state: period 4, plan pro, 85 EUR paid",
			"ended in period 4, paid 85 EUR in all. Start over with: rm subscription.db*",
		); diff != "" {
			t.Error(diff)
		}
	})
}
