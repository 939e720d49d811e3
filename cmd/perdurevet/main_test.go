package main

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// run runs a command at the root of the module and returns its output and its exit code.
func run(t *testing.T, name string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = filepath.Join("..", "..")
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

func TestCommand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the command")
	}
	tool := filepath.Join(t.TempDir(), "perdurevet")
	if out, code := run(t, "go", "build", "-o", tool, "./cmd/perdurevet"); code != 0 {
		t.Fatal(out)
	}

	const snippets = "./perdurevet/testdata/src/"
	for _, c := range []struct {
		name    string
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
			name: "a check is turned off", command: []string{"go", "vet", "-vettool=" + tool, "-nested=false", snippets + "wrong"}, fails: true,
			prints: []string{"[client]"}, not: []string{"[nested]"},
		},
		{
			name: "one check alone", command: []string{"go", "vet", "-vettool=" + tool, "-nested", snippets + "wrong"}, fails: true,
			prints: []string{"[nested]"}, not: []string{"[client]"},
		},
		{name: "by itself", command: []string{tool, snippets + "random"}, fails: true, prints: []string{"uuid.NewString in workflow code"}},
		{name: "by itself, with a flag", command: []string{tool, "-random=false", snippets + "random"}},
		{name: "nothing wrong", command: []string{"go", "vet", "-vettool=" + tool, snippets + "helper/..."}},
		{name: "help", command: []string{tool, "help"}, prints: []string{"maporder", "stepkey"}},
		{name: "help by flag", command: []string{tool, "-h"}, prints: []string{"maporder", "stepkey"}},
		{name: "help on what is not there", command: []string{tool, "help", "nothing"}, fails: true, prints: []string{"there is no check \"nothing\""}},
		{name: "help on a check", command: []string{tool, "help", "stepkey"}, prints: []string{"report perdure.Do in a loop without StepKey"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, code := run(t, c.command[0], c.command[1:]...)
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
