package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxColumns    = 100 // of a comment or a line of Markdown
	maxParameters = 4   // of a function; more belong in a struct
	denseLines    = 25  // a longer body of a function must have paragraphs
	bannedPercent = 3   // sentences of a package that may contain a banned expression
)

// tally counts the problems in the prose and in the functions of one package.
type tally struct {
	wide, sentences, banned, dense, params int
	problems                               []string
}

// complain counts a problem and keeps its text.
func (t *tally) complain(count *int, format string, args ...any) {
	*count++
	t.problems = append(t.problems, fmt.Sprintf(format, args...))
}

// tallyPackage reads the comments and functions of a package.
func tallyPackage(m *module, p *pkg) (t tally) {
	for _, f := range p.files {
		if f.generated {
			continue
		}
		t.comments(m, f)
		t.functions(m, f)
	}
	return t
}

// comments counts wide lines and banned sentences.
func (t *tally) comments(m *module, f *file) {
	lines := strings.Split(string(f.source), "\n")
	for _, group := range f.syntax.Comments {
		if expectedOutput(group) {
			continue
		}

		at := m.fset.Position(group.Pos())
		for n := at.Line; n <= m.fset.Position(group.End()).Line; n++ {
			if line := lines[n-1]; tooWide(line) && commentOf(line) != "" {
				t.complain(&t.wide, "%s:%d: the comment is wider than %d columns", f.name, n, maxColumns)
			}
		}

		if strings.HasPrefix(group.List[0].Text, "//go:") {
			continue
		}

		for _, s := range sentences(group.Text()) {
			t.sentences++
			if words := banned.find(s); words != "" {
				t.complain(&t.banned, "%s:%d: %q in %q", f.name, at.Line, words, s)
			}
		}
	}
}

// expectedOutput reports whether a comment is the expected output of an example, which go test
// compares.
func expectedOutput(group *ast.CommentGroup) bool {
	text := strings.ToLower(group.Text())
	return strings.HasPrefix(text, "output:") || strings.HasPrefix(text, "unordered output:")
}

// commentOf returns the comment of a line, with or without code before it. A line of code may reach
// 140 columns, but not because of a comment. A directive such as //nolint after a line of code must
// stay on that line, so commentOf treats it as code.
func commentOf(line string) string {
	code, comment, found := strings.Cut(line, "//")
	if !found || strings.Contains(code, `"`) || strings.Contains(code, "`") {
		return ""
	}
	if strings.TrimSpace(code) != "" && directive.MatchString(comment) {
		return ""
	}
	return comment
}

// directive matches the beginning of a comment that a tool reads.
var directive = regexp.MustCompile(`^[a-z]+:[a-z]`)

// tooWide reports whether a line has more than 100 columns and could be broken.
func tooWide(line string) bool {
	columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
	return columns > maxColumns && !strings.Contains(line, "://")
}

// ending matches the end of a sentence.
var ending = regexp.MustCompile(`[.!?:;]["')\]]*\s+|\n\s*\n`)

// sentences splits prose. Indented lines are code, and text in quotes or backticks is a name.
func sentences(text string) (found []string) {
	var prose strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    ") {
			prose.WriteString("\n\n")
			continue
		}
		prose.WriteString(line)
	}
	for _, s := range ending.Split(quotation.ReplaceAllString(prose.String(), "X"), -1) {
		if s = strings.Join(strings.Fields(s), " "); strings.Contains(s, " ") {
			found = append(found, comparison.ReplaceAllString(s, "more than"))
		}
	}
	return found
}

// quotation matches names and quotations.
var quotation = regexp.MustCompile("`[^`\n]*`" + `|"[^"\n]*"`)

// comparison matches the one ordinary use of a banned expression, as in "reads no more than a
// page".
var comparison = regexp.MustCompile(`(?i)\b(no|any) more than\b`)

