package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// checkExamples finds exported types of a package that no example shows and that are not listed,
// with a reason, as not needing one; and entries of that list that are no longer needed.
func checkExamples(p *pkg, withoutExample map[string]string) (problems []string) {
	types, shown := map[string]bool{}, map[string]bool{}
	for _, f := range p.files {
		for _, decl := range f.syntax.Decls {
			switch d := decl.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if t, ok := spec.(*ast.TypeSpec); ok && !f.test && t.Name.IsExported() {
						types[t.Name.Name] = true
					}
				}
			case *ast.FuncDecl:
				if name, ok := strings.CutPrefix(d.Name.Name, "Example"); ok && f.test && d.Recv == nil {
					name, _, _ = strings.Cut(name, "_")
					shown[name] = true
				}
			}
		}
	}

	for name := range types {
		if !shown[name] && withoutExample[name] == "" {
			problems = append(problems, fmt.Sprintf("type %s has no example: write Example%s with its output in an example_*_test.go, "+
				"or say in internal/archtest/examples_test.go why it needs none", name, name))
		}
	}

	for name := range withoutExample {
		switch {
		case !types[name]:
			problems = append(problems, fmt.Sprintf("type %s is listed as not needing an example, and does not exist", name))
		case shown[name]:
			problems = append(problems, fmt.Sprintf("type %s is listed as not needing an example, and has one", name))
		}
	}

	slices.Sort(problems)
	return problems
}
