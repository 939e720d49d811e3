package cli

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// Through a server, the command counts the open executions that are pinned to a version with
// workers, that are pinned to a version without workers, and that are not pinned.
func TestWorkerVersions(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(tokenVariable, serveKey)
	s := startServe(t, "--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", writeFile(t, dir, "admin", serveKey))

	// go is the signal that ends an execution.
	waits := func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		return perdure.NewSignal[string]("go").Receive(ctx)
	}
	pinned, loose := perdure.NewWorkflow("pinned", waits, perdure.Pinned()), perdure.NewWorkflow("loose", waits)
	begin := func(version string, keys ...string) *perdure.App {
		app, err := perdure.Dialer{Token: serveKey, Version: version}.Dial(t.Context(), "grpc://"+s.address, pinned, loose)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = app.Close() })
		for _, key := range keys {
			if _, err := pinned.Start(app.With(t.Context()), "", perdure.RawKey(key)); err != nil {
				t.Fatal(err)
			}
		}
		return app
	}
	versions := func() []versionShape {
		t.Helper()
		var out bytes.Buffer
		if code := Main(t.Context(), []string{"worker", "versions", "-o", "json", "--server", "grpc://" + s.address}, Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code != 0 {
			t.Fatalf("worker versions: exit %d: %s", code, &out)
		}
		var all []versionShape
		if err := json.Unmarshal(out.Bytes(), &all); err != nil {
			t.Fatalf("%v: %s", err, &out)
		}
		return all
	}
	// until waits for the lines that have a version: an execution is pinned when its code begins,
	// and a worker is listed when the node has published it.
	until := func(want ...versionShape) {
		t.Helper()
		for limit := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			got := slices.DeleteFunc(versions(), func(v versionShape) bool { return v.Version == "" })
			if slices.EqualFunc(got, want, func(a, b versionShape) bool {
				return a.Version == b.Version && a.Workers == b.Workers && a.Open == b.Open && slices.Equal(a.Workflows, b.Workflows)
			}) {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("the versions are %+v, want %+v", got, want)
			}
		}
	}
	opened := func(n int64) []versionOpened { return []versionOpened{{"pinned", n}} }

	old := begin("v1", "a", "b")
	until(versionShape{Version: "v1", Workers: 1, Open: 2, Workflows: opened(2)})
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	app := begin("v2", "c")
	if _, err := loose.Start(app.With(t.Context()), "", perdure.RawKey("d")); err != nil {
		t.Fatal(err)
	}
	until(versionShape{Version: "v1", Open: 2, Workflows: opened(2)}, versionShape{Version: "v2", Workers: 1, Open: 1, Workflows: opened(1)})
	if all := versions(); all[0].Version != "" || all[0].Open != 1 || !slices.Equal(all[0].Workflows, []versionOpened{{"loose", 1}}) {
		t.Errorf("not pinned: %+v", all[0])
	}

	// The executions of v1 end. Nothing needs v1 any longer, so the list leaves it out.
	begin("v1")
	for _, key := range []string{"a", "b"} {
		if err := perdure.NewSignal[string]("go").Send(app.With(t.Context()), perdure.Ref{Workflow: "pinned", Key: key}, "on"); err != nil {
			t.Fatal(err)
		}
	}
	until(versionShape{Version: "v1", Workers: 1}, versionShape{Version: "v2", Workers: 1, Open: 1, Workflows: opened(1)})
	s.stop()
}
