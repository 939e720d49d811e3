package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
)

type cardError struct{ code int }

func (e *cardError) Error() string { return fmt.Sprint("card refused, code ", e.code) }

// Every field of a policy decides how often and when an attempt is repeated. The history has each
// failed attempt, the last error is the error of the step, and all attempts have the same
// idempotency key.
func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	wrapped := func(err error) error { return fmt.Errorf("wrapped: %w", err) }
	for _, c := range []struct {
		name   string
		policy perdure.RetryPolicy
		fail   func(attempt int) error
		want   string // the pauses, and then the end of the step
	}{
		{"exponential", perdure.Exponential(4), func(int) error { return boom }, "1s 2s 4s boom"},
		{"constant", perdure.Constant(3, 5*time.Second), func(int) error { return boom }, "5s 5s boom"},
		{"constant without a pause", perdure.Constant(3, 0), func(int) error { return boom }, "0s 0s boom"},
		{
			"field by field",
			perdure.RetryPolicy{MaxAttempts: 5, Initial: 100 * time.Millisecond, Coefficient: 10, Max: 5 * time.Second},
			func(int) error { return boom }, "100ms 1s 5s 5s boom",
		},
		{"succeeds", perdure.RetryPolicy{}, func(n int) error { return map[bool]error{true: boom}[n < 8] }, "1s 2s 4s 8s 16s 32s 1m0s ok"},
		{"one attempt", perdure.RetryPolicy{MaxAttempts: 1}, func(int) error { return boom }, "boom"},
		{"permanent", perdure.RetryPolicy{}, func(int) error { return wrapped(perdure.Permanent(boom)) }, "wrapped: boom"},
		{
			"retry after", perdure.Constant(4, time.Second),
			func(n int) error {
				if n == 2 {
					return wrapped(perdure.RetryAfter(boom, time.Hour))
				}
				return boom
			}, "1s 1h0m0s 1s boom",
		},
		{"if", perdure.RetryPolicy{MaxAttempts: 9, If: func(err error) bool { return !errors.Is(err, io.EOF) }}, func(n int) error {
			return map[bool]error{false: boom, true: wrapped(io.EOF)}[n > 2]
		}, "1s 2s wrapped: EOF"},
		{"except a type", perdure.RetryPolicy{MaxAttempts: 9, Except: []perdure.ErrorKind{perdure.ErrorType[*cardError]()}}, func(n int) error {
			return map[bool]error{false: boom, true: wrapped(&cardError{7})}[n > 1]
		}, "1s wrapped: card refused, code 7"},
		{"except a value", perdure.RetryPolicy{MaxAttempts: 9, Except: []perdure.ErrorKind{perdure.ErrorIs(boom), perdure.ErrorIs(io.EOF)}}, func(int) error {
			return wrapped(io.EOF)
		}, "wrapped: EOF"},
		{"except what is recorded as a time-out", perdure.RetryPolicy{MaxAttempts: 9, Except: []perdure.ErrorKind{perdure.ErrorIs(perdure.ErrTimeout)}}, func(n int) error {
			return map[bool]error{false: boom, true: wrapped(context.DeadlineExceeded)}[n > 1]
		}, "1s wrapped: context deadline exceeded"},
		{"except a name of a type", perdure.RetryPolicy{MaxAttempts: 9, Except: []perdure.ErrorKind{perdure.ErrorNamed("*perdure_test.cardError")}}, func(int) error {
			return wrapped(&cardError{7})
		}, "wrapped: card refused, code 7"},
		{"except a name of a kind", perdure.RetryPolicy{MaxAttempts: 9, Except: []perdure.ErrorKind{perdure.ErrorNamed("panic")}}, func(int) error { panic("oh") }, "panic: oh"},
		{"except and if", perdure.RetryPolicy{
			MaxAttempts: 9, Except: []perdure.ErrorKind{perdure.ErrorType[*cardError]()}, If: func(err error) bool { return errors.Is(err, boom) },
		}, func(n int) error {
			return map[bool]error{false: boom, true: io.EOF}[n > 2]
		}, "1s 2s EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			keys := map[string]bool{}
			act := perdure.NewActivity("act", func(ctx context.Context, _ string) (string, error) {
				keys[perdure.IdempotencyKey(ctx)] = true
				if err := c.fail(perdure.Attempt(ctx)); err != nil {
					return "", err
				}
				return "ok", nil
			}, c.policy)

			w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, in string) (string, error) {
				out, err := act.Run(ctx, in)
				if err != nil {
					return err.Error(), nil
				}
				return out, nil
			})

			with(t, func(t *testing.T, client perdure.Client, app *perdure.App) {
				x, err := w.Start(client, "in", perdure.RawKey("k"))
				if err != nil {
					t.Fatal(err)
				}
				end, err := x.Result(client)
				if err != nil {
					t.Fatal(err)
				}

				var got []string
				var last time.Time
				for e, err := range app.Histories().Events(t.Context(), x) {
					if err != nil {
						t.Fatal(err)
					}
					if last.IsZero() || e.Attempt == 0 {
						last = e.Time
					}
					if e.Attempt > 1 {
						got = append(got, e.Time.Sub(last).Truncate(10*time.Millisecond).String())
					}
					if e.Kind == "attempt_failed" && e.Err == nil {
						t.Error("a failed attempt is recorded without its error")
					}
					last = e.Time
				}

				if got := strings.Join(append(got, end), " "); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				if len(keys) != 1 || keys[""] {
					t.Errorf("idempotency keys are %v, want one", keys)
				}
			}, w, act)
		})
	}
}

