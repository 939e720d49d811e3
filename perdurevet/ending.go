package perdurevet

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// reportDropped reports durable calls whose error is ignored.
func (p *program) reportDropped(f *function) {
	f.each(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.ExprStmt:
			if call, ok := ast.Unparen(n.X).(*ast.CallExpr); ok {
				p.reportDroppedCall(f, call)
			}
		case *ast.AssignStmt:
			if len(n.Lhs) != 1 || len(n.Rhs) != 1 {
				return
			}
			id, ok := n.Lhs[0].(*ast.Ident)
			call, isCall := ast.Unparen(n.Rhs[0]).(*ast.CallExpr)
			if ok && isCall && id.Name == "_" && faceFunc(p.callee(call)) == "Workflow.ContinueAsNew" {
				p.reportDroppedContinue(call)
			}
		}
	})
}

func (p *program) reportDroppedCall(f *function, call *ast.CallExpr) {
	verb := faceFunc(p.callee(call))
	if verb == "Workflow.ContinueAsNew" {
		p.reportDroppedContinue(call)
		return
	}

	if verb == "" && !f.role.isReplayed() || verb != "" && !p.hasCallerParam(call) {
		return
	}
	if verb == "" && !p.durable(call) {
		return
	}
	t := p.info.TypeOf(call)
	if verb != "" && verb != "Go" && strings.HasSuffix(verb, ".Go") && faceType(t) == "Future" {
		p.report(unchecked, call, "the future of %s is dropped: its error is lost, and the work is withdrawn when the workflow returns; keep the future and call Get, or perdure.All", p.text(call.Fun))
		return
	}

	if !lastIsError(t) {
		return
	}
	what := "it may be ErrCanceled or ErrTimeout, and the code would continue"
	if !p.durable(call) {
		what = "the call may have failed"
	}
	p.report(unchecked, call, "the error of %s is dropped: %s; check it", p.text(call.Fun), what)
}

func (p *program) reportDroppedContinue(call *ast.CallExpr) {
	p.report(continueas, call, "%s does nothing by itself: return its error to end this run and start the next", p.text(call.Fun))
}

// hasCallerParam reports whether a verb receives a context, a client or a transaction.
func (p *program) hasCallerParam(call *ast.CallExpr) bool {
	if p.durable(call) {
		return true
	}
	callee := p.callee(call)
	return callee != nil && (hasParam(callee.Signature(), "Caller") || hasParam(callee.Signature(), "Sender") || hasParam(callee.Signature(), "Client"))
}

func lastIsError(t types.Type) bool {
	if tuple, ok := t.(*types.Tuple); ok {
		if tuple.Len() == 0 {
			return false
		}
		t = tuple.At(tuple.Len() - 1).Type()
	}
	return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
}

// reportContinues reports ContinueAsNew of a workflow in the code of another workflow.
func (p *program) reportContinues(f *function) {
	home := f
	for home != nil && len(home.binding) == 0 {
		home = home.outer
	}
	if home == nil {
		return
	}

	var mine []string
	for _, b := range home.binding {
		if b.Kind != "workflow" || b.Name == "" {
			return
		}
		mine = append(mine, b.Name)
	}

	f.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || faceFunc(p.callee(call)) != "Workflow.ContinueAsNew" {
			return
		}
		sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if !ok {
			return
		}
		h := p.handle(sel.X)
		if h.Name != "" && !slices.Contains(mine, h.Name) {
			p.report(continueas, call, "this is the code of workflow %s, which cannot continue as %s; continue as itself, or start the other: %s.Start(ctx, in)", strings.Join(mine, ", "), h.Name, p.text(sel.X))
		}
	})
}

// reportDefers reports plain defers whose effects should happen only when the execution really
// ends. A plain defer also runs when the run leaves memory.
func (p *program) reportDefers(f *function) {
	f.each(func(n ast.Node) {
		d, ok := n.(*ast.DeferStmt)
		if !ok {
			return
		}
		const why = "a plain defer runs whenever the execution leaves memory, with zero results; use ctx.Defer or ctx.OnFailure"

		if call := p.firstDurable(d.Call); call != nil {
			p.report(deferred, d, "durable call %s in a plain defer: %s", p.text(call.Fun), why)
			return
		}

		ast.Inspect(d, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			switch {
			case !ok:
			case faceFunc(p.callee(call)) == "WorkflowCtx.Log":
				p.report(deferred, d, "%s in a plain defer: %s", p.text(call), why)
			case p.outward(f, call):
				p.report(deferred, d, "%s in a plain defer changes something outside the execution: %s", p.text(call.Fun), why)
			}
			return true
		})
	})
}

// harmless are methods that only release something that the function acquired.
var harmless = set("Unlock", "RUnlock", "Close", "Stop", "Done", "Cancel", "Release")

// outward reports whether a call is a method call on a value that the function does not own.
func (p *program) outward(f *function, call *ast.CallExpr) bool {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || harmless[sel.Sel.Name] {
		return false
	}
	if _, method := p.info.Selections[sel]; !method {
		return false // a function of a package
	}
	v, _ := p.root(sel.X)
	if v == nil || isCtx(v.Type()) {
		return false
	}
	home := f.declaringFunction(v)
	return isPackageLevel(v) || v == f.receiver() || home != nil && !home.role.isReplayed()
}
