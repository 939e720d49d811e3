package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// checkExamples finds exported types of a package that no example uses and that are not in
// withoutExample. It also finds entries of withoutExample that are no longer needed. The values of
// that map are reasons.
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
