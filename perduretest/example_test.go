package perduretest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// The program under test charges an order and waits thirty days for the parcel to arrive. If the
// parcel does not arrive, the program refunds the order.

type order struct {
	ID    string
	Cents int
}

var (
	charge  = perdure.DeclareActivity[order, string]("charge", perdure.Constant(5, time.Minute))
	refund  = perdure.DeclareActivity[string, perdure.Void]("refund")
	arrived = perdure.NewSignal[string]("arrived")
	audit   = perdure.NewPromise[bool]("audit")

	checkout = perdure.NewWorkflow("checkout", func(ctx perdure.WorkflowCtx, o order) (string, error) {
		receipt, err := charge.Run(ctx, o)
		if err != nil {
			return "", err
		}
		if o.Cents > 100_000 {
			if ok, err := audit.Await(ctx); err != nil || !ok {
				return "", errors.Join(errors.New("audit"), err)
			}
		}
		where, err := arrived.Receive(ctx.WithTimeout(30 * 24 * time.Hour))
		if errors.Is(err, perdure.ErrTimeout) {
			_, err = refund.Run(ctx, receipt)
			return "refunded " + receipt, err
		}
		return receipt + " delivered to " + where, err
	}).KeyedBy(func(o order) perdure.Key { return perdure.RawKey(o.ID) })
)

func chargeStep(_ context.Context, o order) (string, error) { return "receipt-" + o.ID, nil }

func refundStep(context.Context, string) (perdure.Void, error) { return perdure.Void{}, nil }

// A test double is another function for Bind. Virtual time passes when the test calls Advance.
func TestRefund(t *testing.T) {
	t.Parallel()
	refunds := perduretest.NewFake(refundStep)
	perduretest.Run(t, perdure.Group{checkout, charge.Bind(chargeStep), refund.Bind(refunds.Call)}, func(t *testing.T, env *perduretest.Env) {
		exec, err := checkout.Start(env.With(), order{ID: "o1", Cents: 100})
		if err != nil {
			t.Fatal(err)
		}
		env.Advance(29 * 24 * time.Hour)
		if got := env.Reason(exec); got != "waits for signal arrived" {
			t.Errorf("after 29 days it %s", got)
		}
		env.Advance(24 * time.Hour)
		if got, err := exec.Result(env.With()); got != "refunded receipt-o1" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if calls := refunds.Calls(); len(calls) != 1 || calls[0].Input != "receipt-o1" {
			t.Errorf("refunds %+v", calls)
		}
	})
}

// As in a program, signals, promises and cancellations go through env.With().
func TestMessages(t *testing.T) {
	t.Parallel()
	perduretest.Run(t, perdure.Group{checkout, charge.Bind(chargeStep), refund.Bind(refundStep)}, func(t *testing.T, env *perduretest.Env) {
		exec, err := checkout.Start(env.With(), order{ID: "o2", Cents: 200_000})
		if err != nil {
			t.Fatal(err)
		}
		if got := env.Reason(exec); got != "waits for promise audit" {
			t.Errorf("it %s", got)
		}
		if err := audit.Resolve(env.With(), exec, true); err != nil {
			t.Fatal(err)
		}
		if err := arrived.Send(env.With(), exec, "the neighbour"); err != nil {
			t.Fatal(err)
		}
		if got, err := exec.Result(env.With()); got != "receipt-o2 delivered to the neighbour" || err != nil {
			t.Errorf("%q, %v", got, err)
		}

		lost, err := checkout.Start(env.With(), order{ID: "o3"})
		if err != nil {
			t.Fatal(err)
		}
		if err := lost.Cancel(env.With(), "ordered twice"); err != nil {
			t.Fatal(err)
		}
		if _, err := lost.Result(env.With()); !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("%v", err)
		}
		if env.Reason(lost) != "" {
			t.Errorf("it %s", env.Reason(lost))
		}
	})
}

// A fake can fail at first. The retries wait in virtual time.
func TestRetries(t *testing.T) {
	t.Parallel()
	charges := perduretest.NewFake(chargeStep)
	charges.FailFirst(2, errors.New("the bank is closed"))

	perduretest.Run(t, perdure.Group{checkout, charge.Bind(charges.Call), refund.Bind(refundStep)}, func(t *testing.T, env *perduretest.Env) {
		exec, err := checkout.Start(env.With(), order{ID: "o4"}, arrived.With("home"))
		if err != nil {
			t.Fatal(err)
		}
		if got := env.Reason(exec); !strings.Contains(got, "retries step charge, attempt 2") || !strings.Contains(got, "the bank is closed") {
			t.Errorf("it %s", got)
		}
		began := time.Now()
		if _, err := exec.Result(env.With()); err != nil {
			t.Fatal(err)
		}

		if waited := time.Since(began); waited != 2*time.Minute {
			t.Errorf("waited %s", waited)
		}
		calls := charges.Calls()
		if len(calls) != 3 || calls[2].Attempt != 3 || calls[0].IdempotencyKey != calls[2].IdempotencyKey || calls[0].Err == nil || calls[2].Output != "receipt-o4" {
			t.Errorf("calls %+v", calls)
		}
	})
}

// Restart kills the process immediately. With definitions, it simulates a deploy of other code.
func TestRestart(t *testing.T) {
	t.Parallel()
	charges := perduretest.NewFake(chargeStep)
	fakes := perdure.Group{charge.Bind(charges.Call), refund.Bind(refundStep)}

	perduretest.Run(t, perdure.Group{checkout, fakes}, func(t *testing.T, env *perduretest.Env) {
		exec, err := checkout.Start(env.With(), order{ID: "o5"})
		if err != nil {
			t.Fatal(err)
		}
		env.Settle()
		before := time.Now()
		env.Restart()
		if passed := time.Since(before); passed != 0 {
			t.Errorf("a restart took %s", passed)
		}
		if err := arrived.Send(env.With(), exec, "home"); err != nil {
			t.Fatal(err)
		}

		if got, err := exec.Result(env.With()); got != "receipt-o5 delivered to home" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if n := len(charges.Calls()); n != 1 {
			t.Errorf("charged %d times: the outcome was recorded before the crash", n)
		}
		if h := env.History(exec); !strings.Contains(h, `step completed charge {"ID":"o5","Cents":0} → "receipt-o5"`) || !strings.Contains(h, "example_test.go:") {
			t.Errorf("history\n%s", h)
		}
	})
}

// Config.Instead replaces single definitions of a group that the program defines as a whole.
func TestInstead(t *testing.T) {
	t.Parallel()
	program := perdure.Group{checkout, charge.Bind(func(context.Context, order) (string, error) { panic("a real bank") }), refund.Bind(refundStep)}
	cfg := perduretest.Config{Instead: perdure.Group{charge.Bind(chargeStep)}}
	cfg.Run(t, program, func(t *testing.T, env *perduretest.Env) {
		if got, err := checkout.Run(env.With(), order{ID: "o6"}, arrived.With("home")); got != "receipt-o6 delivered to home" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func Example() {
	// In a file that ends with _test.go:
	test := func(t *testing.T) {
		perduretest.Run(t, perdure.Group{checkout, charge.Bind(chargeStep), refund.Bind(refundStep)}, func(t *testing.T, env *perduretest.Env) {
			exec, err := checkout.Start(env.With(), order{ID: "o1"})
			if err != nil {
				t.Fatal(err)
			}
			env.Advance(30 * 24 * time.Hour)
			fmt.Println(exec.Result(env.With()))
		})
	}
	_ = test
}
