package dialtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/dialtest"
)

// Every exception names a test or an example that exists, and says why it is an exception.
func TestExceptionsAreNotStale(t *testing.T) {
	t.Parallel()
	for dir, exceptions := range dialtest.Exceptions {
		tests := testsOf(t, "../../"+dir)
		for _, name := range slices.Sorted(maps.Keys(exceptions)) {
			top, _, _ := strings.Cut(name, "/")
			if !tests[top] {
				t.Errorf("%s has no %s: remove the exception", dir, top)
			}
			if len(exceptions[name]) < 20 {
				t.Errorf("%s: the exception %s needs a reason of at least 20 bytes, not %q", dir, name, exceptions[name])
			}
		}
	}
}

// testsOf returns the names of all functions in the test files of a package, among them its tests
// and examples.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	onlyTests := func(f fs.FileInfo) bool { return strings.HasSuffix(f.Name(), "_test.go") }
	packages, err := parser.ParseDir(token.NewFileSet(), dir, onlyTests, 0) //nolint:staticcheck // the build tags do not matter
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range packages {
		for _, file := range p.Files {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
					found[f.Name.Name] = true
				}
			}
		}
	}

	return found
}
