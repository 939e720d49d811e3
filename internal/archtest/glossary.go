package archtest

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// term is a row of the glossary in docs/architecture.md.
type term struct {
	name      string
	notCalled []string // words that exported names must not use for the same idea
}

// glossary reads the table below the heading "Glossary" of a page.
func glossary(text string) (terms []term, err error) {
	_, section, found := strings.Cut(text, "\n## Glossary\n")
	if !found {
		return nil, fmt.Errorf("the page has no heading %q", "## Glossary")
	}
	section, _, _ = strings.Cut(section, "\n## ")

	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "-") || strings.TrimSpace(cells[1]) == "term" {
			continue
		}
		t := term{name: strings.TrimSpace(cells[1])}
		for word := range strings.SplitSeq(cells[3], ",") {
			if word = strings.TrimSpace(word); word != "" {
				t.notCalled = append(t.notCalled, word)
			}
		}
		terms = append(terms, t)
	}
	return terms, nil
}

// checkTermsInUse finds terms of the glossary that neither a name nor a comment of production code
// contains.
func checkTermsInUse(m *module, terms []term) (problems []string) {
	unused := slices.Clone(terms)
	for _, p := range m.packages {
		for _, f := range p.files {
			if f.test {
				continue
			}
			text := wordsOf(f)
			unused = slices.DeleteFunc(unused, func(t term) bool { return strings.Contains(text, " "+t.name) })
		}
	}

	for _, t := range unused {
		problems = append(problems, fmt.Sprintf("docs/architecture.md: the code does not use the term %q of the glossary", t.name))
	}
	return problems
}

// wordsOf returns the words of all names and comments of a file in lower case, with one blank
// before each word. It lists each name once.
func wordsOf(f *file) string {
	var text strings.Builder
	seen := map[string]bool{}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !seen[id.Name] {
			seen[id.Name] = true
			text.WriteString(" " + strings.Join(words(id.Name), " "))
		}
		return true
	})
	for _, group := range f.syntax.Comments {
		text.WriteString(" " + strings.Join(strings.Fields(strings.ToLower(group.Text())), " "))
	}
	return text.String()
}

// forbiddenName is an exported name that uses a word of the last column of the glossary.
type forbiddenName struct {
	pkg, name string
	word      string
	instead   []string // the terms to use instead of the word
	at        string
}

// forbiddenNames finds exported names of production code that contain a word of the last column of
// the glossary.
func forbiddenNames(m *module, terms []term) (found []forbiddenName) {
	instead := map[string][]string{}
	for _, t := range terms {
		for _, word := range t.notCalled {
			instead[word] = append(instead[word], t.name)
		}
	}

	for _, p := range m.packages {
		for _, f := range p.files {
			if f.test || f.generated {
				continue
			}
			for _, id := range exportedNames(f.syntax) {
				for _, word := range wordsBesideTerms(id.Name, terms) {
					if better := instead[strings.TrimSuffix(word, "s")]; better != nil {
						found = append(found, forbiddenName{p.dir, id.Name, word, better, m.at(id.Pos())})
					}
				}
			}
		}
	}
	return found
}

// wordsBesideTerms returns the words of a name that are not part of a term of several words. For
// example, DeadLetter contains the term "dead letter", so its word "letter" is allowed.
func wordsBesideTerms(name string, terms []term) []string {
	text := strings.Join(words(name), " ")
	for _, t := range terms {
		if strings.Contains(t.name, " ") {
			text = strings.ReplaceAll(text, t.name, "")
		}
	}
	return strings.Fields(text)
}

// exportedNames returns the exported names that a file declares: functions, methods, types,
// constants, variables, fields of structs and methods of interfaces.
func exportedNames(f *ast.File) (names []*ast.Ident) {
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				names = append(names, id)
			}
		}
	}

	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					add(spec.Names...)
				case *ast.TypeSpec:
					add(spec.Name)
					ast.Inspect(spec.Type, func(n ast.Node) bool {
						if field, ok := n.(*ast.Field); ok {
							add(field.Names...)
						}
						return true
					})
				}
			}
		}
	}
	return names
}

// wordStart matches the place between two words of a name: deadTask, DLQEntry, run_id.
var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])|_`)

// words splits a name into its words, in lower case.
func words(name string) []string {
	return strings.Fields(strings.ToLower(wordStart.ReplaceAllString(name, "$1$3 $2$4")))
}
