package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is the parsed source of a Go module, without the modules nested in it.
type module struct {
	path     string // as in go.mod
	fset     *token.FileSet
	packages []*pkg // by directory
}

// pkg is a directory with Go files, including files with build tags.
type pkg struct {
	dir   string // relative to the module; "." is its root
	files []*file
}

// file is a parsed file.
type file struct {
	name      string // relative to the module
	source    []byte
	syntax    *ast.File // as far as it could be parsed
	test      bool      // its name ends in _test.go
	generated bool
}

// load parses the module in a directory.
func load(root string) (*module, error) {
	path, err := modulePath(root)
	if err != nil {
		return nil, err
	}
	m := &module{path: path, fset: token.NewFileSet()}
	packages := map[string]*pkg{}

	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return ignoreVanished(err)
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}

		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			return skipDir(name, rel)
		}
		if !strings.HasSuffix(rel, ".go") || !entry.Type().IsRegular() {
			return nil
		}

		source, err := os.ReadFile(name)
		if err != nil {
			return ignoreVanished(err)
		}

		// The compiler reports syntax errors. The checks use the part that could be parsed.
		syntax, _ := parser.ParseFile(m.fset, rel, source, parser.ParseComments|parser.SkipObjectResolution)
		if syntax == nil {
			return nil
		}
		dir := filepath.ToSlash(filepath.Dir(rel))

		p := packages[dir]
		if p == nil {
			p = &pkg{dir: dir}
			packages[dir] = p
			m.packages = append(m.packages, p)
		}

		p.files = append(p.files, &file{
			name: rel, source: source, syntax: syntax,
			test:      strings.HasSuffix(rel, "_test.go"),
			generated: ast.IsGenerated(syntax),
		})

		return nil
	})

	slices.SortFunc(m.packages, func(a, b *pkg) int { return strings.Compare(a.dir, b.dir) })
	return m, err
}

// skipDir skips directories whose files are not part of the module: hidden and private directories,
// test data, vendored code, and other modules.
func skipDir(name, rel string) error {
	base := filepath.Base(rel)
	switch {
	case rel == ".":
		return nil
	case strings.HasPrefix(base, "."), strings.HasPrefix(base, "_"),
		base == "testdata", base == "vendor", base == "node_modules":
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

// ignoreVanished tolerates files that another process removes while we read the tree.
func ignoreVanished(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// modulePath reads the path of the module from its go.mod.
func modulePath(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.TrimSpace(path), nil
		}
	}
	return "", fmt.Errorf("%s/go.mod has no module line", root)
}

// findRoot returns the directory of the module around a directory.
func findRoot(dir string) (string, error) {
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod in this directory or above")
		}
		dir = parent
	}
}

// imported is an import in a file.
type imported struct {
	path string
	ours string // the directory, if the package belongs to this module
	name string // the name that the file uses for it
	pos  token.Pos
}

// imports lists what a file imports.
func (m *module) imports(f *file) []imported {
	var list []imported
	for _, spec := range f.syntax.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // a syntax error
		}
		i := imported{path: path, pos: spec.Pos(), name: path[strings.LastIndexByte(path, '/')+1:]}
		if spec.Name != nil {
			i.name = spec.Name.Name
		}
		if path == m.path {
			i.ours = "."
		} else if dir, ok := strings.CutPrefix(path, m.path+"/"); ok {
			i.ours = dir
		}
		list = append(list, i)
	}

	return list
}

// at formats a position for people and editors.
func (m *module) at(pos token.Pos) string {
	p := m.fset.Position(pos)
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}
