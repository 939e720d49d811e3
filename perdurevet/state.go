package perdurevet

import (
	"go/ast"
	"go/token"
	"go/types"
)

// write is an assignment, in any syntax, to an expression that starts with a variable.
type write struct {
	at     ast.Node
	target ast.Expr
	v      *types.Var
	// The assignment changes data behind the variable: a field behind a pointer, or an element.
	through bool
}

// findAssignments returns the assignments of one node of the syntax tree.
func (p *program) findAssignments(n ast.Node) (ws []write) {
	add := func(e ast.Expr) {
		if v, through := p.root(e); v != nil {
			ws = append(ws, write{n, e, v, through})
		}
	}

	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, left := range n.Lhs {
			if id, ok := left.(*ast.Ident); ok && p.info.Uses[id] == nil {
				continue // the statement declares the variable
			}
			add(left)
		}
	case *ast.IncDecStmt:
		add(n.X)
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			add(n.Key)
			if n.Value != nil {
				add(n.Value)
			}
		}
	case *ast.CallExpr:
		if tv := p.info.Types[n.Fun]; tv.IsBuiltin() && len(n.Args) > 0 {
			if id, ok := ast.Unparen(n.Fun).(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear" || id.Name == "copy") {
				if v, _ := p.root(n.Args[0]); v != nil {
					ws = append(ws, write{n, n.Args[0], v, true})
				}
			}
			return ws
		}
		// hits.Add(1), cache.Store(k, v)
		sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
		if ok && fromSync(p.info.TypeOf(sel.X)) && sel.Sel.Name != "Load" && sel.Sel.Name != "Range" {
			if v, _ := p.root(sel.X); v != nil {
				ws = append(ws, write{n, sel.X, v, true})
			}
		}
	}

	return ws
}

// root returns the variable that an assignable expression starts with, such as v for v.f[i].
func (p *program) root(e ast.Expr) (v *types.Var, through bool) {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			v, _ := p.info.Uses[x].(*types.Var)
			return v, through
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e, through = x.X, true
		case *ast.IndexExpr:
			if t := p.info.TypeOf(x.X); t != nil {
				if _, array := t.Underlying().(*types.Array); !array {
					through = true
				}
			}
			e = x.X
		case *ast.SelectorExpr:
			if v, ok := p.info.Uses[x.Sel].(*types.Var); ok && isPackageLevel(v) {
				return v, through // other.Variable
			}
			if t := p.info.TypeOf(x.X); t != nil {
				if _, pointer := t.Underlying().(*types.Pointer); pointer {
					through = true
				}
			}
			e = x.X
		default:
			return nil, false
		}
	}
}

// findMutators finds the methods that change data behind their receiver, directly or through
// another method.
func (p *program) findMutators() {
	for changed := true; changed; {
		changed = false
		for obj, f := range p.byObj {
			recv := obj.Signature().Recv()
			if recv == nil || f.mutator {
				continue
			}
			f.each(func(n ast.Node) {
				for _, w := range p.findAssignments(n) {
					f.mutator = f.mutator || w.v == recv && w.through
				}
				if call, ok := n.(*ast.CallExpr); ok {
					v, _ := p.mutatedVariable(call)
					f.mutator = f.mutator || v == recv
				}
			})
			changed = changed || f.mutator
		}
	}
}

// mutatedVariable returns the variable that the receiver of a call starts with, if the method
// changes its receiver.
func (p *program) mutatedVariable(call *ast.CallExpr) (*types.Var, bool) {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	callee := p.callee(call)
	if !ok || callee == nil || callee.Signature().Recv() == nil {
		return nil, false
	}
	var fact funcFact
	if g := p.byObj[callee]; g == nil || !g.mutator {
		if callee.Pkg() == p.pass.Pkg || callee.Pkg() == nil || !p.pass.ImportObjectFact(callee, &fact) || !fact.Mutator {
			return nil, false
		}
	}
	v, _ := p.root(sel.X)
	return v, v != nil
}

// findMutations finds package variables that change after the program has started.
func (p *program) findMutations() {
	note := func(v *types.Var, pos token.Pos) {
		if _, ok := p.mutable[v]; !ok && isPackageLevel(v) && faceType(v.Type()) == "" {
			p.mutable[v] = pos
		}
	}
	for _, f := range p.functions {
		if f.test || f.obj != nil && f.obj.Name() == "init" && f.sig.Recv() == nil {
			continue // a test may replace a variable that production code never changes
		}

		f.each(func(n ast.Node) {
			for _, w := range p.findAssignments(n) {
				note(w.v, n.Pos())
			}
			if call, ok := n.(*ast.CallExpr); ok {
				if v, ok := p.mutatedVariable(call); ok {
					note(v, n.Pos())
				}
			}
			if u, ok := n.(*ast.UnaryExpr); ok && u.Op == token.AND { // flag.StringVar(&url, …)
				if v, through := p.root(u.X); v != nil && !through {
					note(v, n.Pos())
				}
			}
		})
	}
}

