package e2e_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
)

// warnings collects the log of an app from level WARN on.
type warnings struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *warnings) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// Behind a PgBouncer two processes share the executions and entities of a store. Each process
// starts, calls and signals executions of the other process, and both stop cleanly. Transaction
// mode needs prepare=off; in this mode each process logs once that it gets no hints.
func TestTwoProcessesBehindPooler(t *testing.T) {
	t.Parallel()
	for mode, prepare := range map[pgtest.PoolMode]string{pgtest.PoolSession: "on", pgtest.PoolTransaction: "off"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, pgtest.Options{})
			size := 40
			if mode == pgtest.PoolTransaction {
				size = 4 // fewer than the connections of the processes
			}
			u, err := url.Parse(server.StartBouncer(t, mode, size).URL(server.NewDatabase(t)))
			if err != nil {
				t.Fatal(err)
			}
			q := u.Query()
			q.Set("prepare", prepare)
			u.RawQuery = q.Encode()

			var log warnings
			s := &site{t: t, kind: "postgres", url: u.String()}
			s.cfg.AllowUnsafe, s.cfg.Logger = true, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			talkThroughPooler(t, s)

			lines := strings.Count(log.text(), "\n")
			switch {
			case mode == pgtest.PoolSession && lines > 0:
				t.Errorf("the apps warn:\n%s", log.text())
			case mode == pgtest.PoolTransaction && (lines != 2 || strings.Count(log.text(), "pooler") != 2):
				t.Errorf("the apps warn, want one line about the pooler of each:\n%s", log.text())
			}
		})
	}
}

// talkThroughPooler lets two apps use each other's executions and entities. The second app is open
// only for the second half.
func talkThroughPooler(t *testing.T, s *site) {
	t.Helper()
	type count struct{ N int }
	counters := perdure.NewEntity[count]("counter")
	add := perdure.NewOperation(counters, "add", func(_ perdure.EntityCtx, c *count, n int) (int, error) {
		c.N += n
		return c.N, nil
	})
	approved := perdure.NewSignal[int]("approved")
	order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, key string) (int, error) {
		n, err := approved.Receive(ctx)
		if err != nil {
			return 0, err
		}
		return add.Call(ctx, key, n)
	})
	defs := perdure.Group{counters, order}

	apps := []*perdure.App{s.open(defs), s.open(defs)}
	var wg sync.WaitGroup
	for i := range 12 { // each app owns some of the keys
		wg.Go(func() {
			here, there := caller(t, apps[i%2]), caller(t, apps[(i+1)%2])
			key := fmt.Sprint("k", i)
			exec, err := order.Start(here, key, perdure.RawKey(key))
			if err != nil {
				t.Error(err)
				return
			}
			got, err := add.Call(there, key, 1)
			equal(t, "a call", got, err, 1)
			if err := approved.Send(there, exec, 2); err != nil {
				t.Error(err)
			}
			got, err = exec.Result(here)
			equal(t, "the result", got, err, 3)
		})
	}
	wg.Wait()
	for _, app := range apps {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	}
}
