package main

import (
	"bufio"
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

func TestHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in virtual time, the sleep costs nothing
		app := embedded.MustOpen("memory:", greet)
		defer app.Close()
		got, err := greet.Run(app.With(t.Context()), "World", perdure.RawKey("hello-1"))
		if err != nil || got != "Hello World" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// The first program of the docs must stay short, and must be the same as in this directory.
func TestHelloHasAtMostTwentyLines(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := bytes.Cut(src, []byte("package main"))

	lines := 1
	for s := bufio.NewScanner(bytes.NewReader(code)); s.Scan(); {
		if strings.TrimSpace(s.Text()) != "" {
			lines++
		}
	}

	if lines > 20 {
		t.Errorf("hello has %d non-blank lines", lines)
	}

	for _, page := range []string{"README.md", "docs/getting-started.md"} {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, append([]byte("```go\npackage main"), code...)) {
			t.Errorf("%s does not show this program", page)
		}
	}
}