// If the If function of a policy panics, the step is tried again, and the reason shows the panic.
func TestPolicyThatPanics(t *testing.T) {
	t.Parallel()
	act := perdure.NewActivity("act", func(context.Context, string) (string, error) { return "", io.EOF },
		perdure.RetryPolicy{Initial: time.Hour, If: func(error) bool { panic("oh") }})
	w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, in string) (string, error) { return act.Run(ctx, in) })
	with(t, func(t *testing.T, client perdure.Client, app *perdure.App) {
		x, err := w.Start(client, "in", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		checkSays(t, app, x, "EOF (the policy panicked: oh)")
	}, w, act)
}

// Jitter changes each pause by a different amount.
func TestJitter(t *testing.T) {
	t.Parallel()
	policy := perdure.RetryPolicy{MaxAttempts: 20, Initial: time.Second, Coefficient: 1, Jitter: 0.5}
	act := perdure.NewActivity("act", func(context.Context, string) (string, error) { return "", io.EOF }, policy)

	w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, in string) (string, error) {
		_, err := act.Run(ctx, in)
		return err.Error(), nil
	})

	with(t, func(t *testing.T, client perdure.Client, app *perdure.App) {
		x, err := w.Start(client, "in", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Result(client); err != nil {
			t.Fatal(err)
		}

		var last time.Time
		least, most := time.Hour, time.Duration(0)
		for e, err := range app.Histories().Events(t.Context(), x) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Attempt > 1 {
				pause := e.Time.Sub(last)
				least, most = min(least, pause), max(most, pause)
			}
			last = e.Time
		}

		if least < 500*time.Millisecond || most > 1510*time.Millisecond || most-least < 100*time.Millisecond {
			t.Errorf("pauses from %s to %s, want some between 500ms and 1.5s", least, most)
		}
	}, w, act)
}

