package e2e_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
)

// A retry of an execution whose call of an entity failed repeats the call.
func TestRetryOfAFailedCall(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"memory"}, func(t *testing.T, s *site) {
		var broken atomic.Bool
		broken.Store(true)
		accounts := perdure.NewEntity[int]("account")

		deposit := perdure.NewOperation(accounts, "deposit", func(_ perdure.EntityCtx, n *int, by int) (int, error) {
			if broken.Load() {
				return 0, perdure.Permanent(errors.New("the vault is closed"))
			}
			*n += by
			return *n, nil
		})

		pay := perdure.NewWorkflow("pay", func(ctx perdure.WorkflowCtx, by int) (int, error) { return deposit.Call(ctx, "a", by) })
		app := s.open(accounts, pay)
		c := caller(t, app)
		x := mustStart(t, c, pay, 7)
		if _, err := x.Result(c); err == nil {
			t.Fatal("the call did not fail")
		}

		broken.Store(false)
		if _, err := app.Executions().Retry(t.Context(), x); err != nil {
			t.Fatal(err)
		}
		if n, err := x.Result(c); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}
