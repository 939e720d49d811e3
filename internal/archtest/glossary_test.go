package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const glossaryFile = "testdata/glossary.txt"

// TestGlossary compares the glossary in docs/architecture.md with the code. A name may use a word
// that the glossary excludes only if testdata/glossary.txt lists the name; the list only shrinks.
//
//	go test ./internal/archtest -run Glossary -update   # after a rename
func TestGlossary(t *testing.T) {
	t.Parallel()
	root, _ := docs(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	terms, err := glossary(string(page))
	if err != nil {
		t.Fatal(err)
	}
	if len(terms) < 30 {
		t.Errorf("the glossary has %d terms; is its table still readable?", len(terms))
	}
	none(t, checkTermsInUse(ours(t), terms))

	found := forbiddenNames(ours(t), terms)
	if *update {
		writeTolerated(t, found)
		return
	}
	tolerated := readTolerated(t)
	for _, n := range found {
		row := n.pkg + " " + n.name
		if !slices.Contains(tolerated, row) {
			t.Errorf("%s: %s says %q; the glossary in docs/architecture.md says %s", n.at, n.name, n.word, strings.Join(n.instead, " or "))
		}
	}
	for _, row := range tolerated {
		if !slices.ContainsFunc(found, func(n forbiddenName) bool { return n.pkg+" "+n.name == row }) {
			t.Errorf("%s tolerates %q, which no longer exists: run this test with -update", glossaryFile, row)
		}
	}
}

// readTolerated reads the names that may keep an excluded word.
func readTolerated(t *testing.T) (rows []string) {
	t.Helper()
	text, err := os.ReadFile(glossaryFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			rows = append(rows, line)
		}
	}
	return rows
}

// writeTolerated writes the names that use an excluded word now.
func writeTolerated(t *testing.T, found []forbiddenName) {
	t.Helper()
	var rows []string
	for _, n := range found {
		rows = append(rows, n.pkg+" "+n.name)
	}
	slices.Sort(rows)

	text := "# package and exported name that use a word which the glossary in docs/architecture.md excludes\n"
	for _, row := range slices.Compact(rows) {
		text += row + "\n"
	}
	if err := os.WriteFile(glossaryFile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGlossaryChecks(t *testing.T) {
	t.Parallel()
	terms, err := glossary("# Page\n\n## Glossary\n\ntext\n\n| term | meaning | not called |\n|---|---|---|\n" +
		"| dead task | failed finally | letter, dlq |\n| dead letter | refused | |\n| lane | a committer | |\n| ghost | nowhere | |\n\n## Next\n\n| a | b | c |\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []term{{"dead task", []string{"letter", "dlq"}}, {name: "dead letter"}, {name: "lane"}, {name: "ghost"}}
	if diff := cmp.Diff(want, terms, cmp.AllowUnexported(term{})); diff != "" {
		t.Fatal(diff)
	}
	if _, err := glossary("# Page\n"); err == nil {
		t.Error("a page without a glossary has one")
	}

	m := parse(t, map[string]string{
		"a/a.go": "// Package a has a lane.\npackage a\n\n// DeadTask is a name.\ntype DeadTask struct{ Letters, DeadLetters int; letter int }\n\n" +
			"func DLQEntry() {}\n\nfunc (DeadTask) Lettered() {}\n",
		"a/a_test.go": "package a\n\nvar Letter int // a ghost\n",
	})
	if diff := cmp.Diff([]string{`docs/architecture.md: the code does not use the term "ghost" of the glossary`}, checkTermsInUse(m, terms)); diff != "" {
		t.Error(diff)
	}
	var names []string
	for _, n := range forbiddenNames(m, terms) {
		names = append(names, fmt.Sprint(n.name, " ", n.word, " ", n.instead))
	}
	if diff := cmp.Diff([]string{"Letters letters [dead task]", "DLQEntry dlq [dead task]"}, names); diff != "" {
		t.Error(diff)
	}
}
