package txtest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
)

// A workflow returns while the handler of an update makes a transfer. The engine decides the
// outcome of the transfer before the workflow ends, and the sender of the update gets a refusal.
func TestReturnDuringAnUpdateThatTransfers(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		var running atomic.Int64
		begun := make(chan struct{})
		order := perdure.NewUpdate[transfer, string]("order")

		desk := perdure.NewWorkflow("desk", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
			order.Handle(ctx, func(ctx perdure.WorkflowCtx, in transfer) (string, error) { return settle.Run(ctx, in) })
			return word.Receive(ctx)
		})

		app := open(t, "memory:", desk, b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
			running.Add(1)
			defer running.Add(-1)
			if _, err := move(ctx, s, in); err != nil {
				return "", err
			}
			close(begun)
			<-ctx.Done()
			return "", ctx.Err()
		}))

		c := caller(t, app)
		exec, err := desk.Start(c, "", perdure.RawKey("d"))
		check(t, err)
		answer := make(chan error, 1)

		go func() {
			_, err := order.Call(c, exec, one)
			answer <- err
		}()

		<-begun
		check(t, word.Send(c, exec, "closed"))
		if got, err := exec.Result(c); err != nil || got != "closed" || running.Load() != 0 {
			t.Errorf("%q, %v, while %d transfers run", got, err, running.Load())
		}
		if err := <-answer; !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("the update is answered by %v", err)
		}
		b.check(nil)
	})
}
