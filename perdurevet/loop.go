package perdurevet

import (
	"go/ast"
	"go/constant"
	"go/types"
)

// unkeyed is a call of perdure.Do without a StepKey. Such a step is identified only by its name and
// by how often the coroutine has used that name before.
type unkeyed struct {
	Name  string
	Where string
}

// findUnkeyed finds the functions that contain a step without a key. A caller in a loop would
// repeat that step.
func (p *program) findUnkeyed() {
	for changed := true; changed; {
		changed = false
		for _, f := range p.functions {
			if f.unkeyed != nil || f.role != roleWorkflow {
				continue
			}

			f.each(func(n ast.Node) {
				if f.unkeyed != nil {
					return
				}
				switch n := n.(type) {
				case *ast.CallExpr:
					f.unkeyed = p.unkeyedCall(n)
				case *ast.FuncLit:
					if g := p.byNode[n]; g != nil && !p.ownCoroutine(n) && p.isCalledHere(n) {
						f.unkeyed = g.unkeyed
					}
				}
			})

			changed = changed || f.unkeyed != nil
		}
	}
}

// isCalledHere reports whether a literal runs where it is written: the code calls it immediately,
// or passes it to a verb.
func (p *program) isCalledHere(lit *ast.FuncLit) bool {
	_, ok := p.parents[lit].(*ast.CallExpr)
	return ok
}

// unkeyedCall returns the step without a key that a call makes, directly or through its callee.
func (p *program) unkeyedCall(call *ast.CallExpr) *unkeyed {
	callee := p.callee(call)
	if faceFunc(callee) == "Do" && len(call.Args) > 1 {
		name, constant := p.constant(call.Args[1])
		if !constant || p.hasKey(call) || p.allows.silence(stepkey, p.pass.Fset.Position(call.Pos())) {
			return nil
		}
		return &unkeyed{name, p.at(call.Pos())}
	}

	if g := p.resolve(call.Fun); g != nil {
		if g.role == roleWorkflow {
			return g.unkeyed
		}
		return nil
	}

	var fact funcFact
	if callee != nil && callee.Pkg() != p.pass.Pkg && p.pass.ImportObjectFact(callee, &fact) {
		return fact.Unkeyed
	}
	return nil
}

// hasKey reports whether a call of Do has a key. It assumes that options in variables contain a
// key.
func (p *program) hasKey(call *ast.CallExpr) bool {
	if call.Ellipsis.IsValid() {
		return true
	}

	for _, arg := range call.Args[min(3, len(call.Args)):] {
		if lit, ok := ast.Unparen(arg).(*ast.CompositeLit); ok && faceType(p.info.TypeOf(lit)) == "RetryPolicy" {
			continue
		}
		opt, ok := ast.Unparen(arg).(*ast.CallExpr)
		if !ok && faceType(p.info.TypeOf(arg)) != "RetryPolicy" {
			return true
		}
		if ok {
			if verb := faceFunc(p.callee(opt)); verb == "" || verb == "StepKey" {
				return true
			}
		}
	}

	return false
}

// reportLoops reports steps without a key in a loop.
func (p *program) reportLoops(f *function) {
	f.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || !p.inLoop(call) {
			return
		}
		u := p.unkeyedCall(call)
		switch {
		case u == nil:
		case faceFunc(p.callee(call)) == "Do":
			p.report(stepkey, call, "perdure.Do %q in a loop needs perdure.StepKey: without one, their order identifies the steps, and a changed loop gets wrong results", u.Name)
		default:
			p.report(stepkey, call, "%s makes step %q without a key (%s) and is called in a loop: then only their order identifies the steps; add a perdure.StepKey to that perdure.Do", p.text(call.Fun), u.Name, u.Where)
		}
	})
}

// inLoop reports whether a loop repeats a call within the same coroutine.
func (p *program) inLoop(call *ast.CallExpr) bool {
	var n ast.Node = call
	for parent := p.parents[n]; parent != nil; n, parent = parent, p.parents[parent] {
		switch parent := parent.(type) {
		case *ast.ForStmt:
			if n == parent.Body || n == parent.Cond || n == parent.Post {
				return true
			}
		case *ast.RangeStmt:
			if n == parent.Body {
				return true
			}
		case *ast.FuncLit:
			if p.ownCoroutine(parent) || !p.isCalledHere(parent) {
				return false // if a loop calls the closure, that call is reported
			}
		case *ast.FuncDecl:
			return false
		}
	}

	return false
}

// ownCoroutine reports whether a literal becomes a coroutine, or is the code of a workflow.
func (p *program) ownCoroutine(lit *ast.FuncLit) bool {
	call, ok := p.parents[lit].(*ast.CallExpr)
	if !ok {
		return false
	}
	verb := faceFunc(p.callee(call))
	return coroutines[verb] || binds[verb] != ""
}

// constant returns the value of a constant string expression.
func (p *program) constant(e ast.Expr) (string, bool) {
	return stringOf(p.info.Types[e])
}

func stringOf(tv types.TypeAndValue) (string, bool) {
	if tv.Value == nil || tv.Value.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(tv.Value), true
}
