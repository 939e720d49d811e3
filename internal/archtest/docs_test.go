package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
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

// TestProgramsInDocsCompile type-checks all whole programs in documents in one run, as packages of
// this module that exist only in memory.
func TestProgramsInDocsCompile(t *testing.T) {
	t.Parallel()
	root, pages := docs(t)
	overlay, where := map[string][]byte{}, map[string]string{}
	for _, p := range pages {
		for _, b := range p.blocks {
			if b.program() {
				dir := filepath.Join(root, "examples", fmt.Sprintf("in_docs_%d", len(overlay)))
				overlay[filepath.Join(dir, "main.go")] = []byte(b.code)
				where[filepath.Base(dir)] = fmt.Sprintf("%s:%d", p.name, b.line)
			}
		}
	}

	if len(overlay) == 0 {
		t.Fatal("not even README.md has a program")
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedSyntax | packages.NeedTypesInfo, Dir: root, Overlay: overlay,
	}, "./examples/in_docs_...")
	if err != nil {
		t.Fatal(err)
	}

	seen := 0
	for _, p := range loaded {
		name, ok := where[p.PkgPath[strings.LastIndexByte(p.PkgPath, '/')+1:]]
		if !ok {
			continue
		}
		seen++
		for _, e := range p.Errors {
			t.Errorf("the program at %s does not compile: %v", name, e)
		}
	}

	if seen != len(overlay) {
		t.Errorf("%d of %d programs were seen", seen, len(overlay))
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
