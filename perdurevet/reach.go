package perdurevet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// reach is a forbidden action of a function, direct or through other functions.
type reach struct {
	Check check
	What  string   // such as time.Now
	Hint  string   // the problem and what to write instead
	Where string   // file and line
	via   string   // the function of another package that does the action
	node  ast.Node // the place of the action
}

// funcFact is what the analysis of a package tells the analysis of other packages about a function.
type funcFact struct {
	Reaches []reach
	Handler []reach // the part that is forbidden in a handler
	Unkeyed *unkeyed
	Bound   []boundTo
	Mutator bool // a method that changes data behind its receiver
}

// varFact is what the analysis of a package tells the analysis of other packages about a package
// variable.
type varFact struct {
	Changed string // where it is assigned to
	Handle  boundTo
}

// boundTo is a workflow or an activity.
type boundTo struct {
	Kind   string // workflow, activity
	Name   string // its constant name, if known
	Handle string // how code writes its handle, if known
}

// AFact marks a fact.
func (*funcFact) AFact() {}

// AFact marks a fact.
func (*varFact) AFact() {}

func (f *funcFact) String() string {
	var words []string
	for _, r := range f.Reaches {
		words = append(words, r.What)
	}
	if f.Unkeyed != nil {
		words = append(words, "unkeyed "+f.Unkeyed.Name)
	}
	for _, b := range f.Bound {
		words = append(words, b.Kind+" "+b.Name)
	}
	return strings.Join(words, ", ")
}

func (f *varFact) String() string {
	if f.Changed != "" {
		return "changes"
	}
	return f.Handle.Kind + " " + f.Handle.Name
}

// computeReach computes the direct and indirect actions of every function.
func (p *program) computeReach() {
	for _, f := range p.functions {
		p.scan(f)
		f.summary = map[check]reach{}
		for _, r := range f.direct {
			if _, ok := f.summary[r.Check]; !ok {
				f.summary[r.Check] = r
			}
		}
		f.handler = map[check]reach{}
		for _, r := range p.inHandlers(f) {
			if _, ok := f.handler[r.Check]; !ok {
				f.handler[r.Check] = r
			}
		}
	}

	for changed := true; changed; {
		changed = false
		for _, f := range p.functions {
			for _, u := range f.callees {
				if u.f.role != roleNone {
					continue // judge reports this when it looks at that function
				}
				changed = inherit(f.summary, u.f.summary) || changed
				changed = inherit(f.handler, u.f.handler) || changed
			}
		}
	}
}

// inherit adds the actions of a callee to its caller. It reports whether any of them is new.
func inherit(caller, callee map[check]reach) (changed bool) {
	for c, r := range callee {
		if _, ok := caller[c]; !ok {
			caller[c] = r
			changed = true
		}
	}
	return changed
}

// scan finds the actions of the statements of a function.
func (p *program) scan(f *function) {
	note := func(r reach) {
		if !p.allows.silence(r.Check, p.pass.Fset.Position(r.node.Pos())) {
			f.direct = append(f.direct, r)
		}
	}

	add := func(c check, at ast.Node, what, hint string) {
		note(reach{Check: c, What: what, Hint: hint, Where: p.at(at.Pos()), node: at})
	}
	inSelect := map[ast.Node]bool{}

	f.each(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.GoStmt:
			add(goroutine, n, "a go statement", useGo)
		case *ast.SelectStmt:
			add(channel, n, "select", "it picks at random, and blocks the worker; use perdure.Select on futures")
			for _, clause := range n.Body.List {
				if comm := clause.(*ast.CommClause).Comm; comm != nil {
					ast.Inspect(comm, func(n ast.Node) bool { inSelect[n] = true; return true })
				}
			}
		case *ast.SendStmt:
			if !inSelect[n] {
				add(channel, n, "a send on a channel", "it blocks the worker; between coroutines share variables or use a signal")
			}
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && !inSelect[n] {
				add(channel, n, "a receive from a channel", "it blocks the worker, and the value is not journaled; use a signal, a promise or a future")
			}
		case *ast.RangeStmt:
			if t := p.info.TypeOf(n.X); t != nil {
				if _, ok := t.Underlying().(*types.Chan); ok {
					add(channel, n, "a range over a channel", "it blocks the worker, and the value is not journaled; use signal.Receive in a loop")
				}
			}
		case *ast.CallExpr:
			p.scanCall(f, n, add)
		case *ast.FuncLit:
			// If the literal takes a context, the SDK calls it, as a step.
			if inner := p.byNode[n]; inner != nil && !hasContext(inner.sig) {
				f.callees = append(f.callees, use{n, inner})
			}
		case *ast.Ident:
			p.scanIdent(f, n, note)
		}
	})
}

// scanCall finds calls that pass on a context.Context. It skips ordinary functions.
func (p *program) scanCall(f *function, call *ast.CallExpr, add func(check, ast.Node, string, string)) {
	if f.role == roleNone {
		return // an ordinary function may have received a context
	}
	callee := p.callee(call)
	if callee != nil && callee.Pkg() != nil && (inFace(callee) || slices.Contains([]string{"context", "log/slog"}, callee.Pkg().Path())) {
		return
	}
	if tv, ok := p.info.Types[call.Fun]; ok && (tv.IsType() || tv.IsBuiltin()) {
		return
	}
	for _, arg := range call.Args {
		if isContext(p.info.TypeOf(arg)) {
			add(context, call, "a context.Context passed to "+p.text(call.Fun), useBody)
		}
	}
}

