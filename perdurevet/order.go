package perdurevet

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// reportMaps reports iterations over maps whose random order is observable.
func (p *program) reportMaps(f *function) {
	const hint = "range over slices.Sorted(maps.Keys(m)) instead"
	f.each(func(n ast.Node) {
		if call, ok := n.(*ast.CallExpr); ok && p.isUnsortedList(f, call) {
			p.report(maporder, call, "%s gives the order of a map, which differs on replay; use slices.Sorted", p.text(call.Fun))
		}
		loop, ok := n.(*ast.RangeStmt)
		if !ok || !p.isUnordered(loop.X) {
			return
		}
		if call := p.firstDurable(loop.Body); call != nil {
			p.report(maporder, loop, "durable call %s in the order of a map, which differs on replay; %s", p.text(call.Fun), hint)
			return
		}
		if v := p.collectedVariable(f, loop); v != nil {
			p.report(maporder, loop, "%s gets the order of a map, which differs on replay; sort it, or %s", v.Name(), hint)
		}
	})
}

// isUnordered reports whether an expression is a map or an iterator over a map.
func (p *program) isUnordered(e ast.Expr) bool {
	t := p.info.TypeOf(e)
	if t == nil {
		return false
	}
	if _, ok := t.Underlying().(*types.Map); ok {
		return true
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		f := p.callee(e)
		return f != nil && f.Pkg() != nil && f.Pkg().Path() == "maps" && (f.Name() == "Keys" || f.Name() == "Values" || f.Name() == "All")
	case *ast.SelectorExpr:
		return typeName(p.info.TypeOf(e.X)) == "sync.Map" && e.Sel.Name == "Range"
	}
	return false
}

// isUnsortedList reports whether a call makes a list from a map and the function does not sort the
// list later.
func (p *program) isUnsortedList(f *function, call *ast.CallExpr) bool {
	callee := p.callee(call)
	if callee == nil || callee.Pkg() == nil || callee.Pkg().Path() != "slices" || callee.Name() != "Collect" || len(call.Args) != 1 || !p.isUnordered(call.Args[0]) {
		return false
	}
	if a, ok := p.parents[call].(*ast.AssignStmt); ok && len(a.Lhs) == 1 {
		if id, ok := a.Lhs[0].(*ast.Ident); ok {
			if v, ok := p.info.ObjectOf(id).(*types.Var); ok {
				return !p.isSortedAfter(f, v, call.End())
			}
		}
	}
	return true
}

// firstDurable finds a durable call below a node. It follows local closures that the code below the
// node calls, but skips steps.
func (p *program) firstDurable(below ast.Node) *ast.CallExpr {
	return p.firstDurableExcept(below, map[*function]bool{})
}

func (p *program) firstDurableExcept(below ast.Node, seen map[*function]bool) (found *ast.CallExpr) {
	ast.Inspect(below, func(n ast.Node) bool {
		if found != nil {
			return false
		}
		if lit, ok := n.(*ast.FuncLit); ok && p.byNode[lit] != nil && p.byNode[lit].role.isStep() {
			return false
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}

		if p.durable(call) {
			found = call
			return false
		}

		if g := p.closure(call); g != nil && !seen[g] {
			seen[g] = true
			found = p.firstDurableExcept(g.body, seen)
		}

		return found == nil
	})

	return found
}

// closure returns the workflow closure that a call calls through a variable.
func (p *program) closure(call *ast.CallExpr) *function {
	if g := p.resolve(call.Fun); g != nil && g.obj == nil && g.role == roleWorkflow && !g.hasCtx() {
		return g
	}
	return nil
}

// collectedVariable finds a variable from outside the loop whose value depends on the order of the
// iterations: the loop appends to it or uses +=, and the function does not sort it later.
func (p *program) collectedVariable(f *function, loop *ast.RangeStmt) (found *types.Var) {
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		if !ok || found != nil || len(a.Lhs) != 1 || len(a.Rhs) != 1 {
			return found == nil
		}
		id, ok := ast.Unparen(a.Lhs[0]).(*ast.Ident)
		if !ok {
			return true
		}

		v, ok := p.info.Uses[id].(*types.Var)
		if !ok || loop.Pos() <= v.Pos() && v.Pos() < loop.End() {
			return true
		}
		basic, _ := v.Type().Underlying().(*types.Basic)
		call, _ := ast.Unparen(a.Rhs[0]).(*ast.CallExpr)
		text := a.Tok == token.ADD_ASSIGN && basic != nil && basic.Info()&types.IsString != 0
		list := a.Tok == token.ASSIGN && call != nil && p.info.Types[call.Fun].IsBuiltin() && p.text(call.Fun) == "append"
		if text || list && !p.isSortedAfter(f, v, loop.End()) {
			found = v
		}

		return found == nil
	})

	return found
}

// isSortedAfter reports whether a variable is sorted after a position.
func (p *program) isSortedAfter(f *function, v *types.Var, after token.Pos) (yes bool) {
	f.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || call.Pos() < after {
			return
		}
		callee := p.callee(call)
		if callee == nil {
			return
		}

		name := strings.ToLower(callee.Name())
		if !strings.Contains(name, "sort") && (callee.Pkg() == nil || callee.Pkg().Path() != "sort") {
			return
		}

		for _, arg := range call.Args {
			ast.Inspect(arg, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && p.info.Uses[id] == v {
					yes = true
				}
				return true
			})
		}
	})

	return yes
}

// reportMutexes reports mutexes that are locked during a durable call. During such a call the
// execution may leave memory, or wait for days.
func (p *program) reportMutexes(f *function) {
	type held struct {
		call *ast.CallExpr
		name string
	}

	var locks []held
	unlocked := map[string][]token.Pos{}
	var calls []*ast.CallExpr

	f.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}

		if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
			if m := p.callee(call); m != nil && m.Pkg() != nil && m.Pkg().Path() == "sync" {
				switch m.Name() {
				case "Lock", "RLock":
					locks = append(locks, held{call, types.ExprString(sel.X)})
				case "Unlock", "RUnlock":
					if _, later := p.parents[call].(*ast.DeferStmt); !later {
						name := types.ExprString(sel.X)
						unlocked[name] = append(unlocked[name], call.Pos())
					}
				}
			}
		}

		if p.durable(call) {
			calls = append(calls, call)
		}
	})

	for _, l := range locks {
		until := f.node.End()
		for _, pos := range unlocked[l.name] {
			if pos > l.call.Pos() {
				until = min(until, pos)
			}
		}
		for _, c := range calls {
			if l.call.Pos() < c.Pos() && c.Pos() < until {
				p.report(block, l.call, "%s is held over the durable call %s (%s), which may take days; unlock before it: coroutines run one at a time and need no mutex", l.name, p.text(c.Fun), p.at(c.Pos()))
				break
			}
		}
	}
}
