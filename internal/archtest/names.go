package archtest

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// engineRoom is the directory whose packages should not share type names, so that the name of a
// type of the engine is unique.
const engineRoom = "internal/engine"

// maxSharedNames is how many type names packages below engineRoom may share. There were 22 when
// this was first counted.
const maxSharedNames = 7

// checkSharedNames finds type names that two or more packages below a directory declare outside
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

// typeNames returns the types that a package declares at its top level, outside tests.
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

// participle matches a name that is one bare participle, such as freed or told.
var participle = regexp.MustCompile(`^(?:[a-zA-Z][a-z]*ed|(?i:taken|given|seen|told|heard|held|made|said|lost|sent|gone|begun|known|thrown|drawn|woken))$`)

// notParticiples are names that end like participles and are allowed. The callbacks Taken and
// Changed are named after the event that the engine or the hub reports to them.
var notParticiples = []string{"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed", "Embed", "Feed", "Seed", "Taken", "Changed"}

// checkVerbs finds functions of production code and of the simulator whose name should be a verb:
// they return nothing, and their name is a participle.
func checkVerbs(m *module) (problems []string) {
	for _, p := range m.packages {
		for _, f := range p.files {
			if f.test || f.generated {
				continue
			}
			for _, d := range f.syntax.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if ok && fn.Type.Results == nil && participle.MatchString(fn.Name.Name) && !slices.Contains(notParticiples, fn.Name.Name) {
					problems = append(problems, fmt.Sprintf("%s: the function %s acts: name it by a verb", m.at(fn.Pos()), fn.Name.Name))
				}
			}
		}
	}
	return problems
}
