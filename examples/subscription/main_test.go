package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// log is what the program printed; steps print from other goroutines.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func TestSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out log
		if err := run(t.Context(), "memory:", &out); err != nil {
			t.Fatal(err)
		}
		want := strings.Join([]string{
			"period 1: charged eve 10 EUR",
			`update to gold refused: there is no plan "gold": choose basic or pro`,
			"update to pro accepted: 25 EUR from the next period on",
			"period 2: charged eve 25 EUR",
			"period 3: charged eve 25 EUR",
			"period 4: charged eve 25 EUR",
			"state: period 4, plan pro, 85 EUR paid",
			"ended in period 4, paid 85 EUR in all. Start over with: rm subscription.db*",
		}, "\n") + "\n"
		if got := out.text.String(); got != want {
			t.Errorf("it printed\n%swant\n%s", got, want)
		}
	})
}
