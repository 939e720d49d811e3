package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

type refused struct{ why string }

func (r *refused) Error() string { return "refused: " + r.why }

// A pause between attempts outlives the process: the next process makes the next attempt, at its
// time or later and under the same idempotency key. The replayed code gets the same final error.
func TestAttemptsOverRestarts(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		// The pause is long enough to close and open an app, even on a busy machine.
		const pause = 2 * time.Second
		var mu sync.Mutex
		var at []time.Time
		keys, seen := map[string]bool{}, map[string]bool{}

		try := perdure.NewActivity("try", func(ctx context.Context, _ string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Now())
			keys[perdure.IdempotencyKey(ctx)] = true
			if perdure.Attempt(ctx) == 3 {
				return "", fmt.Errorf("attempt 3: %w", &refused{"enough"})
			}
			return "", errors.New("busy")
		}, perdure.RetryPolicy{MaxAttempts: 9, Initial: pause, Max: pause, Except: []perdure.ErrorKind{perdure.ErrorType[*refused]()}})

		wake := perdure.NewSignal[int]("wake")
		w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, in string) (string, error) {
			_, err := try.Run(ctx, in)
			var re *perdure.RemoteError
			if !errors.As(err, &re) {
				return "", fmt.Errorf("the step ended with %w", err)
			}
			text := fmt.Sprintf("%q %q %q", re.Kind, re.Type, re.Message)
			mu.Lock()
			seen[text] = true
			mu.Unlock()
			_, err = wake.Receive(ctx)
			return text, err
		})

		app := s.open(w, try)
		x := mustStart(t, caller(t, app), w, "in", perdure.RawKey("k"))
		reason(t, app, x, "retries step try, attempt 2")
		app = s.reopen(app, w, try)
		reason(t, app, x, "retries step try, attempt 3")
		app = s.reopen(app, w, try)
		reason(t, app, x, "waits for signal wake")
		app = s.reopen(app, w, try)
		if err := wake.Send(caller(t, app), x, 1); err != nil {
			t.Fatal(err)
		}

		got, err := x.Result(caller(t, app))
		equal(t, "the error", got, err, `"" "*e2e_test.refused" "attempt 3: refused: enough"`)
		mu.Lock()
		defer mu.Unlock()
		// The clock of a node may be a little behind at its start.
		const least = pause - 100*time.Millisecond
		if len(at) != 3 || at[1].Sub(at[0]) < least || at[2].Sub(at[1]) < least {
			t.Errorf("attempts were made at %v, want three with %s between them", at, pause)
		}
		if len(keys) != 1 || len(seen) != 1 {
			t.Errorf("idempotency keys %v, errors seen by the code %v; want one of each", keys, seen)
		}
	})
}
