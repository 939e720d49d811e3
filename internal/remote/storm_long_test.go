//go:build long

package remote_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// 1,000 workers are connected when their server is killed or stopped under load, on PostgreSQL.
func TestLongServerDiesWithThousandWorkers(t *testing.T) {
	pg := pgtest.Start(t, pgtest.Options{Fsync: true})
	blow(t, pg.URL("postgres"), storms{workers: 1000, executions: 2000, rounds: 4, slow: 2 * time.Second, calm: 3 * time.Second, seed: 7})
}

// A server dies again and again, at moments that a seed decides.
func TestLongServerDiesOften(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			blow(t, "file:"+filepath.Join(t.TempDir(), "server.db"), storms{
				workers: 10, executions: 400, rounds: 8, slow: 500 * time.Millisecond, calm: 300 * time.Millisecond, seed: seed,
			})
		})
	}
}

// The same on PostgreSQL. There the next server waits for the lease of the last one, so workers
// come back before the server owns anything.
func TestLongServerDiesOnPostgreSQL(t *testing.T) {
	pg := pgtest.Start(t, pgtest.Options{Fsync: true})
	blow(t, pg.URL("postgres"), storms{workers: 10, executions: 300, rounds: 4, slow: 500 * time.Millisecond, calm: time.Second, seed: 3})
}

// On PostgreSQL, too, an execution that no worker holds continues as soon as all workers are back.
func TestLongServerDiesAndNothingWaits(t *testing.T) {
	pg := pgtest.Start(t, pgtest.Options{Fsync: true})
	for name, signal := range map[string]os.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			continueAfter(t, &process{store: pg.NewDatabase(t), listen: freePort(t), reunion: time.Hour}, signal)
		})
	}
}
