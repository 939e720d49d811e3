package e2e_test

import (
	"testing"

	"github.com/perdure/perdure"
)

// A workflow sends messages to a key, or under a request id, that cannot be stored. The workflow
// gets an error, and other messages between the same shards are not affected.
func TestSendsThatCannotBeStored(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		ping := perdure.NewSignal[string]("ping")
		ask := perdure.NewUpdate[string, string]("ask")
		done := perdure.NewPromise[string]("done")
		receiver := perdure.NewWorkflow("receiver", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return ping.Receive(ctx) })

		sender := perdure.NewWorkflow("sender", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
			refused := 0
			for _, bad := range []string{"a\x00b", "\xff", ""} {
				to := perdure.Ref{Workflow: "receiver", Key: bad}
				for _, err := range []error{
					ping.Send(ctx, to, "x"), done.Resolve(ctx, to, "x"), second(ask.Call(ctx, to, "x")),
					second(receiver.Execution(perdure.RawKey(bad)).Result(ctx)), second(receiver.Execution(perdure.RawKey(bad)).Future(ctx).Get(ctx)),
				} {
					if err != nil {
						refused++
					}
				}
			}

			for _, id := range []string{"a\x00b", "\xff", "\x1fupdate x"} {
				if err := ping.Send(ctx, perdure.Ref{Workflow: "receiver", Key: "r"}, "x", perdure.RequestID(id)); err != nil {
					refused++
				}
			}

			return refused, ping.Send(ctx, perdure.Ref{Workflow: "receiver", Key: "r"}, "hello")
		})

		app := s.open(receiver, sender)
		c := caller(t, app)
		r := mustStart(t, c, receiver, "", perdure.RawKey("r"))
		got, err := sender.Run(c, "", perdure.RawKey("s"))
		equal(t, "refused", got, err, 18)
		word, err := r.Result(c)
		equal(t, "received", word, err, "hello")
	})
}

func second[T any](_ T, err error) error { return err }
