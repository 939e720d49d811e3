package perdurevet

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// program is one package under analysis.
type program struct {
	pass *analysis.Pass
	info *types.Info

	functions []*function // a function comes before the literals inside it
	calls     []*ast.CallExpr
	byNode    map[ast.Node]*function
	byObj     map[*types.Func]*function
	parents   map[ast.Node]ast.Node
	initial   map[*types.Var]ast.Expr // the value in the declaration of a variable
	// For a variable that is declared without a value: the first value that is assigned to it.
	first      map[*types.Var]ast.Expr
	reassigned map[*types.Var]bool      // variables that are assigned after their declaration
	mutable    map[*types.Var]token.Pos // package variables that change, and where
	// fields and captured variables that steps and entities change, and where
	shared  map[*types.Var]token.Pos
	foreign map[*types.Func]boundTo // functions of other packages that are bound here

	allows allows
	found  map[key]finding
}

// key makes findings unique: one per check and line.
type key struct {
	check check
	file  string
	line  int
}

func runIndex(pass *analysis.Pass) (any, error) {
	uses := slices.ContainsFunc(pass.Pkg.Imports(), func(i *types.Package) bool {
		return isFace(i) || strings.HasPrefix(i.Path(), facePath+"/")
	})
	ours := pass.Module != nil && pass.Module.Path != "" && pass.Module.Version == ""
	if !uses && !ours || isFace(pass.Pkg) {
		// The table covers the code of other modules, and perdurevet does not check the face
		// itself.
		return findings{}, nil
	}

	p := &program{
		pass: pass, info: pass.TypesInfo,
		byNode: map[ast.Node]*function{}, byObj: map[*types.Func]*function{}, parents: map[ast.Node]ast.Node{},
		initial: map[*types.Var]ast.Expr{}, first: map[*types.Var]ast.Expr{}, reassigned: map[*types.Var]bool{},
		mutable: map[*types.Var]token.Pos{}, shared: map[*types.Var]token.Pos{}, foreign: map[*types.Func]boundTo{}, found: map[key]finding{},
	}

	p.collect()
	p.allows = p.readAllows()
	p.findMutators()
	p.findMutations()
	p.assign()
	p.findShared()
	p.computeReach()
	p.findUnkeyed()
	p.export()

	if uses {
		for _, f := range p.functions {
			p.judge(f)
		}
		p.reportEscapes()
		p.reportComputedNames()
		p.reportMisplacedAllows()
	}

	return p.result(), nil
}

// judge finds the mistakes of one function.
func (p *program) judge(f *function) {
	switch {
	case f.role.isReplayed():
		p.reportReplays(f)
		p.reportMaps(f)
		p.reportMutexes(f)
		p.reportDirectCalls(f)
		p.reportClients(f)
		p.reportWrites(f)
		p.reportReads(f)
		if f.role == roleWorkflow {
			p.reportOuterContexts(f)
			p.reportLoops(f)
			p.reportDefers(f)
			p.reportContinues(f)
		}
	case f.role.isStep():
		p.reportDurableInStep(f)
		p.reportWrites(f)
		if f.role == roleTx {
			p.reportTransactions(f)
		}
	case f.role.isHandler():
		p.reportClients(f)
		p.reportWrites(f)
		p.reportHandlers(f)
	case f.role == roleRead:
		p.reportDurableInStep(f)
		p.reportWrites(f)
	}

	p.reportDropped(f)
}

// report records a finding, unless a comment silences it.
func (p *program) report(c check, at ast.Node, format string, args ...any) {
	p.reportAt(c, at.Pos(), at.End(), fmt.Sprintf(format, args...))
}

func (p *program) reportAt(c check, pos, end token.Pos, text string) {
	where := p.pass.Fset.Position(pos)
	if p.allows.silence(c, where) {
		return
	}
	k := key{c, where.Filename, where.Line}
	if old, ok := p.found[k]; !ok || pos < old.pos {
		p.found[k] = finding{pos, end, text}
	}
}

// result returns the sorted findings.
func (p *program) result() findings {
	all := findings{}
	for k, f := range p.found {
		all[k.check] = append(all[k.check], f)
	}
	for _, fs := range all {
		slices.SortFunc(fs, func(a, b finding) int { return cmp.Compare(a.pos, b.pos) })
	}
	return all
}

// at returns a position for a message: file name and line.
func (p *program) at(pos token.Pos) string {
	where := p.pass.Fset.Position(pos)
	return fmt.Sprintf("%s:%d", filepath.Base(where.Filename), where.Line)
}

// text returns an expression as written, in one line.
func (p *program) text(e ast.Expr) string {
	switch x := ast.Unparen(e).(type) {
	case *ast.IndexExpr:
		if p.mentionedFunction(x) != nil { // type arguments
			e = x.X
		}
	case *ast.IndexListExpr:
		e = x.X
	case *ast.FuncLit:
		return "the function"
	}
	s := []rune(types.ExprString(e))
	if len(s) > 60 {
		s = append(s[:59], '…')
	}
	return string(s)
}

// short returns a function as code would write it: time.Now, sql.DB.Query, stamp.
func (p *program) short(f *types.Func) string {
	name := f.Name()
	if recv := f.Signature().Recv(); recv != nil {
		if n := namedType(recv.Type()); n != nil {
			name = n.Obj().Name() + "." + name
		}
	}
	if f.Pkg() == nil || f.Pkg() == p.pass.Pkg {
		return name
	}
	return f.Pkg().Name() + "." + name
}
