package perdurevet

import (
	"go/ast"
	"go/token"
	"go/types"
)

// handle returns the workflow or activity to which a handle belongs. The handle is the value of the
// expression e.
func (p *program) handle(e ast.Expr) boundTo {
	if e == nil {
		return boundTo{}
	}

	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		verb := faceFunc(p.callee(e))
		switch {
		case makers[verb] && len(e.Args) > 0:
			name, _ := p.constant(e.Args[0])
			kind := "workflow"
			if t := faceType(p.info.TypeOf(e)); t == "Activity" {
				kind = "activity"
			}
			return boundTo{Kind: kind, Name: name}
		case derivers[verb]:
			return p.handle(ast.Unparen(e.Fun).(*ast.SelectorExpr).X)
		}
	case *ast.Ident:
		if v, ok := p.info.Uses[e].(*types.Var); ok {
			return p.handleOf(v)
		}
	case *ast.SelectorExpr:
		if v, ok := p.info.Uses[e.Sel].(*types.Var); ok && isPackageLevel(v) {
			return p.handleOf(v)
		}
	}

	return boundTo{}
}

func (p *program) handleOf(v *types.Var) boundTo {
	if p.reassigned[v] {
		return boundTo{}
	}
	if v.Pkg() != p.pass.Pkg {
		var fact varFact
		p.pass.ImportObjectFact(v, &fact)
		return fact.Handle
	}
	value := p.initial[v]
	if id, ok := value.(*ast.Ident); ok && p.info.Uses[id] == v {
		return boundTo{}
	}
	return p.handle(value)
}

// boundName returns the name of the workflow or activity that a call binds code to.
func (p *program) boundName(verb string, call *ast.CallExpr) string {
	switch verb {
	case "Workflow.Bind", "Activity.Bind":
		return p.handle(ast.Unparen(call.Fun).(*ast.SelectorExpr).X).Name
	case "BindTx":
		return p.handle(call.Args[0]).Name
	default:
		name, _ := p.constant(call.Args[0])
		return name
	}
}

// boundHandle returns the source text of the handle that a call binds code to.
func (p *program) boundHandle(verb string, call *ast.CallExpr) string {
	switch verb {
	case "Workflow.Bind", "Activity.Bind":
		return p.text(ast.Unparen(call.Fun).(*ast.SelectorExpr).X)
	case "BindTx":
		return p.text(call.Args[0])
	}

	// var Charge = perdure.NewActivity("charge", charge).StepKeyedBy(…)
	var n ast.Node = call
	for parent := p.parents[n]; parent != nil; n, parent = parent, p.parents[parent] {
		switch parent := parent.(type) {
		case *ast.SelectorExpr, *ast.CallExpr, *ast.ParenExpr:
		case *ast.ValueSpec:
			for i, value := range parent.Values {
				if value == n && i < len(parent.Names) {
					return parent.Names[i].Name
				}
			}
			return ""
		case *ast.AssignStmt:
			for i, value := range parent.Rhs {
				if value == n && len(parent.Lhs) == len(parent.Rhs) {
					return p.text(parent.Lhs[i])
				}
			}
			return ""
		default:
			return ""
		}
	}

	return ""
}

// reportComputedNames reports computed names. The engine finds stored data by name, so a name must
// be the same in every build.
func (p *program) reportComputedNames() {
	for _, call := range p.calls {
		if p.isTest(call.Pos()) {
			continue
		}
		callee := p.callee(call)
		verb := faceFunc(callee)
		if verb == "" {
			continue
		}

		params := callee.Signature().Params()
		for i := range min(params.Len(), len(call.Args)) {
			v := params.At(i)
			if b, ok := types.Unalias(v.Type()).(*types.Basic); !ok || b.Kind() != types.String || !names[v.Name()] {
				continue
			}
			arg := call.Args[i]
			if _, constant := p.constant(arg); constant || !p.isComputed(arg, verb) {
				continue
			}
			if verb == "Do" {
				p.report(constname, arg, "the name of a step is computed (%s): use a constant, and put the variable part into perdure.StepKey", p.text(arg))
			} else {
				p.report(constname, arg, "the name given to perdure.%s is computed (%s): every build must find the data that is stored under it; use a constant, and put the variable part into the input or the key", verb, p.text(arg))
			}
		}
	}
}

