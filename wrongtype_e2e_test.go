package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// purchase is the input type of the current code. Other builds send inputs of other types.
type purchase struct{ Cents int }

// wrongType demands that err is an ErrWrongType and contains all the texts.
func wrongType(t *testing.T, what string, err error, says ...string) {
	t.Helper()
	if !errors.Is(err, perdure.ErrWrongType) || !errors.Is(err, perdure.ErrInvalid) {
		t.Errorf("%s: %v, want an ErrWrongType", what, err)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %v does not say %q", what, err, s)
		}
	}
}

// Every call with an input of the wrong type returns an error. The error names the callee, the type
// that the code of the callee expects, and the message of the decoder. No caller waits forever.
func TestWrongType(t *testing.T) {
	t.Parallel()
	var (
		said    = perdure.NewSignal[purchase]("said")
		settled = perdure.NewPromise[purchase]("settled")
		change  = perdure.NewUpdate[purchase, int]("change")
		ask     = perdure.NewQuery[purchase, int]("ask")
		go1     = perdure.NewSignal[perdure.Void]("go")

		badSaid    = perdure.NewSignal[string]("said")
		badSettled = perdure.NewPromise[string]("settled")
		badChange  = perdure.NewUpdate[string, int]("change")
		badAsk     = perdure.NewQuery[string, int]("ask")
	)
	pay := perdure.NewWorkflow("pay", func(_ perdure.WorkflowCtx, o purchase) (int, error) { return o.Cents, nil })
	badPay := perdure.DeclareWorkflow[string, int]("pay")
	job := perdure.NewActivity("job", func(_ context.Context, o purchase) (int, error) { return o.Cents, nil }, perdure.OnQueue("q"))
	badJob := perdure.DeclareActivity[string, int]("job", perdure.OnQueue("q"))

	accounts := perdure.NewEntity[purchase]("account")
	deposit := perdure.NewOperation(accounts, "deposit", func(_ perdure.EntityCtx, s *purchase, in purchase) (int, error) {
		s.Cents += in.Cents
		return s.Cents, nil
	})
	badDeposit := perdure.DeclareOperation[string, int]("account", "deposit")
	rates := perdure.NewService("rates")
	perdure.NewRPC(rates, "rate", func(_ perdure.EntityCtx, o purchase) (int, error) { return o.Cents, nil })
	badRate := perdure.DeclareRPC[string, int]("rates", "rate")

	parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, what string) (int, error) {
		switch what {
		case "child":
			return badPay.Run(ctx, "ten")
		case "task":
			return badJob.Run(ctx, "ten")
		case "call":
			return badDeposit.Call(ctx, "a", "ten")
		case "rpc":
			return badRate.Call(ctx, "a", "ten")
		case "receive":
			o, err := said.Receive(ctx)
			return o.Cents, err
		case "promise":
			o, err := settled.Await(ctx)
			return o.Cents, err
		case "try":
			if _, err := go1.Receive(ctx); err != nil {
				return 0, err
			}
			o, _ := said.TryReceive(ctx)
			return o.Cents, nil
		case "coroutine":
			return perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) {
				if _, err := go1.Receive(ctx); err != nil {
					return 0, err
				}
				return len(said.Drain(ctx)), nil
			}).Get(ctx)
		}

		change.Handle(ctx, func(_ perdure.WorkflowCtx, o purchase) (int, error) { return o.Cents, nil })
		ask.Handle(ctx, func(o purchase) (int, error) { return o.Cents, nil })
		_, err := go1.Receive(ctx)
		return 0, err
	})
	ears := perdure.NewMachine[string, int]("ears", func(string) *listening { return &listening{said: said} })

	const decoder = "json: cannot unmarshal string into Go value of type perdure_test.purchase"
	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		start := func(what string) perdure.Execution[int] {
			x, err := parent.Start(c, what)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		_, err := badPay.Run(c, "ten")
		wrongType(t, "start", err, "input of workflow pay cannot be decoded as perdure_test.purchase", decoder)
		if _, err := pay.Execution(perdure.HashKey("ten")).Poll(c); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("a start that was refused left something: %v", err)
		}
		_, err = badJob.Submit(c, "ten")
		wrongType(t, "submit", err, "input of activity job cannot be decoded as perdure_test.purchase", decoder)

		_, err = start("child").Result(c)
		wrongType(t, "child", err, "input of workflow pay cannot be decoded as perdure_test.purchase", decoder)
		_, err = start("task").Result(c)
		wrongType(t, "task", err, "input of activity job", decoder)
		for _, what := range []string{"call", "rpc"} {
			_, err = start(what).Result(c)
			wrongType(t, what, err, `"a": input of `, decoder)
		}
		_, err = badDeposit.Call(c, "a", "ten")
		wrongType(t, "operation", err, `account "a": input of operation deposit`, decoder)
		_, err = badRate.Call(c, "a", "ten")
		wrongType(t, "rpc", err, `rates "a": input of RPC rate`, decoder)

		x := start("receive")
		if err := badSaid.Send(c, x, "ten"); err != nil {
			t.Fatal(err)
		}
		_, err = x.Result(c)
		wrongType(t, "signal", err, "signal said", decoder)
		x = start("promise")
		if err := badSettled.Resolve(c, x, "ten"); err != nil {
			t.Fatal(err)
		}
		_, err = x.Result(c)
		wrongType(t, "promise", err, "promise settled", decoder)
		for _, what := range []string{"try", "coroutine"} {
			x = start(what)
			if err := errors.Join(badSaid.Send(c, x, "ten"), badSaid.Send(c, x, "more"), go1.Send(c, x, perdure.Void{})); err != nil {
				t.Fatal(err)
			}
			_, err = x.Result(c)
			wrongType(t, what, err, "signal said", decoder)
		}
		m, err := ears.Start(c, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(said.Send(c, m, purchase{5}), badSaid.Send(c, m, "ten")); err != nil {
			t.Fatal(err)
		}
		_, err = m.Result(c)
		wrongType(t, "machine", err, "signal said", decoder)

		x = start("talk")
		_, err = badChange.Call(c, x, "ten")
		wrongType(t, "update", err, "input of update change", decoder)
		_, err = badAsk.Ask(c, x, "ten")
		wrongType(t, "query", err, "input of query ask", decoder)
		n, err := change.Call(c, x, purchase{3})
		want(t, n, err, 3)

		// A message whose sender does not wait becomes a dead letter.
		if err := badDeposit.Send(c, "a", "ten"); err != nil {
			t.Fatal(err)
		}
		if n, err = deposit.Call(c, "a", purchase{2}); err != nil || n != 2 {
			t.Errorf("a call of the wrong type changed the state: %d, %v", n, err)
		}
		var letters []string
		for l, err := range app.DeadLetters(t.Context()) {
			letters = append(letters, fmt.Sprint(l, err))
		}
		if len(letters) != 1 || !strings.Contains(letters[0], decoder) {
			t.Errorf("dead letters %q, want the deposit", letters)
		}
	}, pay, job, accounts, rates, parent, ears)
}

