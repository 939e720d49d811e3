package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// If a call that starts a run reaches its deadline, its error says why the call did not succeed. In
// this test no process owns the shard.
func TestLateStartsNameTheMissingOwner(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"postgres"}, func(t *testing.T, s *site) {
		w := &stalls{t: t, s: s}
		flow := perdure.NewWorkflow("flow", waitsForWord)
		app := s.open(flow)
		c := caller(t, app)
		mustStart(t, c, flow, "", perdure.RawKey("open"))
		ended := mustStart(t, c, flow, "", perdure.RawKey("ended"))
		if err := app.Executions().Terminate(t.Context(), ended, ""); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "past.jsonl")
		text, code := w.perdureCLI("workflow", "export", "flow/ended")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil || code != 0 {
			t.Fatalf("%v, %s", err, text)
		}
		many := filepath.Join(t.TempDir(), "many.jsonl")
		if err := os.WriteFile(many, []byte(`{"workflow": "flow", "key": "m", "input": ""}`+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		for _, args := range [][]string{
			{"workflow", "start", "--many", many},
			{"workflow", "fork", "flow/open", "--key", "fork"},
			{"workflow", "retry", "flow/ended"},
			{"workflow", "reset", "flow/open", "--to", "0"},
			{"workflow", "import", "-f", file, "--key", "import"},
		} {
			untilExplained(t, 300*time.Millisecond, func(limit time.Duration) string {
				text, code := w.perdureCLI(append(args, "--timeout", limit.String())...)
				text = strings.Join(strings.Fields(text), " ")
				if code != 0 && strings.Contains(text, "no process is alive") {
					return ""
				}
				return fmt.Sprintf("perdure %s: exit %d: %s", strings.Join(args, " "), code, text)
			})
		}
	})
}