// isComputed reports whether a name is put together from parts or comes from a loop. A parameter is
// not computed.
func (p *program) isComputed(e ast.Expr, verb string) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			found = found || !p.info.Types[n.Fun].IsType()
		case *ast.BinaryExpr:
			found = true
		case *ast.Ident:
			if v, ok := p.info.Uses[n].(*types.Var); ok && verb == "Do" {
				found = found || p.isLoopVariable(v)
			}
		}
		return !found
	})

	if id, ok := ast.Unparen(e).(*ast.Ident); ok && !found {
		if v, ok := p.info.Uses[id].(*types.Var); ok {
			if value := p.initial[v]; value != nil && !isPackageLevel(v) {
				if _, same := ast.Unparen(value).(*ast.Ident); !same {
					if _, constant := p.constant(value); !constant {
						return p.isComputed(value, verb)
					}
				}
			}
		}
	}

	return found
}

// isLoopVariable reports whether a variable is a loop variable.
func (p *program) isLoopVariable(v *types.Var) bool {
	for id, obj := range p.info.Defs {
		if obj != v {
			continue
		}
		switch parent := p.parents[id].(type) {
		case *ast.RangeStmt:
			return (parent.Key == id || parent.Value == id) && !p.allConstant(parent.X)
		case *ast.AssignStmt:
			loop, ok := p.parents[parent].(*ast.ForStmt)
			return ok && loop.Init == ast.Stmt(parent)
		}
		return false
	}
	return false
}

// allConstant reports whether an expression is a literal list of constants.
func (p *program) allConstant(e ast.Expr) bool {
	list, ok := ast.Unparen(e).(*ast.CompositeLit)
	if !ok {
		return false
	}
	for _, element := range list.Elts {
		if _, constant := p.constant(element); !constant {
			return false
		}
	}
	return true
}

func (p *program) isTest(pos token.Pos) bool {
	name := p.pass.Fset.File(pos).Name()
	return len(name) > 8 && name[len(name)-8:] == "_test.go"
}

// reportEscapes reports contexts and futures that outlive the call that they belong to.
func (p *program) reportEscapes() {
	for n := range p.parents {
		switch n := n.(type) {
		case *ast.StructType:
			for _, field := range n.Fields.List {
				if name := p.heldTypeOf(field.Type, "WorkflowCtx", "EntityCtx"); name != "" {
					p.report(escape, field, "%s kept in a field: it belongs to one call of one function, and another coroutine would use it at the wrong time; pass it as an argument", name)
				}
			}
		case *ast.ChanType:
			if name := p.heldTypeOf(n.Value, "WorkflowCtx", "EntityCtx", "Future"); name != "" {
				p.report(escape, n, "%s sent over a channel: it belongs to one execution and its coroutines; pass it as an argument", name)
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				v, ok := p.info.Defs[id].(*types.Var)
				if !ok || !isPackageLevel(v) {
					continue
				}
				if name := heldType(v.Type(), "WorkflowCtx", "EntityCtx", "Future"); name != "" {
					p.report(escape, id, "%s kept in package variable %s: it belongs to one execution, and all executions share the variable; use a local variable or an argument", name, id.Name)
				}
			}
		}
	}
}

func (p *program) heldTypeOf(e ast.Expr, types ...string) string {
	return heldType(p.info.TypeOf(e), types...)
}

// heldType returns which of the named types of package perdure a variable of type t holds, directly
// or as an element.
func heldType(t types.Type, names ...string) string {
	for t != nil {
		for _, name := range names {
			if faceType(t) == name {
				return name
			}
		}

		switch u := types.Unalias(t).(type) {
		case *types.Pointer:
			t = u.Elem()
		case *types.Slice:
			t = u.Elem()
		case *types.Array:
			t = u.Elem()
		case *types.Map:
			t = u.Elem()
		default:
			return ""
		}
	}

	return ""
}
