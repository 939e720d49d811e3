package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// maxLines is the largest number of lines of a file. A longer file is about more than one thing.
const maxLines = 800

// Package lane has many ideas. A lower limit for its files keeps each idea in a file of its own.
// Its tests may reach maxLines.
const (
	laneDir      = "internal/engine/lane"
	maxLaneLines = 500
)

// checkRooms finds packages without a row in the table of rooms, and imports that the table does
// not allow.
func checkRooms(m *module, rooms []room) (problems []string) {
	for _, p := range m.packages {
		r, found := roomOf(rooms, p.dir)
		if !found {
			problems = append(problems, fmt.Sprintf("%s: this package has no row in the table of rooms: "+
				"add one to internal/archtest/rooms.go, and the room to docs/architecture.md", p.dir))
			continue
		}

		for _, f := range p.files {
			if f.test {
				continue
			}
			for _, i := range m.imports(f) {
				if i.ours != "" && i.ours != p.dir && !r.allows(i.ours) {
					problems = append(problems, fmt.Sprintf("%s: %s must not import %s (the table is internal/archtest/rooms.go)", m.at(i.pos), p.dir, i.ours))
				}
			}
		}
	}

	return problems
}

// checkTesting finds production code that imports package testing or a package below it.
func checkTesting(m *module, rooms []room) (problems []string) {
	for _, p := range m.packages {
		if r, _ := roomOf(rooms, p.dir); r.testing {
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			for _, i := range m.imports(f) {
				if matches("testing/...", i.path) {
					problems = append(problems, fmt.Sprintf("%s: production code must not import %s", m.at(i.pos), i.path))
				}
			}
		}
	}

	return problems
}

// checkPackageDocs finds packages without a doc comment.
func checkPackageDocs(m *module) (problems []string) {
	for _, p := range m.packages {
		documented := false
		name := ""
		for _, f := range p.files {
			if !f.test || name == "" {
				name = f.syntax.Name.Name
			}
			doc := f.syntax.Doc.Text()
			// The comment of a program may have any form ("Command perdure …"). The comment of a
			// library has the form that godoc expects.
			documented = documented || f.syntax.Name.Name == "main" && doc != "" || strings.HasPrefix(doc, "Package "+f.syntax.Name.Name+" ")
		}
		if !documented {
			problems = append(problems, fmt.Sprintf("%s: no file has a doc comment \"Package %s …\" that says what it is, promises, and does not do", p.dir, name))
		}
	}

	return problems
}

// checkLengths finds files that are too long.
func checkLengths(m *module) (problems []string) {
	for _, p := range m.packages {
		for _, f := range p.files {
			most := maxLines
			if p.dir == laneDir && !f.test {
				most = maxLaneLines
			}
			if lines := bytes.Count(f.source, []byte("\n")); lines > most && !f.generated {
				problems = append(problems, fmt.Sprintf("%s: %d lines; at most %d: which idea could live in a file of its own?", f.name, lines, most))
			}
		}
	}
	return problems
}

// unfinished matches words that mark unfinished work. The words are split so that this file passes
// the check.
var (
	unfinishedWords = [][]byte{[]byte("TO" + "DO"), []byte("FIX" + "ME")}
	unfinished      = regexp.MustCompile(`\b(` + string(bytes.Join(unfinishedWords, []byte("|"))) + `)\b`)
)

// checkUnfinished finds words that mark unfinished work, anywhere in a file.
func checkUnfinished(m *module) (problems []string) {
	for _, p := range m.packages {
		for _, f := range p.files {
			contains := func(word []byte) bool { return bytes.Contains(f.source, word) }
			if f.generated || !slices.ContainsFunc(unfinishedWords, contains) {
				continue
			}
			n := 0
			for line := range bytes.Lines(f.source) {
				n++
				if word := unfinished.Find(line); word != nil {
					problems = append(problems, fmt.Sprintf("%s:%d: %s: finish it, or write down in an issue what is missing", f.name, n, word))
				}
			}
		}
	}
	return problems
}

// impureImports are patterns of packages that have side effects, block, or do not always return the
// same result.
var impureImports = []string{
	"crypto/rand", "database/...", "embed", "io/fs", "log/...", "math/rand/...", "net/...", "os/...", "plugin", "runtime/...",
	"sync/...", "syscall/...", "unsafe",
}

