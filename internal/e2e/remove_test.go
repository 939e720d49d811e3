package e2e_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// An execution whose rows cannot be read refuses to be ended, and says how it can be removed. Removed by force, its rows are exported, its lock and its key are free, and its
// parent hears of it.
func TestForceDelete(t *testing.T) {
	t.Parallel()
	account := perdure.NewEntity[int]("account")
	word := perdure.NewSignal[string]("word")
	for _, c := range []struct{ name, table, column, where string }{
		{"an event", "history", "body", "seq = 1"},
		{"the start", "executions", "start", "true"},
		{"what it waits for", "executions", "waits", "true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onStores(t, durable, func(t *testing.T, s *site) {
				holder := perdure.NewWorkflow("damaged", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
					text := ""
					err := ctx.Lock(perdure.LockSet{account.Ref("a")}, func(ctx perdure.WorkflowCtx) error {
						var err error
						text, err = word.Receive(ctx)
						return err
					})
					return text, err
				})
				parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
					return holder.Run(ctx, "in", perdure.RawKey("k"))
				})
				app := s.open(holder, parent)
				client := caller(t, app)
				exec := started(t, client, parent, "in", perdure.RawKey("p"))
				child := holder.Execution(perdure.RawKey("k"))
				reason(t, app, child, "waits for signal word")
				if err := app.Close(); err != nil {
					t.Fatal(err)
				}
				s.damage(c.table, c.column, c.where)

				app = s.open(holder, parent)
				client = caller(t, app)
				for what, end := range map[string]func() error{
					"terminate": func() error { return app.Terminate(t.Context(), child, "stuck") },
					"cancel":    func() error { return child.Cancel(client, "stuck") },
					"delete":    func() error { return app.Delete(t.Context(), child) },
				} {
					if err := end(); err == nil || what != "delete" && !strings.Contains(err.Error(), "delete --force") {
						t.Errorf("%s: %v, want a refusal that names the way out", what, err)
					}
				}
				var export bytes.Buffer
				if err := app.ForceDelete(t.Context(), child, &export); err != nil {
					t.Fatal(err)
				}
				tables := map[string]int{}
				for line := range strings.Lines(export.String()) {
					var row struct {
						Table string         `json:"table"`
						Row   map[string]any `json:"row"`
					}
					if err := json.Unmarshal([]byte(line), &row); err != nil {
						t.Fatalf("%s: %v", line, err)
					}
					tables[row.Table]++
				}
				if tables["executions"] != 1 || tables["history"] == 0 {
					t.Errorf("exported %v", tables)
				}
				if c.table == "history" { // else nobody knows who its parent is
					if _, err := exec.Result(client); err == nil || !strings.Contains(err.Error(), "operator") {
						t.Errorf("the parent: %v", err)
					}
				}
				again := started(t, client, holder, "in", perdure.RawKey("k"))
				reason(t, app, again, "waits for signal word") // so it has the lock
				if err := word.Send(client, again, "done"); err != nil {
					t.Fatal(err)
				}
				got, err := again.Result(client)
				equal(t, "the next run of the key", got, err, "done")
			})
		})
	}
}
