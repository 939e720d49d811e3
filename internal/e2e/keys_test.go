package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// A start with the key and the input of an open execution attaches to that execution. With another
// input it is a conflict. After the end of the execution, the reuse policy decides.
func reusePolicies(t *testing.T, s *site) {
	w := perdure.NewWorkflow("work", func(_ perdure.WorkflowCtx, fail bool) (bool, error) {
		if fail {
			return false, errors.New("on purpose")
		}
		return true, nil
	})

	app := s.open(w)
	c := caller(t, app)
	run := func(key string, fail bool, opts ...perdure.StartOption) string {
		t.Helper()
		if _, err := w.Start(c, fail, append(opts, perdure.RawKey(key))...); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Execution(perdure.RawKey(key)).Result(c)
		info, err := app.Executions().Describe(t.Context(), w.Execution(perdure.RawKey(key)))
		if err != nil {
			t.Fatal(err)
		}
		return info.Ref.Run
	}

	good, bad := run("good", false), run("bad", true)
	for _, x := range []struct {
		policy    perdure.Reuse
		name      string
		good, bad bool // whether a new run starts after a success, and after a failure
	}{
		{perdure.ReturnExisting, "ReturnExisting", false, false},
		{perdure.ReuseIfFailed, "ReuseIfFailed", false, true},
		{perdure.ReuseAlways, "ReuseAlways", true, true},
	} {
		if next := run("good", false, x.policy); (next != good) != x.good {
			t.Errorf("%s after success: a new run begins: %v, want %v", x.name, next != good, x.good)
		} else {
			good = next
		}
		if next := run("bad", true, x.policy); (next != bad) != x.bad {
			t.Errorf("%s after a failure: a new run begins: %v, want %v", x.name, next != bad, x.bad)
		} else {
			bad = next
		}
	}

	before := s.contents()
	_, err := w.Start(c, true, perdure.RawKey("good"))
	wantError(t, "a used key with another input", err, perdure.ErrConflict, "work", "good")
	_, err = w.Run(c, true, perdure.RawKey("good"))
	wantError(t, "run of a used key with another input", err, perdure.ErrConflict, "work", "good")
	s.checkUnchanged(before)
	run("good", true, perdure.ReuseAlways) // a new run may have another input
}

