package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// This example sets each field of a policy. Except and If say in the policy which errors to retry.
// The code of an activity can decide that too, with Permanent and RetryAfter.
func ExampleRetryPolicy() {
	charge := perdure.NewActivity("charge", func(ctx context.Context, cents int) (string, error) {
		if perdure.Attempt(ctx) < 3 {
			return "", errors.New("the service is busy")
		}
		return fmt.Sprintf("charged %d after %d attempts", cents, perdure.Attempt(ctx)), nil
	}, perdure.RetryPolicy{
		MaxAttempts: 5,                     // all attempts; 0 is no limit
		Initial:     10 * time.Millisecond, // the first pause
		Coefficient: 2,                     // the pause doubles each time
		Max:         time.Second,           // the longest pause
		Jitter:      0.1,                   // each pause varies by a tenth
		Except:      []perdure.ErrorKind{perdure.ErrorIs(context.DeadlineExceeded)},
	})
	pay := perdure.NewWorkflow("pay", func(ctx perdure.WorkflowCtx, cents int) (string, error) { return charge.Run(ctx, cents) })

	app := embedded.MustOpen("memory:", pay, charge)
	defer app.Close()
	fmt.Println(pay.Run(app.With(context.Background()), 1999))
	// Output: charged 1999 after 3 attempts <nil>
}

// If another attempt cannot help, the error ends the step immediately. The workflow gets the
// recorded error, a *RemoteError, which is the same value on every replay.
func ExampleErrorType() {
	charge := perdure.NewActivity("charge", func(_ context.Context, cents int) (string, error) {
		return "", fmt.Errorf("charge %d: %w", cents, &cardError{51})
	}, perdure.RetryPolicy{Except: []perdure.ErrorKind{perdure.ErrorType[*cardError]()}})
	pay := perdure.NewWorkflow("pay", func(ctx perdure.WorkflowCtx, cents int) (string, error) {
		_, err := charge.Run(ctx, cents)
		if re, ok := errors.AsType[*perdure.RemoteError](err); ok {
			return fmt.Sprintf("%s (%s)", re.Message, re.Type), nil
		}
		return "", err
	})

	app := embedded.MustOpen("memory:", pay, charge)
	defer app.Close()
	fmt.Println(pay.Run(app.With(context.Background()), 1999))
	// Output: charge 1999: card refused, code 51 (*perdure_test.cardError) <nil>
}

// All attempts of a step have the same key, and no other step has it. A service that remembers keys
// does the work once.
func ExampleIdempotencyKey() {
	done := map[string]string{} // what the service remembers
	charge := perdure.NewActivity("charge", func(ctx context.Context, cents int) (string, error) {
		key := perdure.IdempotencyKey(ctx)
		if receipt, ok := done[key]; ok {
			return receipt, nil
		}
		done[key] = fmt.Sprintf("receipt %d", len(done)+1)
		return "", errors.New("the answer was lost")
	}, perdure.Constant(3, 0))
	pay := perdure.NewWorkflow("pay", func(ctx perdure.WorkflowCtx, cents int) (string, error) {
		first, err := charge.Run(ctx, cents)
		if err != nil {
			return "", err
		}
		second, err := charge.Run(ctx, cents) // a second step with the same input
		return first + ", " + second, err
	})

	app := embedded.MustOpen("memory:", pay, charge)
	defer app.Close()
	fmt.Println(pay.Run(app.With(context.Background()), 1999))
	// Output: receipt 1, receipt 2 <nil>
}

// AttemptTimeout limits one attempt; a scope limits all attempts and the pauses between them.
func ExampleAttemptTimeout() {
	slow := perdure.NewActivity("slow", func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}, perdure.AttemptTimeout(10*time.Millisecond), perdure.Constant(2, 0))
	w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		_, attempt := slow.Run(ctx, "two attempts")
		_, all := slow.Run(ctx.WithTimeout(50*time.Millisecond), "all of them", perdure.AttemptTimeout(time.Hour))
		return fmt.Sprint(errors.Is(attempt, perdure.ErrTimeout), errors.Is(all, perdure.ErrTimeout)), nil
	})

	app := embedded.MustOpen("memory:", w, slow)
	defer app.Close()
	fmt.Println(w.Run(app.With(context.Background()), ""))
	// Output: true true <nil>
}

