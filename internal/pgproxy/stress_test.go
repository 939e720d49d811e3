package pgproxy_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/pgproxy"
)

// TestFaultsUnderLoad injects random faults into clients that write concurrently. It compares the
// answers that the clients got, and the view of the proxy, with the rows in the table.
func TestFaultsUnderLoad(t *testing.T) {
	t.Parallel()
	const clients, faults = 6, 60
	s := setup(t)

	var next atomic.Int64
	var mu sync.Mutex
	acknowledged, unknown := map[int]bool{}, map[int]bool{}
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			conn, err := pgx.Connect(t.Context(), s.url)
			for {
				select {
				case <-stop:
					if conn != nil {
						_ = conn.Close(context.Background())
					}
					return
				default:
				}

				if err != nil || conn.IsClosed() {
					conn, err = pgx.Connect(t.Context(), s.url)
					continue
				}

				n := int(next.Add(1))
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				name := []string{"explicit commit", "implicit commit of a batch", "autocommit, extended", "copy"}[n%4]
				failure := writers[name](ctx, conn, n)
				cancel()
				mu.Lock()

				if failure == nil {
					acknowledged[n] = true
				} else {
					unknown[n] = true
				}

				mu.Unlock()
			}
		})
	}

	committed, refused := 0, 0
	random := rand.New(rand.NewPCG(1, 2))
	for range faults {
		rule := pgproxy.Rule{
			Fault: pgproxy.Fault(1 + random.IntN(int(pgproxy.Delay))),
			Nth:   1 + random.IntN(20),
			Delay: time.Duration(random.IntN(50)) * time.Millisecond,
			Hold:  pgproxy.Hold(random.IntN(2)),
		}

		trigger := s.proxy.Inject(rule)
		wait(t, rule.Fault.String(), trigger.Done())
		switch reply := trigger.Reply(); {
		case reply.SQLState == "57014":
			refused++ // the machine is slow, so the client has canceled its statement
		case rule.Fault == pgproxy.Reset && reply.Reached, rule.Fault != pgproxy.Reset && !reply.Committed():
			t.Errorf("%v: %v", rule.Fault, reply)
		case reply.Committed():
			committed++
		default:
			refused++
		}
	}
	close(stop)
	running.Wait()

	rows, err := s.direct.Query(t.Context(), "select n from t")
	if err != nil {
		t.Fatal(err)
	}
	stored, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	silent := 0
	for _, n := range stored {
		switch {
		case acknowledged[n]:
			delete(acknowledged, n)
		case unknown[n]:
			silent++
		default:
			t.Errorf("row %d has no owner", n)
		}
	}
	for n := range acknowledged {
		t.Errorf("row %d was acknowledged and is not there", n)
	}
	if committed == 0 || refused == 0 || silent == 0 {
		t.Errorf("%d struck requests committed, %d did not, %d rows were committed without a word; want some of each", committed, refused, silent)
	}
	t.Logf("%d rows, %d struck requests committed, %d did not, %d rows committed without a word", len(stored), committed, refused, silent)
}
