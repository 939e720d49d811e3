package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// engineRoom is the directory whose packages should not share type names: a reader who meets a type
// of the engine should know which one it is.
const engineRoom = "internal/engine"

// maxSharedNames is how many type names packages below engineRoom may share. There were 22 when
// this was first counted.
const maxSharedNames = 7

// checkSharedNames finds type names that two or more packages below a directory declare outside of
// tests, if there are more of them than allowed.
func checkSharedNames(m *module, dir string, most int) (problems []string) {
	where := map[string][]string{}
	for _, p := range m.packages {
		if p.dir != dir && !strings.HasPrefix(p.dir, dir+"/") {
			continue
		}
		for _, name := range typeNames(p) {
			where[name] = append(where[name], p.dir)
		}
	}

	for name, dirs := range where {
		if len(dirs) > 1 {
			slices.Sort(dirs)
			problems = append(problems, fmt.Sprintf("type %s is declared in %s", name, strings.Join(dirs, ", ")))
		}
	}
	if len(problems) <= most {
		return nil
	}

	slices.Sort(problems)
	return append(problems, fmt.Sprintf("%s: packages share %d type names, at most %d are allowed: rename one of each pair", dir, len(problems), most))
}

// typeNames returns the types that a package declares at its top level, outside of tests.
func typeNames(p *pkg) (names []string) {
	for _, f := range p.files {
		if f.test || f.generated {
			continue
		}
		for _, d := range f.syntax.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				if t, ok := s.(*ast.TypeSpec); ok {
					names = append(names, t.Name.Name)
				}
			}
		}
	}

	slices.Sort(names)
	return slices.Compact(names)
}