// Poll, Describe, History and Executions return the state of executions. If a target does not exist
// or cannot be asked, they return an error that names the target.
func looking(t *testing.T, s *site) {
	letter := perdure.NewSignal[string]("letter")
	w := perdure.NewWorkflow("mail", func(ctx perdure.WorkflowCtx, in string) (string, error) {
		if in == "bad" {
			return "", errors.New("return to sender")
		}
		return letter.Receive(ctx)
	})
	other := perdure.NewWorkflow("other", func(perdure.WorkflowCtx, string) (string, error) { return "", nil })
	app := s.open(w, other)
	c := caller(t, app)
	from := time.Now().Add(-time.Minute)
	exec := mustStart(t, c, w, "in", perdure.RawKey("box/1"))
	reason(t, app, exec, "waits for signal letter")
	outcome, err := exec.Poll(c)
	if err != nil || !outcome.Status.Open() || outcome.Reason != "waits for signal letter" || outcome.Value != "" {
		t.Errorf("poll while open: %+v, %v", outcome, err)
	}
	if err := letter.Send(c, exec, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.Result(c); err != nil {
		t.Fatal(err)
	}
	outcome, err = exec.Poll(c)
	if err != nil || outcome.Status != perdure.Completed || outcome.Value != "hello" || outcome.Err != nil {
		t.Errorf("poll after the end: %+v, %v", outcome, err)
	}
	if _, err := w.Run(c, "bad", perdure.RawKey("box/2")); err == nil || err.Error() != "return to sender" {
		t.Errorf("run of one that fails: %v", err)
	}
	failed, err := w.Execution(perdure.RawKey("box/2")).Poll(c)
	if err != nil || failed.Status != perdure.Failed || failed.Err == nil || failed.Err.Error() != "return to sender" {
		t.Errorf("poll of one that failed: %+v, %v", failed, err)
	}
	info, err := app.Executions().Describe(t.Context(), exec)
	if err != nil || info.Status != perdure.Completed || info.Reason != "" || info.Started.Before(from) || info.Closed.Before(info.Started) {
		t.Errorf("describe: %+v, %v", info, err)
	}
	again, err := perdure.ParseRef(info.Ref.String())
	equal(t, "the text of a ref read back", again, err, info.Ref)
	if want := []string{"started", "signal_received", "signal_taken", "closed"}; !slices.Equal(kindsOf(t, app, exec), want) {
		t.Errorf("history is %v, want %v", kindsOf(t, app, exec), want)
	}
	if _, err := other.Run(c, "", perdure.RawKey("box")); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][]string{
		``:                                      {"mail/box/1", "mail/box/2", "other/box"},
		`workflow = "mail"`:                     {"mail/box/1", "mail/box/2"},
		`workflow="mail" and status = "failed"`: {"mail/box/2"},
		`status = "open"`:                       {},
		`status = "closed" AND key = "box/"*`:   {"mail/box/1", "mail/box/2"},
		`workflow = "nobody"`:                   {},
		fmt.Sprintf(`started >= %q`, rfc(from)): {"mail/box/1", "mail/box/2", "other/box"},
		fmt.Sprintf(`started < %q`, rfc(from)):  {},
		`key = "bo"* and workflow = "other"`:    {"other/box"},
		`key = "%"*`:                            {},
		`key = "box_1"*`:                        {},
		`workflow = "mail' or '1'='1"`:          {},
	} {
		if got := sorted(list(t, app, query)); !slices.Equal(got, want) {
			t.Errorf("query %s lists %v, want %v", query, got, want)
		}
	}
	for query, names := range map[string][]string{
		`workflow`:                  {"character 9"},
		`workflow = mail`:           {"character 12", "quotes"},
		`workflow > "mail"`:         {"="},
		`flavour = "sweet"`:         {"flavour", "workflow, key, status, reason, started, closed or label.<name>"},
		`status = "happy"`:          {"happy", "completed"},
		`started >= "yesterday"`:    {"yesterday"},
		`started = "2026-01-01"`:    {">="},
		`workflow = "a" or "b"`:     {"and"},
		`workflow = "a" and`:        {"character"},
		`workflow = "a`:             {"character"},
		"workflow = \"a\"\x00":      {"character"},
		`drop table executions; --`: {"character 1"},
		`key = "\x00"*`:             {"key", "control"},
		`workflow = "not\xfe ok"`:   {"workflow", "UTF-8"},
	} {
		for _, err := range app.Executions().List(t.Context(), query) {
			wantError(t, "query "+query, err, perdure.ErrInvalid, names...)
		}
	}

	nobody := w.Execution(perdure.RawKey("nobody"))
	_, err = nobody.Result(c)
	wantError(t, "result of a missing execution", err, perdure.ErrNotFound, "mail", "nobody")
	_, err = nobody.Poll(c)
	wantError(t, "poll of a missing execution", err, perdure.ErrNotFound, "mail", "nobody")
	_, err = app.Executions().Describe(t.Context(), nobody)
	wantError(t, "describe a missing execution", err, perdure.ErrNotFound, "mail", "nobody")
	wantError(t, "cancel a missing execution", nobody.Cancel(c, ""), perdure.ErrNotFound, "mail", "nobody")
	for _, err := range app.Histories().Events(t.Context(), nobody) {
		wantError(t, "history of a missing execution", err, perdure.ErrNotFound, "mail", "nobody")
	}
	run := info.Ref
	run.Key = "nobody" // the run exists, but not under this key
	_, err = app.Executions().Describe(t.Context(), run)
	wantError(t, "a run under another key", err, perdure.ErrNotFound, "nobody")
	run.Run = "run_nonsense"
	_, err = app.Executions().Describe(t.Context(), run)
	wantError(t, "a run that is none", err, perdure.ErrInvalid, "run_nonsense")
}

func rfc(t time.Time) string { return t.UTC().Format(time.RFC3339) }