// listening is a machine that decodes the signals it gets.
type listening struct {
	perdure.Events
	said *perdure.Signal[purchase]
}

func (*listening) OnStart() perdure.Actions { return nil }

func (l *listening) OnSignal(e perdure.SignalReceived) perdure.Actions {
	l.said.Value(e)
	return nil
}

// An input from another build fails the run before its code does anything. A run whose code has
// started is blocked instead, because the build that started the run could read the input.
func TestWrongTypeOfAnotherBuild(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "app.db")
	early := perdure.DeclareWorkflow[string, string]("early")
	begun := perdure.DeclareWorkflow[string, string]("begun")
	slept := perdure.DeclareWorkflow[string, string]("slept")
	earlyNow := perdure.NewWorkflow("early", func(_ perdure.WorkflowCtx, o purchase) (string, error) { return fmt.Sprint(o.Cents), nil })
	go1 := perdure.NewSignal[perdure.Void]("go")
	wait := func(ctx perdure.WorkflowCtx, in string) (string, error) {
		if _, err := perdure.Do(ctx, "first", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return "", err
		}
		_, err := go1.Receive(ctx)
		return in, err
	}
	later := func(perdure.WorkflowCtx, purchase) (string, error) { return "wrong", nil }
	sleep := func(ctx perdure.WorkflowCtx, in string) (string, error) { return in, ctx.Sleep(24 * time.Hour) }
	open := func(defs ...perdure.Definition) *perdure.App {
		app, err := embedded.Open(t.Context(), url, defs...)
		if err != nil {
			t.Fatal(err)
		}
		return app
	}
	reason := func(app *perdure.App, x perdure.Execution[string], want string) {
		t.Helper()
		var info perdure.Info
		for range 1000 {
			info, _ = app.Executions().Describe(t.Context(), x)
			if strings.Contains(info.Reason, want) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%s: reason %q, want %q", x, info.Reason, want)
	}
	closeApp := func(app *perdure.App) {
		t.Helper()
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
	}

	app := open(begun.Bind(wait), slept.Bind(sleep))
	c := app.With(t.Context())
	e, err := early.Start(c, "ten")
	b, err2 := begun.Start(c, "ten")
	s, err3 := slept.Start(c, "ten")
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	reason(app, b, "waits for signal go")
	reason(app, s, "waits for a timer")
	closeApp(app)

	app = open(earlyNow, perdure.NewWorkflow("begun", later), perdure.NewWorkflow("slept", later))
	c = app.With(t.Context())
	_, err = e.Result(c)
	wrongType(t, "started by another build", err, "input of workflow early cannot be decoded as perdure_test.purchase")
	// Signals load the executions.
	if err := errors.Join(go1.Send(c, b, perdure.Void{}), go1.Send(c, s, perdure.Void{})); err != nil {
		t.Fatal(err)
	}
	for _, x := range []perdure.Execution[string]{b, s} {
		reason(app, x, "is blocked by a value of the wrong type: input of workflow "+x.Ref.Workflow+" cannot be decoded as perdure_test.purchase")
	}
	closeApp(app)

	app = open(begun.Bind(wait), slept.Bind(sleep))
	defer app.Close()
	got, err := b.Result(app.With(t.Context()))
	want(t, got, err, "ten")
	reason(app, s, "waits for a timer")
}

// A process that has the code of a job refuses to apply a schedule whose input that code cannot
// read.
func TestScheduleOfTheWrongType(t *testing.T) {
	t.Parallel()
	pay := perdure.NewWorkflow("pay", func(_ perdure.WorkflowCtx, o purchase) (int, error) { return o.Cents, nil })
	bad := perdure.NewSchedule("hourly", perdure.Every(time.Hour), perdure.DeclareWorkflow[string, int]("pay").Job("ten"))
	app, err := embedded.Open(t.Context(), "memory:", pay, bad)
	if err == nil {
		_ = app.Close() // the test has failed already
	}
	wrongType(t, "schedule", err, "hourly", "input of workflow pay cannot be decoded as perdure_test.purchase")
}
