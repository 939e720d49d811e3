package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// In session mode a client keeps its server connection; in transaction mode, with a pool of one,
// two clients share it.
func TestBouncer(t *testing.T) {
	t.Parallel()
	server := Start(t, Options{})
	base := server.NewDatabase(t)
	for mode, shared := range map[PoolMode]bool{PoolSession: false, PoolTransaction: true} {
		size := 2
		if shared {
			size = 1
		}
		b := server.StartBouncer(t, mode, size)

		var pids [2]int
		for i := range pids {
			conn, err := pgx.Connect(t.Context(), b.URL(base))
			if err != nil {
				t.Fatalf("%s: %v; the bouncer says:\n%s", mode, err, b.Log())
			}
			t.Cleanup(func() { _ = conn.Close(t.Context()) })
			if err := conn.QueryRow(t.Context(), `select pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&pids[i]); err != nil {
				t.Fatal(err)
			}
		}

		if (pids[0] == pids[1]) != shared {
			t.Errorf("%s: two clients have server processes %v", mode, pids)
		}
	}
}
