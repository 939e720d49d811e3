package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// page is a document.
type page struct {
	name   string // relative to the module
	text   string
	blocks []block
}

// block is Go code in a page.
type block struct {
	line int // of its first line
	code string
}

// program reports whether the block is a whole program.
func (b block) program() bool { return strings.HasPrefix(b.code, "package main\n") }

// readPages reads README.md and docs/*.md.
func readPages(root string) ([]page, error) {
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}

	var pages []page
	for _, name := range append(names, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return nil, err
		}
		pages = append(pages, page{name: filepath.ToSlash(rel), text: string(text), blocks: goBlocks(string(text))})
	}

	return pages, nil
}

// goBlocks finds the Go code of a document.
func goBlocks(text string) (blocks []block) {
	inside, n := false, 0
	for line := range strings.Lines(text) {
		n++
		switch {
		case strings.TrimSpace(line) == "```go":
			inside = true
			blocks = append(blocks, block{line: n + 1})
		case strings.TrimSpace(line) == "```":
			inside = false
		case inside:
			blocks[len(blocks)-1].code += line
		}
	}
	return blocks
}

// sources returns the files that documents quote: examples, which CI compiles and runs. The texts
// have no indentation and no blank lines.
func sources(m *module) (texts []string) {
	for _, p := range m.packages {
		for _, f := range p.files {
			if strings.HasPrefix(f.name, "examples/") || strings.HasPrefix(path.Base(f.name), "example") {
				texts = append(texts, plain(string(f.source)))
			}
		}
	}
	return texts
}

// plain returns code without indentation and blank lines.
func plain(code string) string {
	var out strings.Builder
	out.WriteString("\n")
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

// omission is the line that marks a gap in a quotation.
const omission = "\n// …\n"

// isQuoted reports whether every part of a block is in one of the sources, line for line.
func isQuoted(b block, sources []string) bool {
	parts := strings.Split(plain(b.code), omission)
	return slices.ContainsFunc(sources, func(source string) bool {
		for _, part := range parts {
			if !strings.Contains(source, "\n"+strings.Trim(part, "\n")+"\n") {
				return false
			}
		}
		return true
	})
}

// checkQuotations finds code in documents that CI does not compile. Code must be a quotation of an
// example, or a whole program. The pages in free may also have other fragments of Go code.
func checkQuotations(pages []page, sources, free []string) (problems []string) {
	for _, p := range pages {
		for _, b := range p.blocks {
			if b.program() || isQuoted(b, sources) {
				continue
			}
			switch {
			case !slices.Contains(free, p.name):
				problems = append(problems, fmt.Sprintf("%s:%d: this code is not a quotation of a file that CI runs: "+
					"write it as an example (examples/, example_*_test.go) and quote it; `// …` stands for what is left out", p.name, b.line))
			case !strings.Contains(b.code, "…") && !isGo(b.code):
				problems = append(problems, fmt.Sprintf("%s:%d: this code cannot be parsed", p.name, b.line))
			}
		}
	}
	return problems
}

// isGo reports whether a fragment is Go: declarations, or statements.
func isGo(code string) bool {
	fset := token.NewFileSet()
	_, err := parser.ParseFile(fset, "", "package p\n"+code, 0)
	if err != nil {
		_, err = parser.ParseFile(fset, "", "package p\nfunc _() {\n"+code+"\n}", 0)
	}
	return err == nil
}

var (
	link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)
	// verbatim matches code in a text, in which brackets are not links.
	verbatim = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

// checkLinks finds links to files that do not exist.
func checkLinks(root string, pages []page, expected []string) (problems []string) {
	for _, p := range pages {
		for _, m := range link.FindAllStringSubmatch(verbatim.ReplaceAllString(p.text, ""), -1) {
			to := m[1]
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			target := path.Join(path.Dir(p.name), to)
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil && !slices.Contains(expected, target) {
				problems = append(problems, fmt.Sprintf("%s: the link to %s leads nowhere", p.name, to))
			}
		}
	}
	return problems
}

var (
	// anchored matches a link with a fragment, in the same page or in another one.
	anchored = regexp.MustCompile(`\]\(([^)#\s]*)#([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	anchorID = regexp.MustCompile(`<a id="([^"]+)">`)
	// dropped matches the characters of a heading that are not in its anchor.
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// checkAnchors finds links to headings that do not exist, for example because a heading was
// renamed.
func checkAnchors(pages []page) (problems []string) {
	anchors := map[string][]string{}
	for _, p := range pages {
		for _, m := range heading.FindAllStringSubmatch(p.text, -1) {
			text := dropped.ReplaceAllString(strings.ToLower(m[1]), "")
			anchors[p.name] = append(anchors[p.name], strings.ReplaceAll(text, " ", "-"))
		}
		for _, m := range anchorID.FindAllStringSubmatch(p.text, -1) {
			anchors[p.name] = append(anchors[p.name], m[1])
		}
	}

	for _, p := range pages {
		for _, m := range anchored.FindAllStringSubmatch(verbatim.ReplaceAllString(p.text, ""), -1) {
			target := p.name
			if m[1] != "" {
				target = path.Join(path.Dir(p.name), m[1])
			}
			if known, isPage := anchors[target]; isPage && !slices.Contains(known, m[2]) {
				problems = append(problems, fmt.Sprintf("%s: %s has no heading #%s", p.name, target, m[2]))
			}
		}
	}
	return problems
}

// goFile matches the name of a Go file in a text, with or without folders.
var goFile = regexp.MustCompile("`([a-z0-9_/]+\\.go)`")

// checkFiles finds names of Go files in a page that do not exist, for example because a file was
// renamed. A page may leave out the first folders of a name.
func checkFiles(p page, m *module) (problems []string) {
	for _, match := range goFile.FindAllStringSubmatch(p.text, -1) {
		named := func(f *file) bool { return f.name == match[1] || strings.HasSuffix(f.name, "/"+match[1]) }
		if !slices.ContainsFunc(m.packages, func(p *pkg) bool { return slices.ContainsFunc(p.files, named) }) {
			problems = append(problems, fmt.Sprintf("%s: there is no file %s", p.name, match[1]))
		}
	}
	return problems
}
