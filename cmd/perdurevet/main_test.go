package main

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// root is the root of this module.
var root = filepath.Join("..", "..")

// run runs a command in a directory and returns its output and its exit code.
func run(t *testing.T, dir, name string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError

	switch {
	case err == nil:
		return out.String(), 0
	case errors.As(err, &exit):
		return out.String(), exit.ExitCode()
	default:
		t.Fatal(err)
		return "", 0
	}
}

// small makes a module with a stub of the real package, and returns its directory. With other flags
// the tool reads all dependencies of a package again. The real package has five hundred, and the
// stub has few.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	const imports = "import (\n\t\"math/rand\"\n\t\"time\"\n\n\t\"github.com/perdure/perdure\"\n)\n\n"
	for name, text := range map[string]string{
		"go.mod": "module github.com/perdure/perdure\n\ngo 1.25\n",
		"perdure.go": "// Package perdure is a stub.\npackage perdure\n\ntype WorkflowCtx struct{}\n\ntype Workflow[I, O any] struct{}\n\n" +
			"func NewWorkflow[I, O any](string, func(WorkflowCtx, I) (O, error)) *Workflow[I, O] { return nil }\n",
		"random/random.go": "package random\n\n" + strings.Replace(imports, "\t\"time\"\n", "", 1) +
			"var _ = perdure.NewWorkflow(\"dice\", func(_ perdure.WorkflowCtx, n int) (int, error) { return rand.Intn(n), nil })\n",
		"both/both.go": "package both\n\n" + imports +
			"var _ = perdure.NewWorkflow(\"dice\", func(_ perdure.WorkflowCtx, n int) (int, error) { return rand.Intn(n) + time.Now().Day(), nil })\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCommand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the command")
	}
	tool := filepath.Join(t.TempDir(), "perdurevet")
	if out, code := run(t, root, "go", "build", "-o", tool, "./cmd/perdurevet"); code != 0 {
		t.Fatal(out)
	}

	stub := small(t)
	const snippets = "./perdurevet/testdata/src/"
	for _, c := range []struct {
		name    string
		dir     string // default: the root of this module
		command []string
		fails   bool
		prints  []string
		not     []string
	}{
		{
			name: "go vet finds", command: []string{"go", "vet", "-vettool=" + tool, snippets + "wrong"}, fails: true,
			prints: []string{"wrong.go:29:", "durable call ctx.Sleep inside a step", "[nested]", "[client]", "[goroutine]", "[stepkey]", "[continueas]", "[directcall]", "[escape]"},
		},
		{
			name: "facts come from other packages", command: []string{"go", "vet", "-vettool=" + tool, snippets + "across"}, fails: true,
			prints: []string{"helper.Label reaches time.Now (helper.go:17) in workflow code", "[stepkey]", "[continueas]"},
		},
		{
			name: "all checks", dir: stub, command: []string{"go", "vet", "-vettool=" + tool, "./both"}, fails: true,
			prints: []string{"[clock]", "[random]"},
		},
		{
			name: "a check is turned off", dir: stub, command: []string{"go", "vet", "-vettool=" + tool, "-random=false", "./both"}, fails: true,
			prints: []string{"[clock]"}, not: []string{"[random]"},
		},
		{
			name: "one check alone", dir: stub, command: []string{"go", "vet", "-vettool=" + tool, "-random", "./both"}, fails: true,
			prints: []string{"[random]"}, not: []string{"[clock]"},
		},
		{name: "by itself", command: []string{tool, snippets + "random"}, fails: true, prints: []string{"uuid.NewString in workflow code"}},
		{name: "by itself, with a flag", dir: stub, command: []string{tool, "-random=false", "./random"}},
		{name: "nothing wrong", command: []string{"go", "vet", "-vettool=" + tool, snippets + "helper/..."}},
		{name: "help", command: []string{tool, "help"}, prints: []string{"maporder", "stepkey"}},
		{name: "help by flag", command: []string{tool, "-h"}, prints: []string{"maporder", "stepkey"}},
		{name: "help on what is not there", command: []string{tool, "help", "nothing"}, fails: true, prints: []string{"there is no check \"nothing\""}},
		{name: "help on a check", command: []string{tool, "help", "stepkey"}, prints: []string{"report perdure.Do in a loop without StepKey"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, code := run(t, cmp.Or(c.dir, root), c.command[0], c.command[1:]...)
			if c.fails != (code != 0) {
				t.Errorf("exit code %d", code)
			}

			for _, want := range c.prints {
				if !strings.Contains(out, want) {
					t.Errorf("%q is missing", want)
				}
			}

			for _, unwanted := range c.not {
				if strings.Contains(out, unwanted) {
					t.Errorf("%q is there", unwanted)
				}
			}

			if t.Failed() {
				t.Log(out)
			}
		})
	}
}
