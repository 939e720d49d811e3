package perdure_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

func TestRefs(t *testing.T) {
	t.Parallel()
	const run = "run_06f3k8q2h1w9d7x5v4z0n2m6ac"
	for _, s := range []string{"wf/key", "wf/key/with/slashes", "wf/k#1", "wf/key#" + run} {
		r, err := perdure.ParseRef(s)
		if err != nil || r.String() != s {
			t.Errorf("%s is read as %+v (%s), %v", s, r, r, err)
		}
		var back perdure.Execution[int]
		b, _ := json.Marshal(perdure.Execution[int]{Ref: r})
		if err := json.Unmarshal(b, &back); err != nil || back.Ref != r {
			t.Errorf("%s came back as %+v, %v", b, back, err)
		}
	}

	for _, s := range []string{"", "wf", "/key", "wf/", "wf/key#run_short"} {
		if r, err := perdure.ParseRef(s); !errors.Is(err, perdure.ErrInvalid) {
			t.Errorf("%q is read as %+v, %v", s, r, err)
		}
	}
}

func TestHashKeys(t *testing.T) {
	t.Parallel()
	type ab struct{ A, B int }
	type ba struct{ B, A int }

	same := []perdure.Key{
		perdure.HashKey(ab{1, 2}), perdure.HashKey(ba{2, 1}), perdure.HashKey(map[string]int{"A": 1, "B": 2}), perdure.HashKey(map[string]any{"B": 2.0, "A": int8(1)}),
	}
	for i, k := range same {
		if k.String() != same[0].String() || len(k.String()) != 64 {
			t.Errorf("%d: %s, want %s", i, k, same[0])
		}
	}

	seen := map[string]any{}
	for _, v := range []any{"", "a", 1, "1", 1.5, nil, true, []int{1}, []string{"1"}, map[int]int{1: 1}, map[string]string{"1": "1"}, ab{1, 2}, ab{2, 1}} {
		k := perdure.HashKey(v).String()
		if old, ok := seen[k]; ok {
			t.Errorf("%v and %v have the same key", old, v)
		}
		seen[k] = v
	}

	// Stores contain these keys, so the derivation must never change.
	for _, c := range []struct{ got, want string }{
		// SHA-256 of the byte a8 followed by the text
		{perdure.HashKey("order-42").String(), "3dafe17b85bbafdaaa96ff178b19f97c0cf2ad04d73804f589660c99d21033ed"},
		{perdure.HashKey(approval{"eve", true}).String(), "78aa8f4744c1df68189c5b6bcfc517c84e334fcd95619dad6a2563f50dab7404"},
	} {
		if c.got != c.want {
			t.Errorf("key %s, want %s", c.got, c.want)
		}
	}

	big := make(map[int]string)
	for i := range 100 {
		big[i] = fmt.Sprint(i)
	}

	for range 10 {
		if perdure.HashKey(big) != perdure.HashKey(big) {
			t.Fatal("the key depends on the order of a map")
		}
	}
}

func TestExecutionsByQuery(t *testing.T) {
	t.Parallel()
	wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, how string) (string, error) {
		switch how {
		case "fail":
			return "", errors.New("failed")
		case "wait":
			_, err := approved.Receive(ctx)
			return "", err
		}
		return "done", nil
	})

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		for _, how := range []string{"fail", "wait", "done"} {
			if _, err := wf.Start(c, how, perdure.RawKey("k-"+how)); err != nil {
				t.Fatal(err)
			}
		}

		time.Sleep(time.Minute)
		for query, want := range map[string]string{
			"": "k-done k-wait k-fail", `workflow = "wf" and status = "open"`: "k-wait", `status = "closed"`: "k-done k-fail",
			`status = "failed"`: "k-fail", `key = "k-d"*`: "k-done", `workflow = "other"`: "",
			`started >= "1999-01-01T00:00:00Z" AND started < "2999-01-01T00:00:00Z"`: "k-done k-wait k-fail",
			`started < "1999-01-01T00:00:00Z"`:                                       "",
		} {
			var keys []string
			for info, err := range app.Executions().List(t.Context(), query) {
				if err != nil {
					t.Fatalf("%s: %v", query, err)
				}
				keys = append(keys, info.Ref.Key)
				if info.Ref.Key == "k-wait" && info.Reason != "waits for signal approved" {
					t.Errorf("reason %q", info.Reason)
				}
			}
			if got := strings.Join(keys, " "); got != want {
				t.Errorf("%s lists %q, want %q", query, got, want)
			}
		}

		for query, want := range map[string]string{
			`workflow`:                       `character 9: "=" or "in" expected at the end`,
			`colour = "red"`:                 "character 1: workflow, key, status, reason, started, closed or label.<name> expected",
			`status = "asleep"`:              "open, closed, running",
			`workflow = "a" or status = "b"`: `character 16: "and" or the end expected`,
			`workflow < "a"`:                 `"=" or "in" expected`,
			`started < "2026-11-15"`:         "a time such as",
			`workflow = "a" and`:             "character 19: workflow, key",
		} {
			for _, err := range app.Executions().List(t.Context(), query) {
				if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v\nwant %s", query, err, want)
				}
			}
		}

		for info, err := range app.Executions().List(t.Context(), `status = "open"`) {
			if err != nil {
				t.Fatal(err)
			}
			if err := approved.Send(c, info.Ref, approval{}); err != nil {
				t.Error(err)
			}
		}
	}, wf)
}

