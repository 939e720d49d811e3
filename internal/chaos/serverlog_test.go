package chaos_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// Two processes start the same executions. The test kills one of them, and the other takes over.
// The log of the database has only errors that docs/stores.md describes as harmless.
func TestServerLogStaysClean(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	url := server.NewDatabase(t)
	const n, lease = 25, 3 * time.Second
	l := newLedger(t)
	first := spawn(t, url, duty{l, n, lease})
	first.comesUp(3 * time.Minute)
	second := spawn(t, url, duty{l, n, lease})
	second.comesUp(3 * time.Minute)
	first.until("entries in the ledger", l, 30)
	first.kill()
	second.finish(3 * time.Minute)
	spawn(t, url, duty{l, n, lease}).finish(3 * time.Minute) // all executions have ended by now
	verify(t, url, n, l)

	text, err := os.ReadFile(server.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	// docs/stores.md explains these errors.
	harmless := []string{"perdure: the lane was fenced", "canceling statement due to user request"}
	for line := range strings.Lines(string(text)) {
		known := slices.ContainsFunc(harmless, func(text string) bool { return strings.Contains(line, text) })
		if (strings.Contains(line, "ERROR:") || strings.Contains(line, "PANIC:")) && !known {
			t.Errorf("the server logs: %s", line)
		}
	}
}
