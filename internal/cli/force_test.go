package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

// On PostgreSQL a command deletes an execution and an entity that another process owns and cannot
// read. Other commands on them fail immediately, with a hint.
func TestForcedDeleteBesideANode(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	word := perdure.NewSignal[string]("word")
	stuck := perdure.NewWorkflow("stuck", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return word.Receive(ctx) })
	open := func() *perdure.App {
		t.Helper()
		app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, accounts, stuck)
		if err != nil {
			t.Fatal(err)
		}
		return app
	}
	app := open()
	c := app.With(t.Context())
	if _, err := stuck.Start(c, "in", perdure.RawKey("k")); err != nil {
		t.Fatal(err)
	}
	if _, err := deposit.Call(c, "42", money{100}); err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{
		`update perdure.executions set start = '\xff' where workflow = 'stuck'`,
		`update perdure.entities set body = '\xff' where key = '42'`,
	} {
		if tag, err := conn.Exec(t.Context(), sql); err != nil || tag.RowsAffected() != 1 {
			t.Fatal(tag, err)
		}
	}

	app = open()
	defer app.Close()
	do, files := on(t, url), t.TempDir()
	for _, order := range []string{"terminate", "cancel"} {
		do("perdure workflow delete --force", 9, "workflow", order, "stuck/k", "--timeout", "2m")
	}
	do("perdure entity delete --force", 10, "lock", "release", "account/42", "--force", "--timeout", "2m")
	run, entity := filepath.Join(files, "run.jsonl"), filepath.Join(files, "entity.jsonl")
	do("stuck/k was deleted", 0, "workflow", "delete", "stuck/k", "--force", "--export", run, "--yes", "--timeout", "2m")
	do("account/42 was deleted", 0, "entity", "delete", "account/42", "--force", "--export", entity, "--yes", "--timeout", "2m")
	for file, want := range map[string]string{run: `"table":"executions"`, entity: `"entity":"account"`} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the export %s has no %s: %v", text, want, err)
		}
	}

	c = app.With(t.Context())
	if got, err := deposit.Call(c, "42", money{5}); err != nil || got != 5 {
		t.Errorf("the entity that starts again: %d, %v", got, err)
	}
	if _, err := stuck.Start(c, "in", perdure.RawKey("k")); err != nil {
		t.Errorf("the next run of the key: %v", err)
	}
}
