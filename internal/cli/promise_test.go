package cli_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/cli"
)

// The command promise list shows the promises that executions wait for, even if the executions also
// wait for something else. It works on a file that no program has open, and through a program that
// has the file open.
func TestPromiseList(t *testing.T) {
	t.Parallel()
	file := "file:" + filepath.Join(t.TempDir(), "app.db")
	both := perdure.NewWorkflow("both", func(ctx perdure.WorkflowCtx, _ perdure.Void) (int, error) {
		late := perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) { return answer.Await(ctx) })
		if err := ctx.Sleep(time.Hour); err != nil {
			return 0, err
		}
		return late.Get(ctx)
	})
	list := func(args ...string) (found []struct{ Workflow, Key, Run, Promise, Started string }, complaints string) {
		t.Helper()
		var out, errs bytes.Buffer
		code := cli.Main(t.Context(), append([]string{"promise", "list", "--store", file, "-o", "json"}, args...), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if err := json.Unmarshal(out.Bytes(), &found); err != nil || code != 0 {
			t.Fatalf("promise list %q: exit %d, %v: %s%s", args, code, err, &out, &errs)
		}
		return found, errs.String()
	}

	app, err := embedded.Open(t.Context(), file, asking, both, shop)
	if err != nil {
		t.Fatal(err)
	}
	c := app.With(t.Context())
	if _, err := both.Start(c, perdure.Void{}, perdure.RawKey("b-1")); err != nil {
		t.Fatal(err)
	}
	if _, err := asking.Start(c, perdure.Void{}, perdure.RawKey("a-1")); err != nil {
		t.Fatal(err)
	}
	if _, err := shop.Start(c, "wait", perdure.RawKey("s-1")); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		if found, _ := list(); len(found) == 2 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the executions do not say what they wait for: %+v", found)
		}
		time.Sleep(time.Millisecond) // until their workers have reported it
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	found, _ := list()
	if len(found) != 2 || found[0].Key != "a-1" || found[1].Workflow != "both" || found[1].Promise != "answer" || found[1].Run == "" || found[1].Started == "" {
		t.Errorf("found %+v", found)
	}
	if found, _ := list("--workflow", "asking"); len(found) != 1 || found[0].Key != "a-1" {
		t.Errorf("of one workflow: %+v", found)
	}
	if found, _ := list("--limit", "1"); len(found) != 1 {
		t.Errorf("at most one: %+v", found)
	}
	if found, _ := list("--query", `key = "none"`); len(found) != 0 {
		t.Errorf("of a query that selects nothing: %+v", found)
	}
}

// The command also lists the promises of executions that are in the memory of a process.
func TestPromiseListOfExecutionsInMemory(t *testing.T) {
	t.Parallel()
	file := "file:" + filepath.Join(t.TempDir(), "app.db")
	app, err := embedded.Config{IdleAfter: 24 * time.Hour}.Open(t.Context(), file, asking)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	if _, err := asking.Start(app.With(t.Context()), perdure.Void{}, perdure.RawKey("a-1")); err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(out.String(), "asking/a-1"); out.Reset() {
		if time.Now().After(deadline) {
			t.Fatalf("promise list has no promise of the execution: %s", &out)
		}
		cli.Main(t.Context(), []string{"promise", "list", "--store", file}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		if strings.Contains(out.String(), "asking/a-1") {
			break
		}
		time.Sleep(time.Millisecond) // until its worker has reported it
	}
}