// TestOtherCodeInAnotherApp binds test code to an activity that has real code. Each app decides
// which code runs.
func TestOtherCodeInAnotherApp(t *testing.T) {
	t.Parallel()
	charge := perdure.NewActivity("charge", func(context.Context, int) (string, error) { return "real", nil })
	wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, n int) (string, error) { return charge.Run(ctx, n) }, perdure.Uses(charge))
	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		got, err := wf.Run(c, 1)
		want(t, got, err, "real") // the handle of the activity has the real code
	}, wf)
	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		got, err := wf.Run(c, 1)
		want(t, got, err, "fake")
	}, wf, charge.Bind(func(context.Context, int) (string, error) { return "fake", nil }))
}

// TestReopen opens the store again. The new app does not repeat steps, and sleeps end at their
// original time. An execution whose code no longer matches is blocked, and continues when the code
// matches again.
func TestReopen(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "app.db")
	var ran atomic.Int64
	receipt := perdure.DeclareWorkflow[string, string]("receipt")
	type v1 struct{ Number int }
	type v2 struct{ Number string } // cannot hold the recorded value

	good := receipt.Bind(func(ctx perdure.WorkflowCtx, in string) (string, error) {
		r, err := perdure.Do(ctx, "number", func(context.Context) (v1, error) { return v1{int(ran.Add(1))}, nil })
		if err != nil {
			return "", err
		}
		_, err = approved.Receive(ctx)
		return fmt.Sprint(in, r.Number), err
	})

	bad := receipt.Bind(func(ctx perdure.WorkflowCtx, in string) (string, error) {
		r, err := perdure.Do(ctx, "number", func(context.Context) (v2, error) { ran.Add(1); return v2{}, nil })
		return in + r.Number, err
	})

	charge := perdure.NewActivity("charge", func(context.Context, int) (v1, error) { ran.Add(1); return v1{}, nil })
	renamed := receipt.Bind(func(ctx perdure.WorkflowCtx, in string) (string, error) {
		_, err := charge.Run(ctx, 1)
		return in, err
	})

	open := func(d perdure.Definition) *perdure.App {
		app, err := embedded.Open(t.Context(), url, d)
		if err != nil {
			t.Fatal(err)
		}
		return app
	}

	waitFor := func(app *perdure.App, what string) (reason string) {
		t.Helper()
		var info perdure.Info
		var err error
		for range 500 {
			info, err = app.Executions().Describe(t.Context(), receipt.Execution(perdure.RawKey("r")))
			if err == nil && strings.Contains(info.Reason, what) {
				return info.Reason
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("reason %q, %v; want %q", info.Reason, err, what)
		return ""
	}

	app := open(good)
	if _, err := receipt.Start(app.With(t.Context()), "r-", perdure.RawKey("r")); err != nil {
		t.Fatal(err)
	}
	waitFor(app, "waits for signal approved")
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	app = open(bad)
	// A signal loads the execution.
	if err := approved.Send(app.With(t.Context()), perdure.Ref{Workflow: "receipt", Key: "r"}, approval{}); err != nil {
		t.Fatal(err)
	}
	waitFor(app, "replay mismatch: result of step number cannot be decoded")
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	app = open(renamed)
	reason := waitFor(app, "which the code did not ask for; it asks for step charge at ")
	if strings.Count(reason, "/values_test.go:") != 2 {
		t.Errorf("the reason does not name both places: %s", reason)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	app = open(good)
	defer app.Close()
	got, err := receipt.Execution(perdure.RawKey("r")).Result(app.With(t.Context()))
	want(t, got, err, "r-1")
	if ran.Load() != 1 {
		t.Errorf("the step ran %d times", ran.Load())
	}
}
