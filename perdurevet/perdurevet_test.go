package perdurevet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
)

// snippets is the directory of the programs of TestSnippets.
const snippets = "perdurevet/testdata/src/"

// TestSnippets runs the checks over right and wrong programs that use the real package. With a
// stub, the programs would still compile after a change of the real package, although the checks
// look for names that the real package no longer has. The programs include all examples of the
// design, which must have no findings.
//
// A comment in a line has the findings of the line, as regular expressions:
//
//	time.Now() // want `time\.Now in workflow code`
//
// The test runs the command by go vet, which keeps the facts of the five hundred packages that the
// programs import. The package analysistest would read and check them in every run, which takes
// twenty seconds of processor time.
func TestSnippets(t *testing.T) {
	t.Parallel()
	found, wanted := vetted(t), expectations(t)
	for _, at := range slices.Sorted(maps.Keys(found)) {
		for _, message := range found[at] {
			i := slices.IndexFunc(wanted[at], func(want *regexp.Regexp) bool { return want.MatchString(message) })
			if i < 0 {
				t.Errorf("%s: unexpected finding: %s", at, message)
				continue
			}
			wanted[at] = slices.Delete(wanted[at], i, i+1)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(wanted)) {
		for _, want := range wanted[at] {
			t.Errorf("%s: no finding matches %s", at, want)
		}
	}
}

// vetted runs all checks over the snippets, and returns the findings of each line.
func vetted(t *testing.T) map[string][]string {
	t.Helper()
	// `go test` then knows that the result depends on the files of the real package, too.
	if _, err := os.ReadDir(".."); err != nil {
		t.Fatal(err)
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", "-json", "-vettool="+tool(t), "./"+snippets+"...")
	// The root has the go.mod, so that the snippets are packages of this module.
	vet.Dir = ".."
	out, err := vet.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	// A line with a number sign stands in front of the findings of each package.
	var text []byte
	for line := range bytes.Lines(out) {
		if !bytes.HasPrefix(line, []byte("#")) {
			text = append(text, line...)
		}
	}
	found, packages := map[string][]string{}, 0
	for dec := json.NewDecoder(bytes.NewReader(text)); dec.More(); {
		var all map[string]map[string]json.RawMessage
		if err := dec.Decode(&all); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		packages += len(all)
		for pkg, checks := range all {
			for check, list := range checks {
				var diagnostics []struct{ Posn, Message string }
				if err := json.Unmarshal(list, &diagnostics); err != nil {
					t.Fatalf("%s: %s: %s", pkg, check, list)
				}
				for _, d := range diagnostics {
					at := place(t, d.Posn)
					found[at] = append(found[at], d.Message)
				}
			}
		}
	}
	t.Logf("%d packages have findings", packages)
	return found
}

// place returns the file and the line of a position that has a column too.
func place(t *testing.T, position string) string {
	t.Helper()
	_, at, ok := strings.Cut(position, snippets)
	if !ok {
		t.Fatalf("a finding outside the snippets: %s", position)
	}
	return at[:strings.LastIndexByte(at, ':')]
}

// tool returns the path of the command. scripts/test.sh builds it once for several tests and sets
// the directory.
func tool(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("PERDURE_TEST_PROGRAMS"); dir != "" {
		return filepath.Join(dir, "perdurevet")
	}
	file := filepath.Join(t.TempDir(), "perdurevet")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", file, "../cmd/perdurevet").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// expectations returns the findings that the snippets want, for each line.
func expectations(t *testing.T) map[string][]*regexp.Regexp {
	t.Helper()
	wanted := map[string][]*regexp.Regexp{}
	err := filepath.WalkDir("testdata/src", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			at := fmt.Sprintf("%s:%d", strings.TrimPrefix(filepath.ToSlash(path), "testdata/src/"), n)
			wants, err := patterns(line)
			if err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
			if len(wants) > 0 {
				wanted[at] = wants
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(wanted) == 0 {
		t.Fatal("the snippets want no findings")
	}
	return wanted
}

// comment matches the beginning of a comment with findings.
var comment = regexp.MustCompile(`(?://|/\*) want `)

// patterns returns the findings that a line wants.
func patterns(line string) (wants []*regexp.Regexp, err error) {
	begin := comment.FindStringIndex(line)
	if begin == nil {
		return nil, nil
	}
	for rest := strings.TrimSpace(line[begin[1]:]); rest != "" && !strings.HasPrefix(rest, "*/"); rest = strings.TrimSpace(rest) {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, rest)
		}
		pattern, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, quoted)
		}
		want, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}
		wants, rest = append(wants, want), rest[len(quoted):]
	}
	return wants, nil
}

// TestDocumented checks that every check has a row in the documentation. Findings link to the
// documentation.
func TestDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/vet.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if row := fmt.Sprintf("| <a id=%q></a>`%s` |", c.name, c.name); !strings.Contains(string(page), row) {
			t.Errorf("docs/vet.md has no row %s", row)
		}
	}
	if err := analysis.Validate(Analyzers()); err != nil {
		t.Error(err)
	}
}
