// Command jobs sends mails in the background. Each mail is a task without a workflow, with retries.
// Some addresses are wrong, so their tasks fail permanently and become dead tasks. The program
// prints the dead tasks by group, corrects an address, and requeues the rest.
//
//	go run ./examples/jobs [store URL]
//
// Kill it while it runs (kill -9, it prints its process id) and run the same command again. It does
// not send a mail again if the first process has recorded that the mail is sent. Then look at the
// store yourself:
//
//	perdure dlq groups --store file:jobs.db
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type mail struct{ To, Text string }

// post sends mails. Its server is down until the program repairs it.
type post struct {
	out  io.Writer
	away atomic.Bool
}

func (p *post) send(ctx context.Context, m mail) (string, error) {
	switch {
	case !strings.Contains(m.To, "@"):
		// Another attempt would not help.
		return "", perdure.Permanent(fmt.Errorf("%q is not an address", m.To))
	case strings.HasSuffix(m.To, ".test") && p.away.Load():
		return "", errors.New("the server does not answer")
	}
	fmt.Fprintf(p.out, "sent to %s (attempt %d)\n", m.To, perdure.Attempt(ctx))
	return "sent", nil
}

func main() {
	url := "file:jobs.db"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	fmt.Printf("process %d on %s\n", os.Getpid(), url)
	if err := run(context.Background(), url, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, out io.Writer) error {
	p := &post{out: out}
	p.away.Store(true)
	// The address is the key. If the next run of this program submits the same mail again, the
	// submission attaches to the existing task.
	send := perdure.NewActivity("send-mail", p.send, perdure.OnQueue("mails"),
		perdure.RetryPolicy{MaxAttempts: 3, Initial: 50 * time.Millisecond},
	).KeyedBy(func(m mail) perdure.Key { return perdure.RawKey(m.To) })
	app, err := embedded.Open(ctx, url, send)
	if err != nil {
		return err
	}
	defer app.Close()
	c := app.With(ctx)

	tasks, err := send.SubmitMany(c, []mail{
		{"ann@example.com", "hello"}, {"bob", "hello"}, {"eve@mail.test", "hello"}, {"joe@mail.test", "hello"},
	})
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if _, err := t.Result(c); err != nil {
			fmt.Fprintf(out, "%s: %v\n", t.Ref.Key, err)
		}
	}

	waiting := perdure.DeadQuery{Requeued: new(bool)} // dead tasks that were not requeued yet
	groups, err := app.DeadTasks().Groups(ctx, waiting)
	if err != nil {
		return err
	}
	for _, g := range groups {
		fmt.Fprintf(out, "%d dead: %s\n", g.Count, g.Message)
	}

	for d, err := range app.DeadTasks().List(ctx, waiting) {
		if err != nil {
			return err
		}
		if d.Of.Key == "bob" {
			if _, err := app.DeadTasks().Requeue(ctx, d.ID, perdure.WithInput(mail{"bob@example.com", "hello"})); err != nil {
				return err
			}
		}
	}

	// The server works again. Requeue one mail first. When it is sent, requeue the others, at most
	// ten per second.
	p.away.Store(false)
	for d, err := range app.DeadTasks().RequeueAll(ctx, waiting, perdure.RequeueMany{Canary: true, Rate: 10}) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "requeued %s\n", d.As.Key)
	}
	for _, t := range tasks {
		if _, err := t.Result(c); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "All mails are sent. Start over with: rm jobs.db*")
	return nil
}
