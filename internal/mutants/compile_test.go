//go:build mutants

package mutants

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestMutantsCompile checks the types of every mutant. A mutant that does not compile proves
// nothing, and `make mutants` would report it only after hours.
func TestMutantsCompile(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	// The types of the imported packages come from the build cache.
	mode := packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps | packages.NeedExportFile | packages.NeedModule
	loaded, err := packages.Load(&packages.Config{Mode: mode, Dir: dir}, "./...")
	if err != nil {
		t.Fatal(err)
	}

	c := &checker{fset: token.NewFileSet(), packages: map[string]*packages.Package{}, files: map[string]*ast.File{}}
	exports := map[string]string{}
	packages.Visit(loaded, nil, func(p *packages.Package) { exports[p.PkgPath] = p.ExportFile })
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, errors.New("no such package")
		}
		return os.Open(exports[path])
	})

	for _, p := range loaded {
		for _, file := range p.CompiledGoFiles {
			c.packages[file] = p
		}
	}
	for i := range list {
		m := &list[i]
		if err := c.check(filepath.Join(dir, m.file), m.patch(t)); err != nil {
			t.Errorf("mutant %q does not compile: %v", m.name, err)
		}
	}
}

// checker checks the types of packages with one changed file.
type checker struct {
	fset     *token.FileSet
	imports  types.Importer
	packages map[string]*packages.Package // by the names of their files
	files    map[string]*ast.File         // parsed files without a change, by name
}

// check checks the package of a file with another text of the file.
func (c *checker) check(file, text string) error {
	p := c.packages[file]
	if p == nil {
		return errors.New("the file is in no package of this system")
	}

	var all []*ast.File
	for _, name := range p.CompiledGoFiles {
		if name == file {
			changed, err := parser.ParseFile(c.fset, name, text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			all = append(all, changed)
			continue
		}
		if c.files[name] == nil {
			f, err := parser.ParseFile(c.fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			c.files[name] = f
		}
		all = append(all, c.files[name])
	}

	check := types.Config{Importer: c.imports}
	_, err := check.Check(p.PkgPath, c.fset, all, nil)
	return err
}
