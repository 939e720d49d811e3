package archtest

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path"
	"reflect"
	"slices"
	"strings"
)

// surface renders what a package exports: every exported declaration, without comments, function
// bodies, unexported fields and values of variables, in an order that does not depend on files. ok
// is false when a file of the package cannot be parsed at the moment.
func surface(p *pkg) (text string, ok bool) {
	var decls []declaration
	for _, f := range p.files {
		if f.test {
			continue
		}
		// Parse the file again, because the code below changes the tree. Skip comments, because the
		// surface has none.
		syntax, err := parser.ParseFile(token.NewFileSet(), f.name, f.source, parser.SkipObjectResolution)
		if err != nil {
			return "", false
		}
		ast.FileExports(syntax)
		for _, decl := range syntax.Decls {
			decls = append(decls, exportedDeclarations(decl)...)
		}
	}

	slices.SortFunc(decls, func(a, b declaration) int {
		return cmp.Or(cmp.Compare(a.order, b.order), strings.Compare(a.name, b.name), strings.Compare(a.text, b.text))
	})

	// Files for different systems may have the same declarations.
	decls = slices.Compact(decls)
	var out strings.Builder
	for _, d := range decls {
		out.WriteString(d.text + "\n")
	}

	return out.String(), true
}

// surfaceFile returns the name of the file that holds the surface of a package.
func surfaceFile(m *module, p *pkg) string {
	name := p.dir
	if name == "." {
		name = path.Base(m.path)
	}
	return strings.ReplaceAll(name, "/", "_") + ".txt"
}

// declaration is one rendered declaration.
type declaration struct {
	order int // constants, variables, functions, types with their methods
	name  string
	text  string
}

// exportedDeclarations renders the exported parts of a declaration. ast.FileExports has removed all
// other parts, except methods of unexported types.
func exportedDeclarations(decl ast.Decl) []declaration {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		d.Body = nil
		if d.Recv == nil {
			return []declaration{{2, d.Name.Name, render(d)}}
		}
		receiver := receiverName(d)
		if !ast.IsExported(receiver) {
			return nil
		}
		if names := d.Recv.List[0].Names; len(names) > 0 {
			names[0].Name = "_" // the name of a receiver is not part of the surface
		}
		return []declaration{{3, receiver + "." + d.Name.Name, render(d)}}
	case *ast.GenDecl:
		if d.Tok == token.CONST && len(d.Specs) > 0 { // a group may use iota, so it stays together
			return []declaration{{0, d.Specs[0].(*ast.ValueSpec).Names[0].Name, render(d)}}
		}
		var list []declaration
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					one := &ast.GenDecl{Tok: token.VAR, Specs: []ast.Spec{&ast.ValueSpec{Names: []*ast.Ident{name}, Type: s.Type}}}
					list = append(list, declaration{1, name.Name, render(one)})
				}
			case *ast.TypeSpec:
				list = append(list, declaration{3, s.Name.Name, render(&ast.GenDecl{Tok: token.TYPE, Specs: []ast.Spec{s}})})
			}
		}
		return list
	default:
		return nil
	}
}

// render prints a declaration without its line breaks, so that reformatting the source does not
// change the surface.
func render(decl ast.Decl) string {
	ast.Inspect(decl, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		if s, ok := n.(*ast.StructType); ok {
			// unexported fields are not part of the surface; unexported methods seal an interface
			s.Incomplete = false
		}
		forget(n)
		return true
	})

	var out bytes.Buffer
	config := printer.Config{Mode: printer.UseSpaces | printer.TabIndent, Tabwidth: 8}
	if err := config.Fprint(&out, token.NewFileSet(), decl); err != nil {
		return "cannot print: " + err.Error()
	}

	return strings.TrimSpace(out.String())
}

// forget removes the positions from a node, except positions that change the printed text, such as
// the position of "=" in an alias.
func forget(n ast.Node) {
	keep := ""
	switch n.(type) {
	case *ast.TypeSpec:
		keep = "Assign" // an alias
	case *ast.CallExpr:
		keep = "Ellipsis"
	}
	value := reflect.ValueOf(n).Elem()
	for i := range value.NumField() {
		if field := value.Type().Field(i); field.Type == reflect.TypeFor[token.Pos]() && field.Name != keep {
			value.Field(i).SetInt(0)
		}
	}
}

// countTypes returns the number of exported types of a package.
func countTypes(p *pkg) int {
	names := map[string]bool{}
	for _, f := range p.files {
		if f.test {
			continue
		}
		for _, decl := range f.syntax.Decls {
			if d, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
						names[s.Name.Name] = true
					}
				}
			}
		}
	}

	return len(names)
}
