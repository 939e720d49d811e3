package cli_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

var (
	add      = perdure.NewUpdate[int, int]("add")
	contents = perdure.NewQuery[string, string]("contents")
	total    = perdure.NewState[int]("total")
	cart     = perdure.NewWorkflow("cart", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
		sum := 0
		add.Handle(ctx, func(ctx perdure.WorkflowCtx, n int) (int, error) {
			sum += n
			return sum, total.Set(ctx, sum)
		}, func(n int) error {
			if n <= 0 {
				return fmt.Errorf("%d is too few", n)
			}
			return nil
		})

		contents.Handle(ctx, func(prefix string) (string, error) { return fmt.Sprint(prefix, sum), nil })
		if err := total.Set(ctx, 0); err != nil {
			return 0, err
		}
		_, err := approve.Receive(ctx)

		return sum, err
	})
)

// cartDemo creates a store with three carts that wait for a signal.
func cartDemo() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	app, err := embedded.Open(ctx, os.Args[1], cart)
	for _, key := range []string{"a", "b", "c"} {
		if err == nil {
			err = fillCart(ctx, app, key)
		}
	}
	if err == nil {
		err = app.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fillCart starts a cart and adds three items.
func fillCart(ctx context.Context, app *perdure.App, key string) error {
	exec, err := cart.Start(app.With(ctx), "", perdure.RawKey(key))
	if err == nil {
		_, err = add.Call(app.With(ctx), exec, 3)
	}
	return err
}

// The node that owns an execution passes updates and queries to the code. It also pauses, resumes
// and terminates the execution for a command.
func TestTalkBesideANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, cart)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()

	for _, key := range []string{"a", "b"} {
		if err := fillCart(t.Context(), app, key); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"update cart/a add --input 4 --request-id r-1", 0, "7"},
		{"update cart/a add --input 4 --request-id r-1", 0, "7"}, // a repeated request gets the same answer
		{"update cart/a add --input -1", 1, "-1 is too few"},
		{"update cart/a add --input four", 2, "not JSON"},
		{"update cart/a add --input \"\xff\"", 2, "not valid UTF-8"},
		{`update cart/a add --input "\ud800"`, 2, "one half of a character"},
		{"update cart/x add --input 4", 3, "does not exist"},
		{`query cart/a contents --input "n="`, 0, `"n=7"`},
		{"query cart/a weight", 3, "it handles: contents"},
		{"state cart/a total", 0, "7"},
		{"state cart/a total -o json", 0, "7"},
		{"state cart/a weight", 3, "has no state weight"},
		{"pause cart/a --reason inventory", 0, "paused: cart/a"},
		{"explain cart/a", 0, "inventory"},
		{"query cart/a contents", 9, "paused"},
		{"resume cart/a", 0, "resumed: cart/a"},
		{`query cart/a contents --input ""`, 0, `"7"`},
		{"stranded", 0, ""},
		{"terminate cart/b --reason enough", 0, "terminated: cart/b"},
		{"describe cart/b", 0, "terminated"},
		{"terminate cart/b", 4, "closed"},
	} {
		out, complaints, code := perdureOn(t, url, append([]string{"workflow"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(out+complaints, c.want) {
			t.Errorf("perdure workflow %s: exit %d, %s%s\nwant exit %d, %q", c.args, code, out, complaints, c.code, c.want)
		}
	}
}
