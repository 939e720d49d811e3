package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// conformance is the package of the test cases that every store runs, and adapters are the stores.
const conformance = "internal/store/storetest"

var adapters = []string{"internal/store/memory", "internal/store/sqlite", "internal/store/postgres"}

// onStores are the packages whose tests run programs on real stores.
var onStores = []string{"internal/e2e", "internal/chaos", "internal/txtest", conformance}

// tested has the tests and all texts of a package.
type tested struct {
	tests map[string]bool
	texts []string
}

// textsBelow returns the texts of a package and of the packages below it, because the checks of the
// simulator are not in the package of its tests.
func textsBelow(found map[string]tested, dir string) (texts []string) {
	for d, p := range found {
		if d == dir || strings.HasPrefix(d, dir+"/") {
			texts = append(texts, p.texts...)
		}
	}
	return texts
}

// invariantNames returns names of invariants: a letter with each number of a range, such as E1 to
// E47.
func invariantNames(letter string, from, to int) (names []string) {
	for n := from; n <= to; n++ {
		names = append(names, fmt.Sprint(letter, n))
	}
	return names
}

// checkInvariants compares the table of invariants (testdata/invariants.txt) with the existing
// tests. The table must have each of the names once, in order. Each invariant must have a test of
// the core or of a state machine, and a test on all stores. If it lacks one of the two, the table
// must say why. Every test that the table names must exist.
func checkInvariants(m *module, table string, names []string) (problems []string) {
	found := map[string]tested{}
	for _, p := range m.packages {
		found[p.dir] = p.findTests()
	}
	wrong := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("invariants.txt:%d: ", line+1)+fmt.Sprintf(format, args...))
	}
	number, at := 0, 0
	current := func() string { return append(names, "nothing")[min(number-1, len(names))] }
	var machine, store, any bool

	end := func() {
		switch {
		case number == 0:
		case !any:
			wrong(at, "%s has no test", current())
		case !machine || !store:
			wrong(at, "%s needs a test of the core or a machine, and one on all stores, or lines that say why not (no machine:, no store:)", current())
		}
	}
	for i, line := range strings.Split(table, "\n") {
		text := strings.TrimSpace(line)
		switch {
		case text == "" || strings.HasPrefix(text, "#"):
			continue
		case !strings.HasPrefix(line, " "):
			end()
			name, says, _ := strings.Cut(text, " ")
			if number, at = number+1, i; name != current() || says == "" {
				wrong(i, "%q stands where %s and what it says belong", text, current())
			}
			machine, store, any = false, false, false
			continue
		case number == 0:
			wrong(i, "%q belongs to no invariant", text)
			continue
		}

		where, what, _ := strings.Cut(text, " ")
		switch why := strings.TrimSpace(text[strings.Index(text, ":")+1:]); {
		case strings.HasPrefix(text, "no machine:") && why != "":
			machine = true
			continue
		case strings.HasPrefix(text, "no store:") && why != "":
			store = true
			continue
		case strings.HasPrefix(text, "later:") && why != "":
			machine, store, any = true, true, true
			continue
		}

		any = true
		if where == "stores:" {
			store = true
			if !slices.Contains(found[conformance].texts, what) {
				wrong(i, "%s has no case %q", conformance, what)
			}
			for _, a := range adapters {
				if !found[a].tests["TestConformance"] {
					wrong(i, "%s does not run the conformance suite", a)
				}
			}
			continue
		}

		if slices.Contains(onStores, where) {
			store = true
		} else {
			machine = true
		}

		name, says, cased := strings.Cut(what, "/")
		p := found[where]
		if !p.tests[name] {
			wrong(i, "package %s has no %s", where, name)
		}
		if cased && !slices.ContainsFunc(textsBelow(found, where), func(t string) bool { return t == says || strings.HasPrefix(t, says) && strings.HasSuffix(says, ":") }) {
			wrong(i, "package %s has no text %q", where, says)
		}
	}

	end()
	if number < len(names) {
		wrong(at, "%s is missing", names[number])
	}
	return problems
}

// findTests finds the tests and the texts of a package.
func (p *pkg) findTests() tested {
	t := tested{tests: map[string]bool{}}
	for _, f := range p.files {
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.test && fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
				t.tests[fn.Name.Name] = true
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					t.texts = append(t.texts, text)
				}
			}
			return true
		})
	}

	return t
}