// functions counts long bodies without paragraphs and long lists of parameters.
func (t *tally) functions(m *module, f *file) {
	lines := strings.Split(string(f.source), "\n")
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		d, ok := n.(*ast.FuncDecl)
		if !ok {
			return true
		}
		at := m.fset.Position(d.Pos())
		if count := parameters(d.Type); count > maxParameters && !hasReason(d.Doc) {
			t.complain(&t.params, "%s:%d: %s has %d parameters; at most %d, or a line \"//arch:parameters REASON\" in its comment",
				f.name, at.Line, d.Name.Name, count, maxParameters)
		}
		if d.Body != nil && dense(m.fset, d.Body, lines) {
			t.complain(&t.dense, "%s:%d: %s has more than %d lines and no blank one: which are its paragraphs?", f.name, at.Line, d.Name.Name, denseLines)
		}
		return true
	})
}

// parameters returns the number of parameters. It does not count a context or a test as the first
// parameter, because many functions have one.
func parameters(f *ast.FuncType) (n int) {
	for i, field := range f.Params.List {
		if i == 0 && passedOn(field.Type) {
			continue
		}
		n += max(1, len(field.Names))
	}
	return n
}

// passedOn reports whether a type is context.Context, *testing.T, *testing.B or testing.TB.
func passedOn(t ast.Expr) bool {
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	sel, ok := t.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := sel.X.(*ast.Ident)
	return ok && (from.Name == "context" && sel.Sel.Name == "Context" || from.Name == "testing")
}

// hasReason reports whether a comment gives a reason for a long list of parameters.
func hasReason(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//arch:parameters ") && len(c.Text) > len("//arch:parameters ")
	})
}

// dense reports whether a body is long and has no blank line. A body that is one statement, such as
// a table or a switch, is never dense.
func dense(fset *token.FileSet, body *ast.BlockStmt, lines []string) bool {
	first, last := fset.Position(body.Lbrace).Line, fset.Position(body.Rbrace).Line
	if last-first-1 <= denseLines || len(body.List) == 1 {
		return false
	}
	return !slices.ContainsFunc(lines[first:last-1], func(line string) bool { return strings.TrimSpace(line) == "" })
}

// checkTexts finds banned expressions in the texts that production code shows to people: errors,
// log lines, help of commands and metrics. A text is a string with at least one blank. checkTexts
// does not read examples and tests.
func checkTexts(m *module, rooms []room) (problems []string) {
	for _, p := range m.packages {
		if r, _ := roomOf(rooms, p.dir); r.testing || matches("examples/...", p.dir) {
			continue
		}

		for _, f := range p.files {
			if f.test || f.generated {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING || !strings.Contains(literal.Value, " ") {
					return true
				}
				text := comparison.ReplaceAllString(literal.Value, "more than")
				if words := banned.find(text); words != "" {
					problems = append(problems, fmt.Sprintf("%s: %q in a text for people: say it in plain English (docs/prose.md)", m.at(literal.Pos()), words))
				}
				return true
			})
		}
	}
	return problems
}

// tallyMarkdown reads a page. Tables and code cannot be wrapped.
func tallyMarkdown(name, text string) (t tally) {
	var prose strings.Builder
	n, code := 0, false
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if code {
			continue
		}
		if table := strings.HasPrefix(line, "|"); !table && tooWide(line) {
			t.complain(&t.wide, "%s:%d: the line is wider than %d columns", name, n, maxColumns)
		}
		prose.WriteString(strings.TrimLeft(strings.ReplaceAll(line, "|", ". "), "#-* ") + "\n")
	}

	for _, s := range sentences(prose.String()) {
		t.sentences++
		if words := banned.find(s); words != "" {
			t.complain(&t.banned, "%s: %q in %q", name, words, s)
		}
	}

	return t
}

// tallyScript reads the comments of a file that is neither Go nor Markdown. Comments are whole
// lines that begin with the mark.
func tallyScript(name, text, mark string) (t tally) {
	var prose strings.Builder
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		comment, found := strings.CutPrefix(strings.TrimLeft(line, " \t"), mark)
		if !found {
			continue
		}
		if tooWide(line) {
			t.complain(&t.wide, "%s:%d: the line is wider than %d columns", name, n, maxColumns)
		}
		prose.WriteString(strings.TrimPrefix(comment, " ") + "\n")
	}

	for _, s := range sentences(prose.String()) {
		t.sentences++
		if words := banned.find(s); words != "" {
			t.complain(&t.banned, "%s: %q in %q", name, words, s)
		}
	}

	return t
}