// wrongPolicies must be refused everywhere a policy is accepted.
var wrongPolicies = []struct {
	option interface {
		perdure.ActivityOption
		perdure.CallOption
	}
	want string
}{
	{perdure.RetryPolicy{MaxAttempts: -1}, "RetryPolicy.MaxAttempts is -1"},
	{perdure.Exponential(-2), "RetryPolicy.MaxAttempts is -2"},
	{perdure.RetryPolicy{Initial: -time.Second}, "RetryPolicy.Initial is -1s, must be >= 0"},
	{perdure.RetryPolicy{Max: -time.Second}, "RetryPolicy.Max is -1s, must be >= 0"},
	{perdure.Constant(3, -time.Minute), "RetryPolicy.Initial is -1m0s"},
	{perdure.RetryPolicy{Initial: time.Hour, Max: time.Minute}, "RetryPolicy.Initial is 1h0m0s, longer than its Max of 1m0s"},
	{perdure.RetryPolicy{Coefficient: 0.5}, "RetryPolicy.Coefficient is 0.5, must be from 1 to"},
	{perdure.RetryPolicy{Coefficient: math.NaN()}, "RetryPolicy.Coefficient is NaN"},
	{perdure.RetryPolicy{Coefficient: math.Inf(1)}, "RetryPolicy.Coefficient is +Inf"},
	{perdure.RetryPolicy{Coefficient: math.Inf(-1)}, "RetryPolicy.Coefficient is -Inf"},
	{perdure.RetryPolicy{Initial: math.MaxInt64}, "RetryPolicy.Initial is 2562047h47m16.854775807s, which is more than a hundred years"},
	{perdure.RetryPolicy{Max: math.MaxInt64}, "RetryPolicy.Max is 2562047h47m16.854775807s, which is more than a hundred years"},
	{perdure.AttemptTimeout(math.MaxInt64), "AttemptTimeout is 2562047h47m16.854775807s, which is more than a hundred years"},
	{perdure.AttemptTimeout(math.MinInt64), "AttemptTimeout is -2562047h47m16.854775808s, must be >= 0"},
	{perdure.RetryPolicy{Jitter: -0.1}, "RetryPolicy.Jitter is -0.1: it is a share, from 0 to 1"},
	{perdure.RetryPolicy{Jitter: 1.5}, "RetryPolicy.Jitter is 1.5"},
	{perdure.RetryPolicy{Jitter: math.NaN()}, "RetryPolicy.Jitter is NaN"},
	{perdure.RetryPolicy{MaxAttempts: 9, Except: []perdure.ErrorKind{perdure.ErrorIs(io.EOF), {}}}, "RetryPolicy.Except, number 2 is empty"},
	{perdure.RetryPolicy{MaxAttempts: 9, Except: []perdure.ErrorKind{perdure.ErrorIs(nil)}}, "RetryPolicy.Except, number 1: ErrorIs of nil"},
	{perdure.RetryPolicy{MaxAttempts: 9, Except: []perdure.ErrorKind{perdure.ErrorNamed("")}}, "RetryPolicy.Except, number 1: ErrorNamed without a name"},
	{perdure.AttemptTimeout(-time.Second), "AttemptTimeout is -1s, must be >= 0"},
}

func TestWrongPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range wrongPolicies {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			for what, def := range map[string]perdure.Definition{
				"new":   perdure.NewActivity("charge", noop, c.option),
				"bound": perdure.DeclareActivity[string, string]("charge", c.option).Bind(noop),
				"group": perdure.GroupOf(&struct {
					A *perdure.Activity[string, string]
				}{perdure.NewActivity("charge", noop, c.option)}),
			} {
				_, err := attach.Open(t.Context(), attach.Config{}, def)
				if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), "activity charge: "+c.want) || !strings.Contains(err.Error(), "/retry_test.go:") {
					t.Errorf("%s: opening says %v, want that activity charge: %s", what, err, c.want)
				}
			}

			plain := perdure.NewActivity("charge", noop)
			w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, in string) (string, error) {
				_, err := plain.Run(ctx, in, c.option)
				_, err2 := perdure.Do(ctx, "pay", func(context.Context) (int, error) { return 0, nil }, c.option)
				return fmt.Sprint(err, "; ", err2, "; ", errors.Is(err, perdure.ErrInvalid), errors.Is(err2, perdure.ErrInvalid)), nil
			})

			with(t, func(t *testing.T, client perdure.Client, _ *perdure.App) {
				got, err := w.Run(client, "", perdure.RawKey("k"))
				if err != nil || !strings.Contains(got, "activity charge: "+c.want) || !strings.Contains(got, "step pay: "+c.want) || !strings.HasSuffix(got, "true true") {
					t.Errorf("calls say %q, %v", got, err)
				}
			}, w, plain)
		})
	}
}
