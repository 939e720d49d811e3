package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A command that changes many executions starts a batch on the server. The batch continues when the
// command is killed.
func TestQueryVerbSurvivesItsCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The command of the tests compares its output with the page.
	page, err := filepath.Abs("../../docs/cli-json.md")
	if err != nil {
		t.Fatal(err)
	}
	s := startServe(t, "--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", writeFile(t, dir, "admin", serveKey))
	defer s.end()
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "perdure", append(args, "--server", "grpc://"+s.address)...)
		cmd.Env = append(os.Environ(), tokenVariable+"="+serveKey, "PERDURE_TEST_SHAPES="+page)
		return cmd
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := command(args...).CombinedOutput()
		if err != nil {
			t.Fatalf("perdure %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	const executions = 300
	var many bytes.Buffer
	for i := range executions {
		fmt.Fprintf(&many, "{\"key\": \"%d\"}\n", i)
	}
	run("workflow", "start", "order", "--many", writeFile(t, dir, "many.jsonl", many.String()))

	client := command("workflow", "terminate", "--query", `workflow = "order"`, "--reason", "it moves", "--yes")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	var all []batchLine
	list := func() {
		t.Helper()
		if err := json.Unmarshal([]byte(run("batch", "list", "-o", "json")), &all); err != nil {
			t.Fatal(err)
		}
	}
	end := time.Now().Add(4 * time.Minute) // the server of the test lives for five minutes
	for list(); len(all) == 0 && time.Now().Before(end); list() {
	}
	_ = client.Process.Kill() // the command may have ended
	_ = client.Wait()

	for ; len(all) == 1 && all[0].Ended == "" && time.Now().Before(end); list() {
	}
	if len(all) != 1 || all[0].Status != "completed" || all[0].Done != executions || all[0].Verb != "terminate" || all[0].Reason != "it moves" {
		t.Errorf("the batches are %+v", all)
	}
	if left := run("workflow", "count", "--query", `workflow = "order" and status = "open"`); strings.TrimSpace(left) != "0" {
		t.Errorf("%s executions are open", left)
	}
}
