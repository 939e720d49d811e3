package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

// The program makes 43 calls at five per second, and the breaker blocks all calls for five seconds.
// Three calls fail, and the waiting tasks use up no attempts.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), "memory:", &service{out: &out, away: 3}); err != nil {
			t.Fatal(err)
		}
		const want = "call 11: away\ncall 12: away\ncall 13: away\n40 prices, 4780 in all, after 43 calls in 13s; breaker quotes is closed\n"
		if got := out.String(); got != want {
			t.Errorf("it printed\n%swant\n%s", got, want)
		}
	})
}
