package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
)

// Two processes share a database. A caller in either process can query, update, pause, resume and
// terminate executions that the other process owns.
func TestTalkBetweenProcesses(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		var booked atomic.Int64
		carts := cart(&booked)
		apps := []*perdure.App{s.open(carts), s.open(carts)}

		var wg sync.WaitGroup
		for i := range 6 { // each process owns some of them
			wg.Go(func() {
				here, there := caller(t, apps[i%2]), caller(t, apps[(i+1)%2])
				exec, err := carts.Start(here, "x", perdure.RawKey(fmt.Sprint("cart ", i)))
				if err != nil {
					t.Error(err)
					return
				}

				for _, c := range []perdure.Client{here, there, here, there} {
					got, err := addItem.Call(c, exec, item{"a", 2}, perdure.RequestID("once"))
					equal(t, "an update under one request id", got, err, 2)
					n, err := contents.Ask(c, exec, "a")
					equal(t, "the contents", n, err, 2)
				}

				if _, err := addItem.Call(there, exec, item{"a", -1}); err == nil || !strings.Contains(err.Error(), "n must be positive") {
					t.Errorf("a refused update: %v", err)
				}

				ctx := t.Context()
				for j := range 2 {
					if err := apps[j].Executions().Pause(ctx, exec, "both"); err != nil {
						t.Error(err)
					}
					wantError(t, "a query of a paused execution", ask(t, apps[1-j], exec), perdure.ErrBlocked, "paused: both")
					if err := apps[1-j].Executions().Resume(ctx, exec); err != nil {
						t.Error(err)
					}
				}

				n, err := contents.Ask(there, exec, "a")
				equal(t, "the contents after a pause", n, err, 2)
				if err := apps[i%2].Executions().Terminate(ctx, exec, "enough"); err != nil {
					t.Error(err)
				}
				_, err = exec.Result(there)
				if remote := (*perdure.RemoteError)(nil); !errors.As(err, &remote) || !strings.Contains(err.Error(), "enough") {
					t.Errorf("the result: %v", err)
				}
				got, err := addItem.Call(there, exec, item{"a", 2}, perdure.RequestID("once"))
				equal(t, "the same request after the end", got, err, 2)
			})
		}

		wg.Wait()
		if n := booked.Load(); n != 6 {
			t.Errorf("%d items were booked, want 6", n)
		}

		for _, app := range apps {
			if err := app.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func ask(t *testing.T, app *perdure.App, to perdure.Target) error {
	t.Helper()
	_, err := contents.Ask(caller(t, app), to, "a")
	return err
}
