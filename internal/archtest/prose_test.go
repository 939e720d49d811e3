package archtest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// allowed is what a package or a page may have of each problem. Rows only ever shrink: see
// testdata/prose.txt.
type allowed struct {
	name                        string
	wide, banned, dense, params int
}

// TestProse measures comments, Markdown and the shape of functions. A package without a row in
// testdata/prose.txt keeps the rules: no wide line, at most three banned sentences in a hundred, no
// long body without a paragraph, no function with more than four parameters.
//
//	go test ./internal/archtest -run Prose -update   # after a row has shrunk
//	PROSE=internal/engine/lane go test ./internal/archtest -run Prose -v   # list its problems
func TestProse(t *testing.T) {
	t.Parallel()
	tallies := map[string]tally{}
	m := ours(t)
	for _, p := range m.packages {
		tallies[p.dir] = tallyPackage(m, p)
	}
	root, pages := docs(t)
	for _, name := range []string{"CHANGELOG.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, page{name: name, text: string(text)})
	}
	for _, p := range pages {
		if p.name != "docs/prose.md" { // shows what not to write
			tallies[p.name] = tallyMarkdown(p.name, p.text)
		}
	}

	for name, mark := range scripts(t, root) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		tallies[name] = tallyScript(name, string(text), mark)
	}

	if name := os.Getenv("PROSE"); name != "" {
		got := tallies[name]
		t.Logf("%s: %d wide, %d banned of %d sentences, %d dense, %d parameters\n%s",
			name, got.wide, got.banned, got.sentences, got.dense, got.params, strings.Join(got.problems, "\n"))
	}
	if *update {
		writeAllowed(t, tallies)
		return
	}
	for _, row := range readAllowed(t) {
		if _, found := tallies[row.name]; !found {
			t.Errorf("testdata/prose.txt has a row for %s, which does not exist", row.name)
		}
	}
	for name, got := range tallies {
		judge(t, name, got)
	}
}

// scripts returns the files of this module that are neither Go nor Markdown and have comments, and
// the mark that begins a comment in each.
func scripts(t *testing.T, root string) map[string]string {
	t.Helper()
	marks := map[string]string{}
	for pattern, mark := range map[string]string{
		"Makefile": "#", ".golangci.yml": "#", "scripts/*.sh": "#", ".ci/run": "#", "internal/core/testdata/*.txt": "#",
		"internal/archtest/testdata/invariants.txt": "#", "proto/*/v1/*.proto": "//", "internal/store/*/migrations/*.sql": "--",
		"deploy/*Dockerfile": "#", "deploy/*.yaml": "#", "deploy/*/*.yaml": "#", "deploy/*.service": "#",
	} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			rel, err := filepath.Rel(root, name)
			if err != nil {
				t.Fatal(err)
			}
			marks[filepath.ToSlash(rel)] = mark
		}
	}
	return marks
}

// judge compares a package with its row.
func judge(t *testing.T, name string, got tally) {
	t.Helper()
	may := allowed{name: name}
	for _, row := range readAllowed(t) {
		if row.name == name {
			may = row
		}
	}

	if tolerated := got.sentences * bannedPercent / 100; got.banned <= tolerated {
		got.banned = 0
	}

	for _, c := range []struct {
		what     string
		got, may int
	}{
		{"lines wider than 100 columns", got.wide, may.wide},
		{"sentences with banned words, which is more than 3 %", got.banned, may.banned},
		{"long functions without a blank line", got.dense, may.dense},
		{"functions with more than four parameters", got.params, may.params},
	} {
		if c.got > c.may {
			t.Errorf("%s: %d %s; %d were tolerated. PROSE=%s go test ./internal/archtest -run Prose -v lists them", name, c.got, c.what, c.may, name)
		}
	}
}

const allowedFile = "testdata/prose.txt"

// readAllowed reads the rows.
func readAllowed(t *testing.T) (rows []allowed) {
	t.Helper()
	text, err := os.ReadFile(allowedFile)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var r allowed
		if _, err := fmt.Sscanf(line, "%s %d %d %d %d", &r.name, &r.wide, &r.banned, &r.dense, &r.params); err != nil {
			t.Fatalf("%s: %q: %v", allowedFile, line, err)
		}
		rows = append(rows, r)
	}

	return rows
}

// writeAllowed writes what is wrong today.
func writeAllowed(t *testing.T, tallies map[string]tally) {
	t.Helper()
	rows := []allowed{}
	for name, got := range tallies {
		if got.banned <= got.sentences*bannedPercent/100 {
			got.banned = 0
		}
		if got.wide+got.banned+got.dense+got.params > 0 {
			rows = append(rows, allowed{name, got.wide, got.banned, got.dense, got.params})
		}
	}

	slices.SortFunc(rows, func(a, b allowed) int { return cmp.Compare(a.name, b.name) })
	var text strings.Builder
	text.WriteString("# package or page, wide lines, banned sentences, dense functions, functions with too many parameters\n")
	for _, r := range rows {
		fmt.Fprintln(&text, r.name, r.wide, r.banned, r.dense, r.params)
	}
	if err := os.WriteFile(allowedFile, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
