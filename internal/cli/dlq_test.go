package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

var letter = perdure.NewActivity("letter", func(_ context.Context, to string) (string, error) {
	if strings.HasPrefix(to, "bad") {
		return "", errors.New("nobody is called " + to)
	}
	return "written to " + to, nil
}, perdure.OnQueue("post"), perdure.RetryPolicy{MaxAttempts: 1})

// killTasks leaves two dead tasks.
func killTasks(t *testing.T, app *perdure.App) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, to := range []string{"bad-1", "bad-2"} {
		x, err := letter.Submit(app.With(ctx), to, perdure.RawKey(to))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Result(app.With(ctx)); err == nil {
			t.Fatal("it was written")
		}
	}
}

type deadJSON struct{ ID, Execution, Error, Fingerprint string }

// on returns a function that runs the command line on a store.
func on(t *testing.T, url string) func(want string, code int, args ...string) string {
	return func(want string, code int, args ...string) string {
		t.Helper()
		out, complaints, got := perdureOn(t, url, args...)
		if got != code || !strings.Contains(out+complaints, want) {
			t.Errorf("perdure %s: exit %d, want %d and %q:\n%s\n%s", strings.Join(args, " "), got, code, want, out, complaints)
		}
		return out
	}
}

func ids(t *testing.T, out string) []deadJSON {
	t.Helper()
	var list []deadJSON
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return list
}

// deadTasks returns a file with the dead tasks of killTasks.
func deadTasks(t *testing.T) (url string) {
	t.Helper()
	url = "file:" + filepath.Join(t.TempDir(), "x.db")
	app, err := embedded.Open(t.Context(), url, letter)
	if err != nil {
		t.Fatal(err)
	}
	killTasks(t, app)
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	return url
}

func TestDlqOnAFile(t *testing.T) {
	t.Parallel()
	do := on(t, deadTasks(t))
	do("nobody is called", 0, "dlq", "groups")
	do("letter/bad-1", 0, "task", "list", "--queue", "post", "--status", "failed")
	do("run_ and 26 characters", 2, "task", "show", "letter/bad-1", "--run", "x")
	do("select 2 dead tasks", 2, "dlq", "requeue", "--all")
	list := ids(t, do("", 0, "dlq", "list", "-o", "json"))
	if len(list) != 2 || list[0].Execution != "task:letter/bad-2" {
		t.Fatalf("%+v", list)
	}

	first := list[0].ID
	do("Dead task  "+first, 0, "task", "show", "letter/bad-2")
	do("Attempt 1", 0, "dlq", "show", first)
	do(`"nobody is called bad-2"`, 0, "dlq", "show", first, "-o", "json")
	do(`"Foo" is not the id of a dead task`, 2, "dlq", "show", "Foo")
	do("does not exist", 3, "dlq", "show", "dead_0_04000000000000000000000000")
	do("needs either the id of a dead task", 2, "dlq", "requeue")
	do("is not requeued", 4, "dlq", "undo", first)
	do("would be requeued as task:letter/bad-2", 0, "dlq", "requeue", first, "--dry-run")
	do("requeued as task:letter/bad-2", 0, "dlq", "requeue", first, "--input", `"ann"`)
	do("was requeued before, as task:letter/bad-2", 0, "dlq", "requeue", first)
	do("requeued", 0, "dlq", "list")
	do("which is open", 4, "dlq", "purge", first)
	do("post", 0, "queue", "show", "post")
	do("The counts come from the store", 0, "queue", "list")
	do("has no tasks and no workers", 3, "queue", "show", "nothing")
	do("letter on queue post: attempt 1 may start", 0, "task", "show", "letter/bad-2")
	do("undid the requeue", 0, "dlq", "undo", first)
	do("canceled", 0, "task", "show", "letter/bad-2")
	do("scheduled again: task:letter/bad-1", 0, "task", "retry", "letter/bad-1")
	do("cancel requested: task:letter/bad-1", 0, "task", "cancel", "letter/bad-1", "--reason", "enough")
	do("is a task", 2, "workflow", "signal", "task:letter/bad-1", "x")
	do("is a task", 2, "workflow", "fork", "task:letter/bad-1", "--key", "x")
	do("no program that executes tasks has the file open", 2, "dlq", "requeue", "--all", "--canary", "--yes")
	do("2 selected; nothing changed", 0, "dlq", "purge", "--older", "1ns", "--dry-run")
	do("select 2 dead tasks", 2, "dlq", "purge", "--activity", "letter")
	do("2 done", 0, "dlq", "purge", "--activity", "letter", "--yes")
	if out := do("letter on queue post", 0, "task", "show", "letter/bad-1"); strings.Contains(out, "Dead task") {
		t.Errorf("it was purged:\n%s", out)
	}
	if list := ids(t, do("", 0, "dlq", "list", "-o", "json")); len(list) != 0 {
		t.Errorf("left: %+v", list)
	}
}

func TestDlqBesideANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	app, err := embedded.Config{AllowUnsafe: true, Version: "v7"}.Open(t.Context(), url, letter, shop)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	killTasks(t, app)

	do := on(t, url)
	for { // a node publishes its queues when it next renews its lease
		if out := do("", 0, "worker", "list"); strings.Contains(out, "queues default, post: letter") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}

	do("workflows perdure.batch, perdure.schedule, perdure.send, shop", 0, "worker", "list")
	do("v7", 0, "worker", "list", "-o", "json")
	do(`"written to bob"`, 0, "task", "submit", "letter", "--queue", "post", "--input", `"bob"`, "--wait")
	list := ids(t, do("", 0, "dlq", "list", "-o", "json"))
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}

	do("requeued as", 0, "dlq", "requeue", list[0].ID, "--input", `"ann"`)
	got, err := letter.Execution(perdure.RawKey("bad-2")).Result(app.With(t.Context()))
	if err != nil || got != "written to ann" {
		t.Errorf("%q, %v", got, err)
	}
	do("did not complete", 4, "dlq", "requeue", "--fingerprint", list[1].Fingerprint, "--canary", "--yes")
}

// If no node runs, every command that changes a PostgreSQL store gives up after its timeout. A
// command that changes many dead tasks stops at the first one that times out.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, letter)
	if err != nil {
		t.Fatal(err)
	}
	killTasks(t, app)
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	do := on(t, url)
	const hint = "no node is running: see `perdure doctor`"
	history := filepath.Join(t.TempDir(), "letter.jsonl")
	do("", 0, "workflow", "export", "task:letter/bad-1", "-f", history)

	// On a busy machine a command may need more than half a second to open the store, so the test
	// repeats the command with more time until it fails with the expected error.
	late := func(want string, args ...string) {
		for limit := 500 * time.Millisecond; ; limit *= 4 {
			out, complaints, code := perdureOn(t, url, append(slices.Clone(args), "--timeout", limit.String())...)
			if code == 6 && strings.Contains(out+complaints, want) {
				return
			}
			if limit > time.Minute {
				t.Errorf("perdure %s: exit %d, want 6 and %q:\n%s\n%s", strings.Join(args, " "), code, want, out, complaints)
				return
			}
		}
	}

	var wg sync.WaitGroup // the commands wait in parallel
	for _, args := range [][]string{
		{"workflow", "retry", "task:letter/bad-1"},
		{"workflow", "delete", "task:letter/bad-1", "--yes"},
		{"workflow", "import", "-f", history, "--key", "copy"},
		{"workflow", "delete", "--query", `workflow = "task:letter"`, "--yes"},
		{"workflow", "retry", "--query", `workflow = "task:letter"`, "--yes", "-o", "json"},
		{"dlq", "purge", ids(t, do("", 0, "dlq", "list", "-o", "json"))[0].ID},
	} {
		wg.Go(func() { late(hint, args...) })
	}

	for _, args := range [][]string{
		{"dlq", "purge", "--all", "--yes"},
		{"dlq", "requeue", "--all", "--yes"},
	} {
		wg.Go(func() { late("stopped after 1: ", args...) })
		wg.Go(func() { late(hint, append(slices.Clone(args), "-o", "json")...) })
	}

	wg.Wait()
}

func TestStress(t *testing.T) {
	t.Parallel()
	do := on(t, "file:"+filepath.Join(t.TempDir(), "x.db"))
	out := do("per_second", 0, "stress", "--total", "60", "--concurrent", "20", "--failure-rate", "0.5", "--latency", "1ms", "-o", "json")
	var r struct {
		Workflows, Failed, Refused int
		P50                        float64 `json:"p50_ms"`
		P99                        float64 `json:"p99_ms"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Workflows != 60 || r.Failed == 0 || r.Failed == 60 || r.Refused != 0 || r.P50 < 1 || r.P99 < r.P50 {
		t.Errorf("%v, %s", err, out)
	}
	do("must be from 0 to 1", 2, "stress", "--failure-rate", "2")
	do("must be >= 1", 2, "stress", "--total", "0")
	do("stress-task", 0, "dlq", "groups")
}
