// Command approval asks a person for a decision with a deadline. If the person says yes in time,
// the program pays the expense. If the person says no, it refuses the expense. Without an answer,
// the request expires.
//
//	go run ./examples/approval [store URL]
//
// Type "yes" or "no" and press Enter, or wait. While the program waits, kill it (kill -9, it prints
// its process id) and run the same command again. The program does not ask a second time, and the
// deadline stays the same.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// expense is the request that needs an approval.
type expense struct {
	ID     string
	Amount int
	Within time.Duration // how long the decision may take
}

// verdict is the decision of the person.
type verdict struct {
	OK bool
	By string
}

var (
	ask      = perdure.DeclareActivity[expense, perdure.Void]("ask")
	pay      = perdure.DeclareActivity[expense, string]("pay")
	inform   = perdure.DeclareActivity[string, perdure.Void]("inform")
	decision = perdure.NewPromise[verdict]("decision")
	expenses = perdure.NewWorkflow("expense", approve, perdure.Uses(ask, pay, inform)).
			KeyedBy(func(e expense) perdure.Key { return perdure.RawKey(e.ID) })
)

func approve(ctx perdure.WorkflowCtx, e expense) (string, error) {
	if _, err := ask.Run(ctx, e); err != nil {
		return "", err
	}
	v, err := decision.Await(ctx.WithTimeout(e.Within))
	switch {
	case errors.Is(err, perdure.ErrTimeout):
		_, err := inform.Run(ctx, "nobody decided about "+e.ID+" in time")
		return "expired", err
	case err != nil:
		return "", err
	case !v.OK:
		_, err := inform.Run(ctx, v.By+" refused "+e.ID)
		return "refused", err
	}
	return pay.Run(ctx, e)
}

// office does the work of the activities.
type office struct{ out io.Writer }

func (o office) ask(_ context.Context, e expense) (perdure.Void, error) {
	fmt.Fprintf(o.out, "asked: may %s, %d EUR, be paid? yes or no, within %s\n", e.ID, e.Amount, e.Within)
	return perdure.Void{}, nil
}

// pay passes the idempotency key to the bank. So the bank does not pay twice if the outcome of an
// attempt is lost.
func (o office) pay(ctx context.Context, e expense) (string, error) {
	fmt.Fprintf(o.out, "paid %d EUR for %s (idempotency key %.8s…)\n", e.Amount, e.ID, perdure.IdempotencyKey(ctx))
	return "paid", nil
}

func (o office) inform(_ context.Context, text string) (perdure.Void, error) {
	fmt.Fprintln(o.out, "informed the applicant:", text)
	return perdure.Void{}, nil
}

func (o office) definitions() perdure.Group {
	return perdure.Group{expenses, ask.Bind(o.ask), pay.Bind(o.pay), inform.Bind(o.inform)}
}

func main() {
	url := "file:approval.db"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	fmt.Printf("process %d on %s\n", os.Getpid(), url)
	if err := run(context.Background(), url, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, in io.Reader, out io.Writer) error {
	app, err := embedded.Open(ctx, url, office{out}.definitions())
	if err != nil {
		return err
	}
	defer app.Close()
	c := app.With(ctx)
	exec, err := expenses.Start(c, expense{ID: "expense-1", Amount: 120, Within: 30 * time.Second})
	if err != nil {
		return err
	}

	go decide(c, exec, in, out)
	result, err := exec.Result(c)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s. Start over with: rm approval.db*\n", exec, result)

	return nil
}

// decide resolves the promise with the answer that the person types. Any process that opens the
// same store could resolve it; with PostgreSQL, even a process on another machine.
func decide(c perdure.Client, exec perdure.Execution[string], in io.Reader, out io.Writer) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		answer := strings.TrimSpace(lines.Text())
		if answer != "yes" && answer != "no" {
			fmt.Fprintln(out, "yes or no?")
			continue
		}
		if err := decision.Resolve(c, exec, verdict{OK: answer == "yes", By: "the boss"}); err != nil {
			fmt.Fprintln(out, "too late:", err)
		}
		return
	}
}
