package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// An activity is a function with side effects. The engine records its outcome in the journal. On
// replay, the step returns the recorded outcome and does not call the function.
func ExampleActivity() {
	charge := perdure.NewActivity("charge", func(ctx context.Context, cents int) (string, error) {
		// Real code would pass perdure.IdempotencyKey(ctx) to the payment service.
		return fmt.Sprintf("charged %d at attempt %d", cents, perdure.Attempt(ctx)), nil
	}, perdure.Exponential(5), perdure.AttemptTimeout(10*time.Second))
	orders := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, cents int) (string, error) {
		return charge.Run(ctx, cents)
	})
	app := embedded.MustOpen("memory:", orders, charge)
	defer app.Close()
	fmt.Println(orders.Run(app.With(context.Background()), 990))
	// Output: charged 990 at attempt 1 <nil>
}

// Do is a step without an activity of its own: a name and a function.
func ExampleDo() {
	roll := perdure.NewWorkflow("roll", func(ctx perdure.WorkflowCtx, files []string) (int, error) {
		total := 0
		for _, f := range files {
			n, err := perdure.Do(ctx, "size", func(context.Context) (int, error) {
				return len(f), nil
			}, perdure.StepKey(f)) // in a loop, the key tells the steps apart
			if err != nil {
				return 0, err
			}
			total += n
		}
		return total, nil
	})

	app := embedded.MustOpen("memory:", roll)
	defer app.Close()
	fmt.Println(roll.Run(app.With(context.Background()), []string{"a", "bb", "ccc"}))
	// Output: 6 <nil>
}

// The engine retries a failed attempt according to the policy of the call or of the activity.
// Pauses are durable: a crash of the process does not end them.
func ExampleRetryPolicy_perCall() {
	errBusy := errors.New("busy")
	book := perdure.NewActivity("book", func(ctx context.Context, seat string) (string, error) {
		if perdure.Attempt(ctx) < 3 {
			return "", errBusy
		}
		return fmt.Sprintf("%s at attempt %d", seat, perdure.Attempt(ctx)), nil
	}, perdure.RetryPolicy{
		MaxAttempts: 5,
		Initial:     time.Millisecond,
		Max:         time.Second,
		If:          func(err error) bool { return errors.Is(err, errBusy) },
	})

	trip := perdure.NewWorkflow("trip", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		first, err := book.Run(ctx, "12a")
		if err != nil {
			return "", err
		}
		// this call has another policy
		_, second := book.Run(ctx, "12b", perdure.Constant(2, time.Millisecond))
		return fmt.Sprintf("%s; then %v", first, second), nil
	})

	app := embedded.MustOpen("memory:", trip, book)
	defer app.Close()
	fmt.Println(trip.Run(app.With(context.Background()), ""))
	// Output: 12a at attempt 3; then busy <nil>
}

// After a Permanent error the engine makes no further attempt, because it would not help.
func ExamplePermanent() {
	charge := perdure.NewActivity("charge", func(context.Context, int) (string, error) {
		return "", perdure.Permanent(errors.New("card refused"))
	})
	orders := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, cents int) (string, error) { return charge.Run(ctx, cents) })
	app := embedded.MustOpen("memory:", orders, charge)
	defer app.Close()
	_, err := orders.Run(app.With(context.Background()), 990)
	fmt.Println(err)
	// Output: card refused
}

// RetryAfter is for services that say when to try again.
func ExampleRetryAfter() {
	fetch := perdure.NewActivity("fetch", func(ctx context.Context, _ string) (int, error) {
		if perdure.Attempt(ctx) == 1 {
			return 0, perdure.RetryAfter(errors.New("429 too many requests"), 5*time.Millisecond)
		}
		return perdure.Attempt(ctx), nil
	})
	poll := perdure.NewWorkflow("poll", func(ctx perdure.WorkflowCtx, _ string) (int, error) { return fetch.Run(ctx, "") })
	app := embedded.MustOpen("memory:", poll, fetch)
	defer app.Close()
	fmt.Println(poll.Run(app.With(context.Background()), ""))
	// Output: 2 <nil>
}

// An error that comes from the journal is a RemoteError. It has the type and the text of the
// original error, but does not wrap other errors.
func ExampleRemoteError() {
	charge := perdure.NewActivity("charge", func(context.Context, int) (string, error) {
		return "", perdure.Permanent(expiredCard{})
	})
	orders := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, cents int) (string, error) {
		_, err := charge.Run(ctx, cents)
		var remote *perdure.RemoteError
		if errors.As(err, &remote) && remote.Type == "perdure_test.expiredCard" {
			return "ask for another card: " + remote.Message, nil
		}
		return "", err
	})
	app := embedded.MustOpen("memory:", orders, charge)
	defer app.Close()
	fmt.Println(orders.Run(app.With(context.Background()), 990))
	// Output: ask for another card: the card is expired <nil>
}

type expiredCard struct{}

func (expiredCard) Error() string { return "the card is expired" }
