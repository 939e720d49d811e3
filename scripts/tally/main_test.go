package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// run passes lines of `go test -json` to the program and returns what the program prints. In the
// lines, ' stands for ".
func run(t *testing.T, record string, lines ...string) (string, bool) {
	t.Helper()
	var out strings.Builder
	ok, err := follow(strings.NewReader(strings.ReplaceAll(strings.Join(lines, "\n"), "'", `"`)+"\n"), &out, record)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), ok
}

func TestTally(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "results")
	out, ok := run(t, record,
		`{'Action':'output','Package':'p','Test':'TestA','Output':'=== RUN TestA\n'}`,
		`{'Action':'output','Package':'p','Test':'TestA','Output':'    a_test.go:3: no disk here\n'}`,
		`{'Action':'skip','Package':'p','Test':'TestA'}`,
		`{'Action':'output','Package':'p','Test':'TestB','Output':'chatter\n'}`,
		`{'Action':'pass','Package':'p','Test':'TestB'}`,
		`{'Action':'output','Package':'p','Output':'ok  \tp\t(cached)\n'}`,
		`{'Action':'pass','Package':'p','Elapsed':1.25}`)
	if want := "ok   p 1.2s (cached)\n"; out != want || !ok {
		t.Errorf("got %q, %v; want %q", out, ok, want)
	}

	out, ok = run(t, record,
		`{'Action':'output','Package':'q','Test':'TestC','Output':'why it failed\n'}`,
		`{'Action':'fail','Package':'q','Test':'TestC'}`,
		`{'Action':'output','Package':'q','Test':'TestD','Output':'never ended\n'}`,
		`{'Action':'fail','Package':'q','Elapsed':2}`,
		`{'Action':'build-output','ImportPath':'r','Output':'x.go:1: syntax error\n'}`,
		`{'Action':'build-fail','ImportPath':'r'}`,
		`{'Action':'skip','Package':'p','Test':'TestB'}`)
	if want := "why it failed\nnever ended\nFAIL q 2.0s\nx.go:1: syntax error\nFAIL r [build failed]\n"; out != want || ok {
		t.Errorf("got %q, %v; want %q", out, ok, want)
	}

	var sum strings.Builder
	if err := total(record, &sum); err != nil {
		t.Fatal(err)
	}
	if want := "skipped: p TestA: a_test.go:3: no disk here\n2 packages, 3 tests: 1 passed, 1 failed, 1 skipped\n"; sum.String() != want {
		t.Errorf("got %q, want %q", sum.String(), want)
	}
}

func TestTallyShowsRaces(t *testing.T) {
	t.Parallel()
	out, ok := run(t, "",
		`{'Action':'output','Package':'p','Test':'TestA','Output':'WARNING: DATA RACE\n'}`,
		`{'Action':'pass','Package':'p','Test':'TestA'}`,
		`{'Action':'fail','Package':'p','Elapsed':1}`)
	if want := "WARNING: DATA RACE\nFAIL p 1.0s\n"; out != want || ok {
		t.Errorf("got %q, %v; want %q", out, ok, want)
	}
}

func TestTallyNoticesWhatIsNotATest(t *testing.T) {
	t.Parallel()
	if out, ok := run(t, "", `go: cannot find main module`); ok || out != "go: cannot find main module\n" {
		t.Errorf("got %q, %v", out, ok)
	}
}