// scanIdent finds uses of forbidden functions and of variables that change.
func (p *program) scanIdent(f *function, id *ast.Ident, note func(reach)) {
	node := p.whole(id)
	found := reach{Where: p.at(node.Pos()), node: node}

	switch obj := p.info.Uses[id].(type) {
	case *types.Func:
		obj = obj.Origin()
		if p.isStepCode(node, obj) {
			return
		}
		if r, ok := ruleFor(obj); ok {
			found.Check, found.What, found.Hint = r.check, p.short(obj), r.hint
			note(found)
			return
		}
		if g := p.byObj[obj]; g != nil {
			f.callees = append(f.callees, use{node, g})
			return
		}

		// A fact says what a function of another package reaches.
		var fact funcFact
		if obj.Pkg() != p.pass.Pkg && p.pass.ImportObjectFact(obj, &fact) {
			for _, r := range fact.Reaches {
				r.node, r.via = node, p.short(obj)
				note(r)
			}
			for _, r := range fact.Handler {
				r.node, r.via = node, p.short(obj)
				if !p.allows.silence(r.Check, p.pass.Fset.Position(node.Pos())) {
					f.imported = append(f.imported, r)
				}
			}
		}
	case *types.Var:
		if !isPackageLevel(obj) {
			return
		}
		if hint, ok := files[obj.Name()]; ok && obj.Pkg().Path() == "os" {
			found.Check, found.What, found.Hint = effect, "os."+obj.Name(), hint
			note(found)
			return
		}

		if value := p.initial[obj]; value != nil && p.isCallee(id) { // var now = time.Now
			if g := p.resolve(id); g != nil {
				f.callees = append(f.callees, use{node, g})
				return
			}
			if target := p.mentionedFunction(value); target != nil {
				if r, ok := ruleFor(target); ok {
					found.Check, found.What, found.Hint = r.check, p.short(target)+" (through "+obj.Name()+")", r.hint
					note(found)
					return
				}
			}
		}

		if where := p.changePosition(obj); where != "" && !f.test {
			found.Check, found.What, found.Hint = state, "package variable "+obj.Name(), "it changes ("+where+"), so "+useState
			note(found)
		}
	}
}

// reportReplays reports actions of workflow code, direct or indirect, that may have another result
// on replay.
func (p *program) reportReplays(f *function) {
	for _, r := range f.direct {
		if r.via != "" {
			p.reportReach(f, r, r.node, r.via)
			continue
		}
		p.report(r.Check, r.node, "%s in %s: %s", r.What, f.role.where(), r.Hint)
	}

	for _, u := range f.callees {
		if u.f.role != roleNone {
			continue
		}
		for _, r := range u.f.summary {
			if u.f.obj != nil {
				p.reportReach(f, r, u.at, p.short(u.f.obj))
			} else if at, ok := u.at.(ast.Expr); ok {
				p.reportReach(f, r, at, p.text(at))
			}
		}
	}
}

// reportReach reports an action of a function through another function.
func (p *program) reportReach(f *function, r reach, at ast.Node, via string) {
	p.report(r.Check, at, "%s reaches %s (%s) in %s: %s", via, r.What, r.Where, f.role.where(), r.Hint)
}

// export writes the facts for other packages.
func (p *program) export() {
	for obj, f := range p.byObj {
		if !obj.Exported() {
			continue
		}
		fact := &funcFact{Unkeyed: f.unkeyed, Bound: f.binding, Mutator: f.mutator}

		if f.role == roleNone {
			for _, c := range checks {
				if r, ok := f.summary[c.name]; ok {
					r.node, r.via = nil, ""
					fact.Reaches = append(fact.Reaches, r)
				}
				if r, ok := f.handler[c.name]; ok {
					r.node, r.via = nil, ""
					fact.Handler = append(fact.Handler, r)
				}
			}
		}

		if fact.Unkeyed != nil || fact.Mutator || len(fact.Bound) > 0 || len(fact.Reaches) > 0 || len(fact.Handler) > 0 {
			p.pass.ExportObjectFact(obj, fact)
		}
	}

	scope := p.pass.Pkg.Scope()
	for _, name := range scope.Names() {
		v, ok := scope.Lookup(name).(*types.Var)
		if !ok {
			continue
		}
		fact := &varFact{}
		if pos, ok := p.mutable[v]; ok {
			fact.Changed = p.at(pos)
		} else {
			fact.Handle = p.handle(p.initial[v])
		}
		if *fact != (varFact{}) {
			p.pass.ExportObjectFact(v, fact)
		}
	}
}

// whole returns the expression that ends with an identifier, such as time.Now for Now.
func (p *program) whole(id *ast.Ident) ast.Expr {
	if sel, ok := p.parents[id].(*ast.SelectorExpr); ok && sel.Sel == id {
		return sel
	}
	return id
}

// isCallee reports whether a call calls the name.
func (p *program) isCallee(id *ast.Ident) bool {
	e := p.whole(id)
	call, ok := p.parents[e].(*ast.CallExpr)
	return ok && call.Fun == e
}

// isStepCode reports whether code only passes a function on as the code of a step. In that case,
// other code calls the function, with a context.
func (p *program) isStepCode(e ast.Expr, f *types.Func) bool {
	var n ast.Node = e
	parent := p.parents[n]
	for {
		switch parent.(type) {
		case *ast.IndexExpr, *ast.IndexListExpr, *ast.ParenExpr:
			n, parent = parent, p.parents[parent]
			continue
		}
		break
	}

	call, ok := parent.(*ast.CallExpr)
	if ok && call.Fun == n {
		return false
	}
	if hasContext(f.Signature()) {
		return true
	}

	return ok && bodies[faceFunc(p.callee(call))] != roleNone
}

// files are variables of package os through which code reaches the outside world.
var files = map[string]string{"Stdin": useStep, "Stdout": useLog, "Stderr": useLog, "Args": useInput}
