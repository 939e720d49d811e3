package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// The command finds a worker by its host, by its name, or by the beginning of the id of its node or
// session. It does not find a worker by the beginning of a name that people chose.
func TestWorkerDescribe(t *testing.T) {
	t.Parallel()
	p := &prepared{}
	node := model.NodeID(runOf(9)).String()
	for id, want := range map[string]string{
		"shop-1.example.com:4711":            `"worker": "shop-1.example.com:4711"`,
		"shop-1…4711":                        "is ambiguous: shop-1-4711, shop-1.example.com:4711",
		"shop-1.ex…4711":                     `"batch"`,
		"shop-1-4711":                        `"names": [`,
		node:                                 `"since": "2026-`,
		node[:12]:                            `"breakers": [`,
		"session_K7X2M9":                     `"holds": {`,
		"session_K7X2M9QFH3T5RSWZ1BCD4EGJKN": `"runs": 12`,
		"shop-1":                             "there is no worker shop-1",
		"session_none00":                     "there is no worker session_none00",
		"session_H3T5RSWZ1BCD4EGJKNK7X2M9QF": `"state": "drains"`,
		"node_00000000000000000000000000":    "there is no worker node_",
		"session_1BCD4EGJKNK7X2M9QFH3T5RSWZ": `"state": "away"`,
	} {
		r := runOn(t, p, 0, "worker", "describe", id, "-o", "json")
		if all := r.out + strings.Join(strings.Fields(r.complaints), " "); !strings.Contains(all, want) {
			t.Errorf("worker describe %s: exit %d, want %q:\n%s", id, r.code, want, all)
		}
	}

	// The name of a task worker selects only this worker. Its host selects the whole process.
	if r := runOn(t, p, 0, "worker", "describe", "shop-1-4711"); strings.Contains(r.out, "batch") || !strings.Contains(r.out, "Slots       100") {
		t.Errorf("a worker of tasks:\n%s", r.out)
	}
	if r := runOn(t, p, 0, "worker", "describe", "shop-1.example.com:4711", "-o", "yaml"); !strings.Contains(r.out, "- batch\n") || !strings.Contains(r.out, "slots: 100") {
		t.Errorf("a process:\n%s", r.out)
	}
}

// The command does not show two workers as one if they have different versions on one server, or
// the same name in two processes.
func TestWorkerDescribeAmbiguous(t *testing.T) {
	t.Parallel()
	one := api.WorkerInfo{Node: model.NodeID(runOf(1)), Host: "a:1", Name: "w", Version: "v1"}
	for _, other := range []api.WorkerInfo{
		{Node: one.Node, Host: "a:1", Version: "v2"}, {Node: model.NodeID(runOf(2)), Host: "b:2", Name: "w", Version: "v1"},
	} {
		w := &workerShape{}
		if err := w.add(&one); err != nil {
			t.Fatal(err)
		}
		builtIn := one
		if builtIn.Version = ""; w.add(&builtIn) != nil || w.Version != "v1" {
			t.Errorf("beside code without a version, the worker has version %q", w.Version)
		}
		if err := w.add(&other); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "is ambiguous") {
			t.Errorf("%+v: %v", other, err)
		}
	}
}

// The command shows a connected worker by its session, through the server of the worker. It shows a
// process that has a file open by the host of the process, through the file.
func TestWorkerDescribeLive(t *testing.T) { //nolint:paralleltest // it sets the environment
	dir := t.TempDir()
	t.Setenv(tokenVariable, serveKey)
	greet := perdure.NewWorkflow("greet", func(_ perdure.WorkflowCtx, in string) (string, error) { return in, nil })
	mail := perdure.NewActivity("mail", func(_ context.Context, in string) (string, error) { return in, nil }, perdure.OnQueue("post"))
	describe := func(worker string, where ...string) (w workerShape) {
		t.Helper()
		var out bytes.Buffer
		code := Main(t.Context(), append([]string{"worker", "describe", worker, "-o", "json"}, where...), Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		if err := json.Unmarshal(out.Bytes(), &w); err != nil || code != 0 {
			t.Fatalf("worker describe %s: exit %d, %v: %s", worker, code, err, &out)
		}
		return w
	}

	// The doctor finds one version, because all code of a process has the version of its program.
	oneVersion := func(version string, where ...string) {
		t.Helper()
		var out bytes.Buffer
		Main(t.Context(), append([]string{"doctor"}, where...), Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		if !strings.Contains(out.String(), "all workers have version "+version+" (2)") {
			t.Errorf("the doctor finds:\n%s", &out)
		}
	}

	s := startServe(t, "--store", "memory:", "--listen", "127.0.0.1:0", "--admin-key-file", writeFile(t, dir, "admin", serveKey))
	app, err := perdure.Dialer{Token: serveKey, Version: "v7"}.Dial(t.Context(), "grpc://"+s.address, greet, mail)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := Main(t.Context(), []string{"worker", "sessions", "-o", "json", "--server", "grpc://" + s.address}, Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code != 0 {
		t.Fatalf("worker sessions: exit %d: %s", code, &out)
	}
	var sessions []sessionShape
	if err := json.Unmarshal(out.Bytes(), &sessions); err != nil || len(sessions) != 1 {
		t.Fatalf("%d sessions, %v: %s", len(sessions), err, &out)
	}
	w := describe(sessions[0].Session[:len(sessionPrefix)+8], "--server", "grpc://"+s.address)
	if w.Worker != sessions[0].Session || w.Version != "v7" || w.State != "connected" || w.Holds == nil || w.Tenant != "default" || w.Slots == 0 || !slices.Equal(w.Workflows, []string{"greet"}) || !slices.Contains(w.Queues, "post") {
		t.Errorf("the session is %+v", w)
	}
	oneVersion("v7", "--server", "grpc://"+s.address)
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	s.end()

	file := "file:" + filepath.Join(dir, "app.db")
	local, err := embedded.Config{Version: "v3"}.Open(t.Context(), file, greet, mail)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for out.Reset(); !strings.Contains(out.String(), "greet"); { // until the process has said what it offers
		out.Reset()
		if code := Main(t.Context(), []string{"worker", "list", "--store", file}, Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code != 0 {
			t.Fatalf("worker list: exit %d: %s", code, &out)
		}
	}
	w = describe(fmt.Sprintf("%s:%d", host, os.Getpid()), "--store", file)
	if w.Version != "v3" || w.Since == "" || w.State != "serves" || w.Holds != nil || !slices.Contains(w.Workflows, "greet") || !slices.Equal(w.Activities, []string{"mail"}) {
		t.Errorf("the process is %+v", w)
	}
	oneVersion("v3", "--store", file)
}
