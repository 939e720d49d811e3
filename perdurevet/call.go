package perdurevet

import (
	"go/ast"
	"go/types"
	"strings"
)

// durable reports whether the journal records a call. The journal records the verbs of package
// perdure that are methods of a workflow context or have one as an argument. A function that
// receives a workflow context and may make such a call is durable too.
func (p *program) durable(call *ast.CallExpr) bool {
	if tv := p.info.Types[call.Fun]; tv.IsType() || tv.IsBuiltin() {
		return false
	}
	verb := faceFunc(p.callee(call))
	if accessors[verb] || scopes[verb] || draws[verb] {
		return false
	}

	if strings.HasPrefix(verb, "WorkflowCtx.") {
		return true
	}

	for _, arg := range call.Args {
		if isCtx(p.info.TypeOf(arg)) {
			return true
		}
	}

	return false
}

// reportDurableInStep reports durable calls in places where the journal does not record them.
func (p *program) reportDurableInStep(f *function) {
	place := "a step"
	if f.role == roleRead {
		place = "a query or validator"
	}

	f.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		verb := faceFunc(p.callee(call))

		switch {
		case draws[verb]:
			p.report(nested, call, "%s inside %s: %s does not run on replay, so later values would differ; call it before, or use math/rand here", p.text(call.Fun), place, place)
		case p.durable(call):
			p.report(nested, call, "durable call %s inside %s: the journal does not record it; make it in the workflow, before or after", p.text(call.Fun), place)
		default:
			g := p.closure(call)
			if g == nil {
				return
			}
			if inner := p.firstDurable(g.body); inner != nil {
				p.report(nested, call, "durable call %s (%s) inside %s, through %s: the journal does not record it; make it in the workflow, before or after", p.text(inner.Fun), p.at(inner.Pos()), place, p.text(call.Fun))
			}
		}
	})
}

// reportOuterContexts reports a function that uses the context of the function around it instead of
// its own context.
func (p *program) reportOuterContexts(f *function) {
	owner := f.owner()
	if owner == nil {
		return
	}

	f.each(func(n ast.Node) {
		id, ok := n.(*ast.Ident)
		if !ok {
			return
		}
		v, ok := p.info.Uses[id].(*types.Var)
		if !ok || v.IsField() || !isCtx(v.Type()) || owner.contains(v.Pos()) || isPackageLevel(v) {
			return
		}
		if sel, ok := p.parents[id].(*ast.SelectorExpr); ok && accessors["WorkflowCtx."+sel.Sel.Name] {
			return
		}
		p.report(outerctx, id, "%s belongs to the function around this one, which runs in another coroutine or scope; use the WorkflowCtx of this function", id.Name)
	})
}

// reportClients reports an App or a Client in workflow code, whose calls must be journaled, and in
// the code of entities and services, which must not wait.
func (p *program) reportClients(f *function) {
	if f.role == roleKey {
		return
	}

	f.each(func(n ast.Node) {
		id, ok := n.(*ast.Ident)
		if !ok {
			return
		}
		v, ok := p.info.Uses[id].(*types.Var)
		if !ok {
			return
		}

		name := faceType(v.Type())
		if name != "App" && name != "Client" && !operates[name] {
			return
		}

		if f.role.isHandler() {
			p.report(client, id, "%s %s used by %s: waiting for a call could cause a deadlock, because the other calls of the key wait; send with the EntityCtx instead: workflow.Start(ctx, in)", name, id.Name, f.role.where())
			return
		}

		p.report(client, id, "%s %s used in workflow code: %s", name, id.Name, useVerb)
	})
}

// operates are the methods of an App that return a group of operator verbs, such as app.Breakers().
var operates = map[string]bool{
	"Breakers": true, "DeadTasks": true, "Entities": true, "Executions": true, "Histories": true, "Limits": true,
	"Locks": true, "Mailboxes": true, "Queues": true, "Schedules": true, "Signals": true, "Tasks": true,
}

// reportDirectCalls reports direct calls of the code of workflows and activities. A program should
// call such code through the handle of the workflow or activity.
func (p *program) reportDirectCalls(f *function) {
	f.each(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		var bound []boundTo
		where := ""

		if g := p.resolve(call.Fun); g != nil {
			bound = g.binding
		} else if callee := p.callee(call); callee != nil {
			var fact funcFact
			if b, ok := p.foreign[callee]; ok {
				bound = []boundTo{b}
			} else if callee.Pkg() != p.pass.Pkg && p.pass.ImportObjectFact(callee, &fact) {
				bound = fact.Bound
				where = callee.Pkg().Name() + "."
			}
		}

		if len(bound) == 0 {
			return
		}
		b := bound[0]
		handle := where + b.Handle
		if b.Handle == "" {
			handle = "its handle"
		}

		if b.Kind == "workflow" {
			p.report(directcall, call, "direct call of %s, the code of workflow %s: it runs as part of this execution, under its key; write %s.Run(ctx, …) for a child, or move the shared code into another function", p.text(call.Fun), b.Name, handle)
			return
		}

		p.report(directcall, call, "direct call of %s, the code of activity %s: it is not journaled and runs again on every replay; write %s.Run(ctx, …)", p.text(call.Fun), b.Name, handle)
	})
}

// reportTransactions reports calls that bypass or end the transaction of a transactional activity.
func (p *program) reportTransactions(f *function) {
	f.each(func(n ast.Node) {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return
		}
		m, ok := p.info.Uses[sel.Sel].(*types.Func)
		if !ok || m.Signature().Recv() == nil {
			return
		}
		t := p.info.TypeOf(sel.X)
		switch {
		case pools[typeName(t)]:
			p.report(pool, sel, "%s is a pool or connection: its changes are not part of the transaction of this activity, and may happen twice; use the transaction that the function receives", p.text(sel.X))
		case (m.Name() == "Commit" || m.Name() == "Rollback") && p.isTx(f, t):
			p.report(pool, sel, "%s ends the transaction before Perdure has stored the outcome of the activity in it; return instead: Perdure commits, or rolls back if you return an error", p.text(sel))
		}
	})
}

// isTx reports whether a type is the transaction type of f.
func (p *program) isTx(f *function, t types.Type) bool {
	for ; f != nil; f = f.outer {
		if params := f.sig.Params(); params.Len() == 3 && isContext(params.At(0).Type()) {
			return t != nil && types.Identical(params.At(1).Type(), t)
		}
	}
	return false
}
