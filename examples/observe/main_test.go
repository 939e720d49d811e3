package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

func TestObserve(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"memory:", "file:" + filepath.Join(t.TempDir(), "observe.db")} {
		var out bytes.Buffer
		if err := run(t.Context(), url, &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"POST /orders \n", "\n  run order \n", "\n    activity charge \n", "\n      POST /charges \n", "\n    task send-mail error\n", "\n    task send-mail \n", "\n    workflow order \n",
			`perdure_workflow_runs_closed_total{status="completed",workflow="order"} 1`,
			`perdure_task_retries_total{activity="send-mail",queue="mails"} 1`,
			`perdure_task_attempts_total{activity="send-mail",outcome="failed",queue="mails"} 1`,
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("on %s, %q is missing in\n%s", url, want, out.String())
			}
		}
	}
}