// impureTime are the functions of package time that read the clock or wait. A pure package may use
// the types and the arithmetic of package time.
var impureTime = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// checkPurity finds what pure packages must not have: certain imports, goroutines, channels, select
// statements and uses of the clock.
func checkPurity(m *module, pure []string) (problems []string) {
	for _, p := range m.packages {
		if !matchesAny(pure, p.dir) {
			continue
		}

		for _, f := range p.files {
			if f.test {
				continue
			}
			complain := func(pos token.Pos, format string, args ...any) {
				problems = append(problems, m.at(pos)+": "+p.dir+" is pure: "+fmt.Sprintf(format, args...))
			}

			clock := ""
			for _, i := range m.imports(f) {
				switch {
				case matchesAny(impureImports, i.path):
					complain(i.pos, "no %s", i.path)
				case i.ours == "" && strings.Contains(strings.Split(i.path, "/")[0], ".") && !slices.Contains(pureThirdParty, i.path):
					complain(i.pos, "no %s, unless it computes and nothing else and is listed in rooms.go", i.path)
				case i.path == "time" && i.name == ".":
					complain(i.pos, "package time must be imported by name")
				case i.path == "time":
					clock = i.name
				}
			}

			ast.Inspect(f.syntax, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					complain(n.Pos(), "no goroutines")
				case *ast.SelectStmt:
					complain(n.Pos(), "no select")
				case *ast.ChanType:
					complain(n.Pos(), "no channels")
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && clock != "" && x.Name == clock && slices.Contains(impureTime, n.Sel.Name) {
						complain(n.Pos(), "no time.%s: time is an input", n.Sel.Name)
					}
				}
				return true
			})
		}
	}

	return problems
}

// selfExplaining are methods whose meaning the standard library defines. They need no comment.
var selfExplaining = []string{"Error", "String", "Unwrap"}

// checkExportedDocs finds exported identifiers without a doc comment: types, functions, constants,
// variables, and methods of exported types and interfaces. It ignores fields, tests and generated
// code.
func checkExportedDocs(m *module) (problems []string) {
	for _, p := range m.packages {
		for _, f := range p.files {
			if f.test || f.generated {
				continue
			}
			for _, decl := range f.syntax.Decls {
				for _, name := range listUndocumented(decl) {
					problems = append(problems, fmt.Sprintf("%s: exported %s has no doc comment", m.at(name.pos), name.text))
				}
			}
		}
	}
	return problems
}

// named is an identifier and where it is.
type named struct {
	text string
	pos  token.Pos
}

// listUndocumented lists the exported identifiers of a declaration that have no comment.
func listUndocumented(decl ast.Decl) (list []named) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		receiver := ""
		if d.Recv != nil {
			receiver = receiverName(d) + "."
			if !ast.IsExported(receiver) || slices.Contains(selfExplaining, d.Name.Name) {
				return nil
			}
		}
		if d.Name.IsExported() && d.Doc.Text() == "" {
			list = append(list, named{receiver + d.Name.Name, d.Name.Pos()})
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if !s.Name.IsExported() {
					continue
				}
				// The comment of a group of types does not describe any single type.
				if s.Doc.Text() == "" && s.Comment.Text() == "" && (d.Lparen.IsValid() || d.Doc.Text() == "") {
					list = append(list, named{s.Name.Name, s.Name.Pos()})
				}
				if i, ok := s.Type.(*ast.InterfaceType); ok {
					list = append(list, undocumentedMethods(s.Name.Name, i)...)
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() && d.Doc.Text() == "" && s.Doc.Text() == "" && s.Comment.Text() == "" {
						list = append(list, named{name.Name, name.Pos()})
					}
				}
			}
		}
	}

	return list
}

// undocumentedMethods lists the exported methods of an interface that have no comment.
func undocumentedMethods(name string, i *ast.InterfaceType) (list []named) {
	for _, method := range i.Methods.List {
		if len(method.Names) == 0 || method.Doc.Text() != "" || method.Comment.Text() != "" {
			continue // embedded, or documented
		}
		for _, ident := range method.Names {
			if ident.IsExported() && !slices.Contains(selfExplaining, ident.Name) {
				list = append(list, named{name + "." + ident.Name, ident.Pos()})
			}
		}
	}
	return list
}

// receiverName returns the name of the type that a method belongs to.
func receiverName(d *ast.FuncDecl) string {
	if len(d.Recv.List) == 0 {
		return ""
	}

	for t := d.Recv.List[0].Type; ; {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.ParenExpr:
			t = x.X
		case *ast.IndexExpr: // one type parameter
			t = x.X
		case *ast.IndexListExpr: // several
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
