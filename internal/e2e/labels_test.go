package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// A start sets labels, code changes them, the next run of a chain keeps them, and queries find
// executions by them.
func labels(t *testing.T, s *site) {
	wake := perdure.NewSignal[string]("wake")
	child := perdure.NewWorkflow("child", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return wake.Receive(ctx) })
	order := perdure.DeclareWorkflow[int, string]("order")

	app := s.open(child, order.Bind(func(ctx perdure.WorkflowCtx, round int) (string, error) {
		if round == 0 {
			if _, err := child.Start(ctx, "", perdure.RawKey("kid"), perdure.Labels(map[string]string{"of": ctx.Self().Key}), perdure.AbandonChild); err != nil {
				return "", err
			}
			if err := errors.Join(ctx.SetLabel("stage", "packed"), ctx.SetLabel("stage", "paid"), ctx.SetLabel("draft", "")); err != nil {
				return "", err
			}
			if _, err := wake.Receive(ctx); err != nil {
				return "", err
			}
			return "", order.ContinueAsNew(1)
		}

		if _, err := wake.Receive(ctx); err != nil {
			return "", err
		}
		return "done", ctx.SetLabel("stage", "done")
	}))

	c := caller(t, app)
	start := func(l map[string]string) error {
		_, err := order.Start(c, 0, perdure.RawKey("o-1"), perdure.Labels(l))
		return err
	}
	if err := start(map[string]string{"region": "eu", "draft": "yes"}); err != nil {
		t.Fatal(err)
	}

	x := order.Execution(perdure.RawKey("o-1"))
	want := func(labels map[string]string) {
		t.Helper()
		info, err := app.Executions().Describe(t.Context(), x)
		if err != nil || !maps.Equal(info.Labels, labels) {
			t.Errorf("labels %v, %v; want %v", info.Labels, err, labels)
		}
	}

	found := func(query string, refs ...string) {
		t.Helper()
		if got := sorted(list(t, app, query)); !slices.Equal(got, refs) {
			t.Errorf("%s lists %v, want %v", query, got, refs)
		}
		if n, err := app.Executions().Count(t.Context(), query); err != nil || n != int64(len(refs)) {
			t.Errorf("%s counts %d, %v; want %d", query, n, err, len(refs))
		}
	}

	reason(t, app, x, "signal wake")
	want(map[string]string{"region": "eu", "stage": "paid"})
	eventually(t, "the child", func() bool { return len(list(t, app, `label.of = "o-1"`)) == 1 })
	found(`label.region = "eu"`, "order/o-1")
	found(`label.region = "eu" and label.stage in ("packed", "paid")`, "order/o-1")
	found(`label.stage = "packed"`)
	found(`label.draft = "yes"`)
	found(`label.region != "eu"`, "child/kid")
	found(`label.of = "o-1" and status = "open"`, "child/kid")
	if err := start(map[string]string{"region": "us"}); err != nil { // attaches to the execution
		t.Errorf("a repeated start with other labels: %v", err)
	}
	want(map[string]string{"region": "eu", "stage": "paid"})

	for range 2 {
		if err := wake.Send(c, x, "on"); err != nil {
			t.Fatal(err)
		}
	}

	if got, err := x.Result(c); err != nil || got != "done" {
		t.Fatalf("result %q, %v", got, err)
	}
	want(map[string]string{"region": "eu", "stage": "done"})
	found(`label.stage = "done" and status = "completed"`, "order/o-1")

	for info, err := range app.Executions().List(t.Context(), `label.region = "eu"`) {
		if err != nil || info.Labels["stage"] != "done" {
			t.Errorf("listed with labels %v, %v", info.Labels, err)
		}
	}

	if s.kind != "memory" {
		app = s.reopen(app, child, order.Bind(func(perdure.WorkflowCtx, int) (string, error) { return "", nil }))
		found(`label.stage = "done"`, "order/o-1")
		want(map[string]string{"region": "eu", "stage": "done"})
	}
}

// A call with invalid labels returns an error, and nothing is stored.
func labelLimits(t *testing.T, s *site) {
	var inside []error
	w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		inside = append(inside[:0], ctx.SetLabel("no spaces", "x"), ctx.SetLabel("long", strings.Repeat("v", 257)), ctx.SetLabel("nul", "\x00"))
		for i := range 40 {
			if err := ctx.SetLabel(fmt.Sprint("l", i), "x"); err != nil {
				inside = append(inside, fmt.Errorf("number %d: %w", i, err))
				return "", nil
			}
		}
		return "", nil
	})

	app := s.open(w)
	c := caller(t, app)
	before := s.contents()
	many := map[string]string{}
	for i := range 33 {
		many[fmt.Sprint("l", i)] = "x"
	}

	for what, l := range map[string]map[string]string{
		"no spaces": {"no spaces": "x"}, "empty": {"empty": ""}, "33": many, "region": {"region": "\xff"}, "257": {"a": strings.Repeat("v", 257)},
	} {
		_, err := w.Start(c, "", perdure.RawKey("k"), perdure.Labels(l))
		wantError(t, "a start with label "+what, err, perdure.ErrInvalid, what)
	}

	s.checkUnchanged(before)
	if _, err := w.Run(c, "", perdure.RawKey("k"), perdure.Labels(map[string]string{"l0": "y", "other": "z"})); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"no spaces", "257", "NUL"} {
		wantError(t, "SetLabel", inside[i], perdure.ErrInvalid, name)
	}
	wantError(t, "SetLabel, once too often", inside[3], perdure.ErrExhausted, "number 31", "l31", "32")
	info, err := app.Executions().Describe(t.Context(), w.Execution(perdure.RawKey("k")))
	if err != nil || len(info.Labels) != 32 || info.Labels["l0"] != "x" {
		t.Errorf("labels %v, %v", info.Labels, err)
	}
}

// A query selects the same executions on every store. Conditions on reasons and times use the
// current state.
func selections(t *testing.T, s *site) {
	wake := perdure.NewSignal[string]("wake")
	w := perdure.NewWorkflow("w", func(ctx perdure.WorkflowCtx, in string) (string, error) {
		switch in {
		case "sleep":
			return "", ctx.Sleep(time.Hour)
		case "fail":
			return "", errors.New("on purpose")
		case "wait":
			return wake.Receive(ctx)
		}
		return in, nil
	})

	s.cfg.IdleAfter = time.Nanosecond // so that parked executions are stored as parked
	app := s.open(w)
	c := caller(t, app)
	begin := time.Now()

	for _, in := range []string{"sleep", "fail", "wait", "end"} {
		if _, err := w.Start(c, in, perdure.RawKey(in)); err != nil {
			t.Fatal(err)
		}
	}

	for query, want := range map[string][]string{
		`reason = "timer"`:              {"w/sleep"},
		`reason in ("timer", "signal")`: {"w/sleep", "w/wait"},
		`reason = "replay_mismatch"`:    {},
		`key = "wait"`:                  {"w/wait"},
		`key = "wai"`:                   {},
		`status != "open"`:              {"w/end", "w/fail"},
		`status in ("failed", "canceled") and workflow in ("w","x")`: {"w/fail"},
		`closed >= -10m`: {"w/end", "w/fail"},
		fmt.Sprintf(`closed < %s`, begin.Add(-time.Minute).Format(time.RFC3339)): {},
		`started > -10m and started <= -0s and key = "e"*`:                       {"w/end"},
	} {
		eventually(t, query+" lists "+fmt.Sprint(want), func() bool { return slices.Equal(sorted(list(t, app, query)), want) })
	}
}