// Mailing is a group of activities with their dependencies. Workflows call its fields.
type Mailing struct {
	Invite *perdure.Activity[string, string]
	Remind *perdure.Activity[string, string]

	from string
}

// NewMailing binds the handles to the methods that implement them.
func NewMailing(from string) *Mailing {
	m := &Mailing{from: from}
	m.Invite = perdure.NewActivity("mailing.invite", m.invite, perdure.Exponential(5))
	m.Remind = perdure.NewActivity("mailing.remind", m.remind)
	return m
}

func (m *Mailing) invite(_ context.Context, to string) (string, error) {
	return m.from + " invites " + to, nil
}

func (m *Mailing) remind(_ context.Context, to string) (string, error) {
	return m.from + " reminds " + to, nil
}

// Party is a workflow as a struct: its groups and its handle are fields, its code is a method.
type Party struct {
	*Mailing
	Plan *perdure.Workflow[[]string, []string]
}

// NewParty creates the workflow with the groups that it needs. Other workflows may share them.
func NewParty(m *Mailing) *Party {
	p := &Party{Mailing: m}
	p.Plan = perdure.NewWorkflow("party.plan", p.plan)
	return p
}

func (p *Party) plan(ctx perdure.WorkflowCtx, guests []string) ([]string, error) {
	var fs []*perdure.Future[string]
	for _, g := range guests {
		fs = append(fs, p.Invite.Go(ctx, g))
	}
	return perdure.All(ctx, fs...)
}

// GroupOf passes all activities of a group and its workflow as one definition. If a field is
// forgotten, the error names it.
func ExampleGroupOf() {
	party := NewParty(NewMailing("Ada"))
	app := embedded.MustOpen("memory:", perdure.GroupOf(party))
	defer app.Close()
	fmt.Println(party.Plan.Run(app.With(context.Background()), []string{"Grace", "Alan"}))

	party.Remind = nil
	_, err := embedded.Open(context.Background(), "memory:", perdure.GroupOf(party))
	mistake, _, _ := strings.Cut(err.Error(), " (") // without the position in the file
	fmt.Println(mistake)
	// Output:
	// [Ada invites Grace Ada invites Alan] <nil>
	// a mistake in the definitions: group Party: field Mailing.Remind is nil
}

// turnstile is a machine: it counts coins and lets people pass.
type turnstile struct {
	perdure.Events
	paid, passed int
}

var (
	coin  = perdure.NewSignal[int]("coin")
	open  = perdure.NewActivity("open", func(_ context.Context, n int) (int, error) { return n, nil })
	gates = perdure.DeclareWorkflow[string, int]("gate")
)

func (t *turnstile) OnStart() perdure.Actions {
	return perdure.Actions{perdure.StartTimer("closing time", 24*time.Hour)}
}

func (t *turnstile) OnSignal(e perdure.SignalReceived) perdure.Actions {
	if n, ok := coin.Value(e); ok {
		t.paid += n
	}
	return perdure.Actions{open.Schedule(fmt.Sprintf("open-%d", t.paid), 1)}
}

func (t *turnstile) OnActivityCompleted(e perdure.ActivityCompleted) perdure.Actions {
	n, err := open.Result(e)
	if err != nil {
		return perdure.Actions{perdure.Fail(err)}
	}
	if t.passed += n; t.passed == 2 {
		return perdure.Actions{gates.Complete(t.passed)}
	}
	return nil
}

func (t *turnstile) OnTimerFired(perdure.TimerFired) perdure.Actions {
	return perdure.Actions{gates.Complete(t.passed)}
}

// A machine gets one event after the other and answers with the next actions.
func ExampleBindMachine() {
	app := embedded.MustOpen("memory:", open, perdure.BindMachine(gates, func(string) *turnstile { return &turnstile{} }))
	defer app.Close()
	c := app.With(context.Background())
	gate, err := gates.Start(c, "north", perdure.RawKey("north"))
	if err != nil {
		fmt.Println(err)
		return
	}

	for range 2 {
		if err := coin.Send(c, gate, 1); err != nil {
			fmt.Println(err)
			return
		}
	}

	fmt.Println(gate.Result(c))
	// Output: 2 <nil>
}
