package main

import (
	"context"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

var key = regexp.MustCompile(`key [0-9a-f]{8}…`)

// want compares the printed lines. It accepts any idempotency key.
func want(t *testing.T, out *printed.Text, lines ...string) {
	t.Helper()
	if diff := printed.Diff(key.ReplaceAllString(out.String(), "key K"), lines...); diff != "" {
		t.Error(diff)
	}
}

const (
	asked = "asked: may expense-1, 120 EUR, be paid? yes or no, within 30s"
	end   = ". Start over with: rm approval.db*"
)

func TestDecisions(t *testing.T) {
	t.Parallel()
	for in, lines := range map[string][]string{
		"yes\n":      {asked, "paid 120 EUR for expense-1 (idempotency key K)", "expense/expense-1: paid" + end},
		"what\nno\n": {asked, "yes or no?", "informed the applicant: the boss refused expense-1", "expense/expense-1: refused" + end},
		"":           {asked, "informed the applicant: nobody decided about expense-1 in time", "expense/expense-1: expired" + end},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out printed.Text
			typing, typed := io.Pipe()
			done := make(chan error)
			go func() { done <- run(t.Context(), "memory:", typing, &out) }()
			synctest.Wait() // the program has asked, and waits
			_, _ = io.WriteString(typed, in)
			if err := <-done; err != nil {
				t.Error(err)
			}
			_ = typed.Close()
			want(t, &out, lines...)
		})
	}
}

// If a process ends while it waits, nothing is lost.
func TestTheNextProcessGoesOn(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "approval.db")
	var out printed.Text
	ctx, stop := context.WithCancel(t.Context())
	// The first process ends before the person answers.
	first := writerFunc(func(p []byte) (int, error) { stop(); return out.Write(p) })
	if err := run(ctx, url, strings.NewReader(""), first); err == nil {
		t.Error("a process that is stopped has no result")
	}
	if err := run(t.Context(), url, strings.NewReader("yes\n"), &out); err != nil {
		t.Error(err)
	}
	want(t, &out, asked, "paid 120 EUR for expense-1 (idempotency key K)", "expense/expense-1: paid"+end)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
