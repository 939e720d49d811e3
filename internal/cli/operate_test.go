package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/cli"
	"github.com/perdure/perdure/internal/pgtest"
)

var (
	answer = perdure.NewPromise[int]("answer")
	asking = perdure.NewWorkflow("asking", func(ctx perdure.WorkflowCtx, _ perdure.Void) (int, error) { return answer.Await(ctx) })
)

// finish opens a store and waits until no execution is open.
func finish() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	app, err := embedded.Open(ctx, os.Args[1], shop, asking)
	for err == nil {
		var n int64
		if n, err = app.Executions().Count(ctx, `status = "open"`); n == 0 && err == nil {
			err = app.Close()
			break
		}
		time.Sleep(time.Millisecond) // until their code has ended
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// inUse runs a command while this process has the store open.
func inUse() {
	app, err := embedded.Open(context.Background(), os.Args[1], shop)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = errors.Join(cmd.Run(), app.Close())
	if err != nil {
		os.Exit(cmd.ProcessState.ExitCode())
	}
}

// perdureOn runs a command on a store.
func perdureOn(t *testing.T, url string, args ...string) (out, complaints string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Main(t.Context(), append(args, "--store", url), cli.Streams{In: strings.NewReader(""), Out: &o, Err: &e})
	if err := cli.CheckShape("../../docs/cli-json.md", args, o.String()); code == 0 && err != nil {
		t.Error(err)
	}
	// Undo the wrapping of errors to the width of a terminal.
	return o.String(), strings.Join(strings.Fields(e.String()), " "), code
}

// On PostgreSQL the command asks the running node that owns an execution, and owns nothing itself.
func TestOperateBesideANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, shop, asking)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	do := func(want string, args ...string) string {
		t.Helper()
		out, complaints, code := perdureOn(t, url, args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("perdure %s: exit %d, %s%s\nwant %q", strings.Join(args, " "), code, out, complaints, want)
		}
		return out
	}
	do(`"a lamp"`, "workflow", "start", "shop", "--key", "a", "--input", `"lamp"`, "--label", "region=eu", "--wait")
	for _, key := range []string{"w1", "w2", "w3"} {
		do("shop/"+key+" started", "workflow", "start", "shop", "--key", key, "--input", `"wait"`, "--label", "region=eu")
	}
	do("exists already", "workflow", "start", "shop", "--key", "w1", "--input", `"wait"`)
	do("signal sent: shop/w1", "workflow", "signal", "shop/w1", "approve", "--input", "true")
	do("asking/q started", "workflow", "start", "asking", "--key", "q", "--input", "{}")
	do("settled promise answer of asking/q", "workflow", "resolve", "asking/q", "answer", "--input", "42")
	do("42", "workflow", "start", "asking", "--key", "q", "--input", "{}", "--wait")
	do("a wait", "workflow", "start", "shop", "--key", "w1", "--input", `"wait"`, "--wait")

	// A repeated start with --wait prints the result of its own run, not of a later start.
	repeated := func(want, id string) {
		t.Helper()
		do(want, "workflow", "start", "shop", "--key", "again", "--input", `"`+id+`"`, "--reuse", "always", "--request-id", id, "--wait")
	}
	repeated(`"a one"`, "one")
	repeated(`"a two"`, "two")
	repeated(`"a one"`, "one")

	open := func() string { return do("", "workflow", "list", "--query", `status = "open"`, "-o", "json") }
	waiting := func() string {
		all := open()
		for strings.Count(all, "waits for signal approve") < 2 && strings.Count(all, `"running"`) == 2 { // w2 and w3 do not wait yet
			all = open()
		}
		return all
	}
	before := waiting()
	do("selected: shop/w2", "workflow", "cancel", "--query", `label.region = "eu"`, "--dry-run")
	if after := waiting(); after != before {
		t.Errorf("a dry run has changed something:\n%s%s", before, after)
	}
	var canceled struct {
		Status        string
		Matched, Done int
	}
	if err := json.Unmarshal([]byte(do("", "workflow", "cancel", "--query", `label.region = "eu"`, "--yes", "-o", "json")), &canceled); err != nil {
		t.Fatal(err)
	}
	if canceled.Status != "completed" || canceled.Matched != 2 || canceled.Done != 2 {
		t.Errorf("canceled %+v", canceled)
	}
	for _, key := range []string{"w2", "w3"} {
		if _, err := shop.Execution(perdure.RawKey(key)).Result(app.With(t.Context())); !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("%s ended with %v", key, err)
		}
	}
	if out, complaints, code := perdureOn(t, url, "workflow", "start", "shop", "--key", "bad", "--input", `"nothing"`, "--wait"); code != 1 || !strings.Contains(complaints, "nothing to fetch") {
		t.Errorf("the wait for one that fails: exit %d, %s%s", code, out, complaints)
	}
	if _, complaints, code := perdureOn(t, url, "workflow", "signal", "shop/nobody", "approve"); code != 3 {
		t.Errorf("a signal to a missing execution: exit %d, %s", code, complaints)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var epoch int64
	if err := conn.QueryRow(t.Context(), `select epoch from perdure.meta`).Scan(&epoch); err != nil || epoch != 1 {
		t.Errorf("%d nodes have registered, %v; want one: the command is none", epoch, err)
	}
}

// Without a node the request stays stored, and the command says so when its timeout ends.
func TestOperateWithoutANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, shop)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	var complaints string
	var code int
	// On a busy machine, connecting needs a part of the timeout, so try longer timeouts.
	for _, patience := range []string{"500ms", "5s", "30s"} {
		_, complaints, code = perdureOn(t, url, "workflow", "start", "shop", "--key", "k", "--input", `"lamp"`, "--timeout", patience)
		if code == 6 && strings.Contains(complaints, "accepted, but not answered yet") && strings.Contains(complaints, "perdure doctor") {
			break
		}
	}

	if code != 6 || !strings.Contains(complaints, "accepted, but not answered yet") {
		t.Fatalf("exit %d, %s", code, complaints)
	}
	app, err = embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, shop)
	if err != nil {
		t.Fatal(err)
	}

	defer app.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	for {
		info, err := app.Executions().Describe(ctx, shop.Execution(perdure.RawKey("k")))
		if err == nil && info.Status == perdure.Completed {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("what was accepted is not served: %+v, %v", info, err)
		}
		time.Sleep(20 * time.Millisecond) // the node reads its inbox
	}
}
