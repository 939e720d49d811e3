package perdurevet

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
)

// all reports the findings of every check, for tests that expect findings of several checks.
var all = &analysis.Analyzer{
	Name:       "all",
	Doc:        "report everything",
	Requires:   []*analysis.Analyzer{index},
	ResultType: reflect.TypeFor[struct{}](),
	Run: func(pass *analysis.Pass) (any, error) {
		for _, a := range Analyzers() {
			inner := *pass
			inner.ResultOf = map[*analysis.Analyzer]any{index: pass.ResultOf[index]}
			if _, err := a.Run(&inner); err != nil {
				return nil, err
			}
		}
		return struct{}{}, nil
	},
}

// TestSnippets runs the checks over right and wrong programs that use the real package. With a
// stub, the programs would still compile after a change of the real package, although the checks
// look for names that the real package no longer has. The programs include all examples of the
// design, which must have no findings.
func TestSnippets(t *testing.T) {
	t.Parallel()
	// The root has the go.mod, so that the snippets are packages of this module.
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	analysistest.Run(t, root, all, "./perdurevet/testdata/src/...")
}

// TestDocumented checks that every check has a row in the documentation. Findings link to the
// documentation.
func TestDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/vet.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if row := fmt.Sprintf("| <a id=%q></a>`%s` |", c.name, c.name); !strings.Contains(string(page), row) {
			t.Errorf("docs/vet.md has no row %s", row)
		}
	}
	if err := analysis.Validate(Analyzers()); err != nil {
		t.Error(err)
	}
}