// changePosition returns where a package variable changes, or "".
func (p *program) changePosition(v *types.Var) string {
	if pos, ok := p.mutable[v]; ok {
		return p.at(pos)
	}
	var fact varFact
	if v.Pkg() != p.pass.Pkg && p.pass.ImportObjectFact(v, &fact) {
		return fact.Changed
	}
	return ""
}

func isPackageLevel(v *types.Var) bool {
	return v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
}

// findShared finds the fields and captured variables that steps and entities change while
// executions run.
func (p *program) findShared() {
	for _, f := range p.functions {
		if f.test || !f.role.isStep() && !f.role.isHandler() {
			continue
		}

		f.each(func(n ast.Node) {
			for _, w := range p.findAssignments(n) {
				home := f.declaringFunction(w.v)
				if w.v != f.receiver() && (home == nil || home.role != roleNone) || !w.through && w.v == f.receiver() {
					continue // a local variable, or a copy
				}
				if v := p.lastField(w.target); v != nil {
					if _, ok := p.shared[v]; !ok {
						p.shared[v] = n.Pos()
					}
				}
			}
		})
	}
}

// lastField returns the field that an assignable expression ends with, or the variable itself.
func (p *program) lastField(e ast.Expr) *types.Var {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			v, _ := p.info.Uses[x.Sel].(*types.Var)
			return v
		case *ast.Ident:
			v, _ := p.info.Uses[x].(*types.Var)
			return v
		default:
			return nil
		}
	}
}

// reportReads reports two mistakes of workflow code: it reads a variable that a step or an entity
// changes, or it calls a method that changes its receiver.
func (p *program) reportReads(f *function) {
	if f.test || f.role == roleMachine {
		return
	}

	f.each(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Ident:
			v, ok := p.info.Uses[n].(*types.Var)
			if !ok {
				return
			}
			if pos, ok := p.shared[v]; ok {
				p.report(state, p.whole(n), "%s in %s: a step or an entity changes it (%s), so %s", p.text(p.whole(n)), f.role.where(), p.at(pos), useState)
			}
		case *ast.CallExpr:
			v, ok := p.mutatedVariable(n)
			if !ok || isPackageLevel(v) {
				return // scanIdent reports it, as a package variable that changes
			}
			home := f.declaringFunction(v)
			if v == f.receiver() || home != nil && home.role == roleNone {
				p.report(state, n, "%s changes its receiver, which no journal keeps and all executions share; use local variables, they are rebuilt on replay", p.text(n.Fun))
			}
		}
	})
}

// reportWrites judges the assignments of a function by its role.
func (p *program) reportWrites(f *function) {
	f.each(func(n ast.Node) {
		for _, w := range p.findAssignments(n) {
			if isPackageLevel(w.v) {
				if f.role.isHandler() && !f.test {
					p.report(state, w.at, "package variable %s changed by %s: %s", w.v.Name(), f.role.where(), keepInState)
				}
				continue // in workflow code, scanIdent reports it
			}
			p.judgeWrite(f, w)
		}
		if call, ok := n.(*ast.CallExpr); ok && f.role.isHandler() && !f.test {
			if v, ok := p.mutatedVariable(call); ok && isPackageLevel(v) {
				p.report(state, call, "package variable %s changed by %s: %s", v.Name(), f.role.where(), keepInState)
			}
		}
	})
}

func (p *program) judgeWrite(f *function, w write) {
	if w.v == f.receiver() {
		switch {
		case !w.through: // a copy
		case f.role == roleWorkflow && !f.test:
			p.report(state, w.at, "workflow code changes a field of its receiver %s, which no journal keeps and all executions share; use local variables, they are rebuilt on replay", w.v.Name())
		case f.role.isHandler() && !f.test:
			p.report(state, w.at, "entity handler keeps state in a field of its receiver %s, which is lost with the process and differs between nodes; keep it in the state of the entity", w.v.Name())
		}
		return
	}

	home := f.declaringFunction(w.v)
	if home == nil || home == f {
		return
	}

	switch {
	case f.role.isStep() && home.role.isReplayed():
		p.report(captured, w.at, "step assigns to %s of its workflow: on replay the step does not run and %s keeps its old value; return the value from the step", w.v.Name(), w.v.Name())
	case f.role == roleRead && home.role.isReplayed():
		p.report(captured, w.at, "query or validator changes %s of its workflow: it is not journaled, so replay would not change it; use an update handler", w.v.Name())
	case (f.role.isReplayed() || f.role.isHandler()) && home.role == roleNone && !f.test:
		p.report(state, w.at, "%s changes %s, which is declared outside it: no journal keeps that and all executions share it; return it, or use local variables", f.role.where(), w.v.Name())
	}
}
