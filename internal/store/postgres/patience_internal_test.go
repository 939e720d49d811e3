package postgres

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Without a deadline, Open tries again even if the first attempt takes as long as an attempt may,
// because the server does not answer. It does not wait longer for a server that refuses at once.
func TestOpenWithoutADeadlineTriesTwice(t *testing.T) {
	t.Parallel()
	try := func(ctx context.Context, takes time.Duration, failed error) (attempts int, took time.Duration) {
		t.Helper()
		begun := time.Now()
		err := insist(ctx, func(ctx context.Context) error {
			attempts++
			select {
			case <-time.After(takes):
			case <-ctx.Done():
			}
			return failed
		})
		if err == nil || !strings.Contains(err.Error(), "attempts in") {
			t.Errorf("%v, want an error that counts the attempts", err)
		}
		return attempts, time.Since(begun)
	}

	synctest.Test(t, func(t *testing.T) {
		silent := &net.OpError{Op: "dial", Err: errors.New("no answer")}
		if n, took := try(context.Background(), connectTimeout, silent); n != 2 || took > 2*connectTimeout+longestOpenWait {
			t.Errorf("a server that does not answer: %d attempts in %s, want 2", n, took)
		}
		if n, took := try(context.Background(), 0, silent); n < 3 || took > openPatience {
			t.Errorf("a server that refuses at once: %d attempts in %s, want several within %s", n, took, openPatience)
		}
		// A migration that has waited for a long time for a lock does not wait that long again.
		locked := &pgconn.PgError{Code: codeLockNotAvailable}
		if n, took := try(context.Background(), time.Minute, locked); n != 1 {
			t.Errorf("tables that others hold: %d attempts in %s, want 1", n, took)
		}

		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		if n, took := try(ctx, time.Minute, silent); n != 1 || took > connectTimeout {
			t.Errorf("a caller with a deadline: %d attempts in %s, want one until the deadline", n, took)
		}
	})
}
