package archtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"testing"
)

// guides are pages that may be written later than other pages. Until a guide exists, links to it
// may lead nowhere.
var guides = []string{
	"docs/activities.md", "docs/histories.md", "docs/keys.md", "docs/machines.md", "docs/operating.md", "docs/payloads.md", "docs/testing.md",
	"docs/transactions.md",
}

// free are the pages that may have code that is not a quotation; vet.md, for example, shows
// mistakes.
var free = append([]string{"docs/vet.md", "docs/architecture.md"}, guides...)

// docs returns the root of this module and its documents.
func docs(t *testing.T) (string, []page) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root, err := findRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := readPages(root)
	if err != nil {
		t.Fatal(err)
	}
	return root, pages
}

func TestCodeInDocsIsRunSomewhere(t *testing.T) {
	t.Parallel()
	_, pages := docs(t)
	none(t, checkQuotations(pages, sources(ours(t)), free))
}

func TestLinksInDocs(t *testing.T) {
	t.Parallel()
	root, pages := docs(t)
	for _, name := range []string{"CHANGELOG.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, page{name: name, text: string(text)})
	}

	none(t, checkLinks(root, pages, guides))
	none(t, checkAnchors(pages))
}

func TestFilesInArchitecture(t *testing.T) {
	t.Parallel()
	_, pages := docs(t)
	i := slices.IndexFunc(pages, func(p page) bool { return p.name == "docs/architecture.md" })
	none(t, checkFiles(pages[i], ours(t)))
}

// TestProgramsInDocsCompile compiles all whole programs in documents in one run, as packages of
// this module. The go command reads their files from another directory.
func TestProgramsInDocsCompile(t *testing.T) {
	t.Parallel()
	root, pages := docs(t)
	scratch := t.TempDir()
	replace, where := map[string]string{}, map[string]string{}
	for _, p := range pages {
		for _, b := range p.blocks {
			if !b.program() {
				continue
			}
			name := fmt.Sprintf("in_docs_%d", len(replace))
			file := filepath.Join(scratch, name+".go")
			if err := os.WriteFile(file, []byte(b.code), 0o600); err != nil {
				t.Fatal(err)
			}
			replace[filepath.Join(root, "examples", name, "main.go")] = file
			where[name] = fmt.Sprintf("%s:%d", p.name, b.line)
		}
	}

	if len(replace) == 0 {
		t.Fatal("not even README.md has a program")
	}
	overlay := filepath.Join(scratch, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}

	// -export compiles the packages, and links none of them.
	list := exec.CommandContext(t.Context(), "go", "list", "-e", "-export", "-overlay", overlay, "-json=ImportPath,Error", "./examples/in_docs_...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); seen++ {
		var p struct {
			ImportPath string
			Error      *struct{ Err string }
		}
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if p.Error != nil {
			t.Errorf("the program at %s does not compile: %s", where[path.Base(p.ImportPath)], p.Error.Err)
		}
	}

	if seen != len(replace) {
		t.Errorf("%d of %d programs were seen", seen, len(replace))
	}
}

func TestCheckQuotations(t *testing.T) {
	t.Parallel()
	m := parse(t, map[string]string{
		"examples/a/main.go": "package main\n\nfunc main() {\n\tone()\n\n\ttwo()\n\tthree() // last\n}\n",
		"example_b_test.go":  "package m\n\nfunc four() {}\n",
		"other.go":           "package m\n\nfunc five() {}\n",
	})

	md := func(code string) page {
		return page{name: "docs/p.md", blocks: goBlocks("text\n```go\n" + code + "\n```\nmore\n```\nnot go\n```\n")}
	}

	wrong := func(code string, free ...string) bool {
		return len(checkQuotations([]page{md(code)}, sources(m), free)) > 0
	}
	for code, want := range map[string]bool{
		"one()\ntwo()":                     false,
		"\tone()\n// …\n\tthree() // last": false,
		"func four() {}":                   false,
		"package main\nanything":           false, // TestProgramsInDocsCompile checks it
		"one()\nthree() // last":           true,
		"three()":                          true,
		"one()\n// …\nfour()":              true, // the parts are from two files
		"func five() {}":                   true, // no example has it
		"ne()":                             true,
	} {
		if got := wrong(code); got != want {
			t.Errorf("%q: wrong is %v, want %v", code, got, want)
		}
	}

	for code, want := range map[string]bool{"x := 1\nf(x)": false, "func f() {}": false, "f(…": false, "f((": true} {
		if got := wrong(code, "docs/p.md"); got != want {
			t.Errorf("free %q: wrong is %v, want %v", code, got, want)
		}
	}
}

func TestCheckLinks(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "there.md"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := page{name: "docs/p.md", text: "[a](../there.md#x) [b](https://example.com/none) [c](gone.md) [d](soon.md) [e](#here) `f[T](x)`\n```go\ng[T](y)\n```\n"}
	got := checkLinks(root, []page{p}, []string{"docs/soon.md"})
	if want := []string{"docs/p.md: the link to gone.md leads nowhere"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCheckAnchors(t *testing.T) {
	t.Parallel()
	pages := []page{
		{name: "docs/a.md", text: "# Start, and `end`\n[a](b.md#why-not) [b](b.md#gone) [c](#start-and-end) [d](#none) [e](b.md#mark) [f](c.go#L1)\n"},
		{name: "docs/b.md", text: "## Why not?\n<a id=\"mark\"></a>\n"},
	}
	want := []string{"docs/a.md: docs/b.md has no heading #gone", "docs/a.md: docs/a.md has no heading #none"}
	if got := checkAnchors(pages); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCheckFiles(t *testing.T) {
	t.Parallel()
	m := parse(t, map[string]string{"internal/a/b.go": "package a\n", "c.go": "package c\n"})
	p := page{name: "docs/p.md", text: "`a/b.go` `b.go` `c.go` `internal/a/b.go` `x/b.go` `d.go`"}
	want := []string{"docs/p.md: there is no file x/b.go", "docs/p.md: there is no file d.go"}
	if got := checkFiles(p, m); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
