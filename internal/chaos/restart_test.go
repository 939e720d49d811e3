package chaos_test

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// healing is how long a node may take to serve again after the database serves again (reliability
// I16).
const healing = 3 * time.Minute

// PostgreSQL restarts, crashes and loses a backend several times under a working node. The node
// needs no help: it serves again as soon as the server does, and callers notice nothing except a
// delay (reliability B3, B4).
func TestPostgresRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t, pgtest.Options{})
	url := pg.NewDatabase(t)
	b := openApp(t, url, newLedger(t), 10*time.Second)
	work := startLoad(t.Context(), b.app, b.ledger, "", 6)

	restart := func(m pgtest.Mode) func() {
		return func() {
			if err := pg.Restart(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}

	crash := func() {
		conn := connect(t, url)
		var pid int
		if err := conn.QueryRow(t.Context(), `select pid from pg_stat_activity where application_name like '% lane %'`).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}

		// All sessions end, and the server recovers.
		if err := conn.PgConn().Conn().SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.PgConn().Conn().Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the crash of a backend did not end the other sessions")
		}

		connect(t, url)
	}

	var took []time.Duration
	for _, strike := range []func(){restart(pgtest.Fast), restart(pgtest.Immediate), crash, restart(pgtest.Immediate), restart(pgtest.Fast), crash} {
		work.more(t, 5, 3*time.Minute)
		strike()
		back := time.Now()
		// Wait for more executions than there are callers, so that at least one of them started
		// after the strike.
		work.more(t, 7, healing)
		took = append(took, time.Since(back))
	}

	t.Logf("healed after %v", took)
	if slices.Sort(took); took[len(took)/2] > 5*time.Second && quiet() {
		t.Errorf("healed after %v, want 5 s at most", took)
	}
	n := work.finish(t, url, 3*time.Minute)
	if lost := b.book.count("the node lost its lease"); lost > 0 {
		t.Errorf("the lease was lost %d times by outages that were shorter", lost)
	}
	verify(t, url, n, b.ledger)
}
