package perdurevet

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// allowed is a comment that silences findings:
//
//	//perdure:allow <reason>
//	//perdure:allow <check>[,<check>] <reason>
//
// At the end of a line, the comment covers that line. On its own line above a statement, the
// comment covers the statement. In the doc comment of a function it covers the function, and above
// the package clause it covers the file.
type allowed struct {
	pos      token.Pos
	checks   []check // empty means all checks
	reason   string
	from, to int // the covered lines
	used     bool
}

// allows are the allow comments of each file.
type allows map[string][]*allowed

const allowPrefix = "//perdure:allow"

// readAllows finds the allow comments of a package.
func (p *program) readAllows() allows {
	all := allows{}
	for _, file := range p.pass.Files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				rest, ok := strings.CutPrefix(c.Text, allowPrefix)
				if !ok || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
					continue
				}
				where := p.pass.Fset.Position(c.Pos())
				a := &allowed{pos: c.Pos(), from: where.Line, to: where.Line + 1}
				a.parse(rest)

				switch decl := p.documentedFunction(file, group); {
				case group.End() < file.Package:
					a.to = p.pass.Fset.File(file.Pos()).LineCount()
				case decl != nil:
					a.to = p.pass.Fset.Position(decl.End()).Line
				default:
					a.to = p.lastLine(file, c)
				}

				all[where.Filename] = append(all[where.Filename], a)
			}
		}
	}

	return all
}

// parse splits the text of a comment into names of checks and the reason. The text may have no
// names of checks.
func (a *allowed) parse(text string) {
	text = strings.TrimSpace(text)
	first, rest, _ := strings.Cut(text, " ")
	var list []check
	for word := range strings.SplitSeq(first, ",") {
		if !isCheck(word) {
			a.reason = text
			return
		}
		list = append(list, check(word))
	}
	a.checks, a.reason = list, strings.TrimSpace(rest)
}

// documentedFunction returns the function that a comment documents.
func (p *program) documentedFunction(file *ast.File, group *ast.CommentGroup) *ast.FuncDecl {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Doc == group {
			return f
		}
	}
	return nil
}

// lastLine returns the last line that a comment inside a function covers: the line of the comment,
// or the last line of the statement below it.
func (p *program) lastLine(file *ast.File, c *ast.Comment) int {
	line := func(pos token.Pos) int { return p.pass.Fset.Position(pos).Line }
	own := line(c.Pos())
	last := own + 1

	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil || last == own {
			return false
		}
		begin, end := line(n.Pos()), line(n.End())
		if end < own || begin > own+1 {
			return false
		}

		switch n.(type) {
		case *ast.AssignStmt, *ast.ExprStmt, *ast.ReturnStmt, *ast.DeferStmt, *ast.DeclStmt:
			if begin == own+1 {
				last = max(last, end)
			}
		}

		if n.Pos() < c.Pos() && (begin == own || end == own) && !isComment(n) {
			last = own // at the end of a line
		}
		return true
	})

	return last
}

func isComment(n ast.Node) bool {
	switch n.(type) {
	case *ast.CommentGroup, *ast.Comment:
		return true
	}
	return false
}

// silence reports whether an allow comment with a reason covers a finding.
func (as allows) silence(c check, where token.Position) bool {
	for _, a := range as[where.Filename] {
		if a.reason == "" || where.Line < a.from || where.Line > a.to {
			continue
		}
		if len(a.checks) == 0 || slices.Contains(a.checks, c) {
			a.used = true
			return true
		}
	}
	return false
}

// reportMisplacedAllows reports allow comments without a reason or without effect.
func (p *program) reportMisplacedAllows() {
	for _, list := range p.allows {
		for _, a := range list {
			end := a.pos + token.Pos(len(allowPrefix))
			switch {
			case a.reason == "":
				p.reportAt(allow, a.pos, end, "an allow comment needs a reason: //perdure:allow <check> <reason>")
			case !a.used:
				p.reportAt(allow, a.pos, end, "this allow comment silences nothing: remove it, or move it to the line of the finding or directly above")
			}
		}
	}
}
