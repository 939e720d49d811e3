package archtest_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// defaultTenantRooms are the packages that may name the default tenant: packages that open a node
// for one program or one operator, and packages for tests. All other code gets its tenant from its
// caller, so that a request of one tenant never works on another tenant by accident.
var defaultTenantRooms = []string{"embedded", "perduretest", "internal/cli", "internal/crash", "internal/model", "internal/sim", "internal/sim/scenario", "internal/store/storetest", "internal/bench", "bench", "bench/cluster", "bench/distance", "bench/owner"}

func TestDefaultTenantIsNamedWhereANodeIsOpened(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	files := 0
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}

		files++
		src, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		if slices.Contains(defaultTenantRooms, filepath.Dir(path)) {
			return nil
		}
		for _, line := range namesDefaultTenant(t, path, src) {
			t.Errorf("%s:%d names the default tenant: take the tenant from the caller", path, line)
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("read %d files, want at least 100: %v", files, err)
	}
}

// namesDefaultTenant returns the lines that name model.DefaultTenant.
func namesDefaultTenant(t *testing.T, path string, src []byte) (lines []int) {
	t.Helper()
	if !bytes.Contains(src, []byte("DefaultTenant")) {
		return nil // most files: they need not be parsed
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "DefaultTenant" {
			lines = append(lines, set.Position(s.Pos()).Line)
		}
		return true
	})
	return lines
}

func TestNamesDefaultTenant(t *testing.T) {
	t.Parallel()
	src := "package x\n\nvar a = model.Address{\n\tTenant: model.DefaultTenant,\n}\n// model.DefaultTenant\n"
	if got := namesDefaultTenant(t, "x.go", []byte(src)); !slices.Equal(got, []int{4}) {
		t.Errorf("lines %v, want 4", got)
	}
}
