package main

import (
	"bytes"
	"testing"
	"testing/synctest"
)

// 43 calls at five a second, and five seconds in which the breaker lets none through: three fail,
// and none of the tasks behind them has lost an attempt.
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
