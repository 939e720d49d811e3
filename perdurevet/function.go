package perdurevet

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// role is the purpose of a function.
type role int

const (
	roleNone     role = iota // an ordinary function: its callers determine what it may do
	roleWorkflow             // code of a workflow: runs again on every replay
	roleKey                  // derives a key: must return the same key for the same input
	roleMachine              // a method of an event-driven workflow
	// code of a step or an activity: does not run on replay
	roleStep
	roleTx // code of a step inside a transaction of the user's database
	// an operation or a view of an entity, or a function that receives an EntityCtx
	roleEntity
	roleService // an RPC of a service
	roleRead    // answers a query or validates: must not change anything
)

// isReplayed reports whether code with this role runs again on replay. Such code must behave the
// same each time.
func (r role) isReplayed() bool { return r == roleWorkflow || r == roleKey || r == roleMachine }

// isStep reports whether the role is the code of a step. Such code does not run on replay.
func (r role) isStep() bool { return r == roleStep || r == roleTx }

// isHandler reports whether code with this role answers a call of a key. Such code does not run on
// replay either.
func (r role) isHandler() bool { return r == roleEntity || r == roleService }

// where names the role in a finding.
func (r role) where() string {
	switch r {
	case roleKey:
		return "a function that derives a key"
	case roleMachine:
		return "an event-driven workflow"
	case roleEntity:
		return "an entity"
	case roleService:
		return "a service"
	default:
		return "workflow code"
	}
}

// function is a declared function or a literal.
type function struct {
	node  ast.Node // *ast.FuncDecl or *ast.FuncLit
	body  *ast.BlockStmt
	sig   *types.Signature
	obj   *types.Func // nil for a literal
	outer *function   // the function around a literal
	role  role
	test  bool // in a _test.go file

	direct   []reach         // what the statements of the function itself do
	callees  []use           // functions of this package that it mentions
	summary  map[check]reach // everything that the function reaches, by check
	handler  map[check]reach // the part of summary that is forbidden in a handler
	imported []reach         // the part of summary that functions of other packages reach
	mutator  bool            // a method that changes data behind its receiver
	unkeyed  *unkeyed        // a step without a key that a caller in a loop would repeat
	binding  []boundTo       // the workflows and activities whose code it is
}

// use is a mention of a function.
type use struct {
	at ast.Node
	f  *function
}

// hasCtx reports whether the function receives a workflow context.
func (f *function) hasCtx() bool { return hasParam(f.sig, "WorkflowCtx") }

// owner returns the innermost function that receives a workflow context: f itself or a function
// around it.
func (f *function) owner() *function {
	for ; f != nil; f = f.outer {
		if f.hasCtx() {
			return f
		}
	}
	return nil
}

// contains reports whether a position is inside the function.
func (f *function) contains(pos token.Pos) bool { return f.node.Pos() <= pos && pos < f.node.End() }

// declaringFunction returns the function that declares a variable: f, a function around it, or nil.
func (f *function) declaringFunction(v *types.Var) *function {
	for ; f != nil; f = f.outer {
		if f.contains(v.Pos()) {
			return f
		}
	}
	return nil
}

// receiver returns the receiver of f if f is a method. If f is inside a method, it returns the
// receiver of that method.
func (f *function) receiver() *types.Var {
	for f.outer != nil {
		f = f.outer
	}
	return f.sig.Recv()
}

// each visits the nodes of the function. It skips function literals inside the function, which are
// functions of their own.
func (f *function) each(visit func(ast.Node)) {
	ast.Inspect(f.body, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		visit(n)
		_, literal := n.(*ast.FuncLit)
		return !literal
	})
}

// collect finds the parent of every node, and all functions. A function comes before the literals
// inside it.
func (p *program) collect() {
	for _, file := range p.pass.Files {
		test := strings.HasSuffix(p.pass.Fset.File(file.Pos()).Name(), "_test.go")
		var stack []ast.Node
		var around []*function

		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				if top := stack[len(stack)-1]; len(around) > 0 && around[len(around)-1].node == top {
					around = around[:len(around)-1]
				}
				stack = stack[:len(stack)-1]
				return true
			}

			if len(stack) > 0 {
				p.parents[n] = stack[len(stack)-1]
			}
			stack = append(stack, n)
			f := &function{node: n, test: test}

			switch n := n.(type) {
			case *ast.FuncDecl:
				obj, ok := p.info.Defs[n.Name].(*types.Func)
				if n.Body == nil || !ok {
					return true
				}
				f.body, f.obj, f.sig = n.Body, obj, obj.Signature()
				p.byObj[obj] = f
			case *ast.FuncLit:
				sig, ok := types.Unalias(p.info.TypeOf(n)).(*types.Signature)
				if !ok {
					return true
				}
				f.body, f.sig = n.Body, sig
				if len(around) > 0 {
					f.outer = around[len(around)-1]
				}
			default:
				if call, ok := n.(*ast.CallExpr); ok {
					p.calls = append(p.calls, call)
				}
				p.recordVariables(n)
				return true
			}

			p.byNode[n] = f
			p.functions = append(p.functions, f)
			around = append(around, f)
			return true
		})
	}
}

// recordVariables records the initial values of variables that are not assigned again.
func (p *program) recordVariables(n ast.Node) {
	remember := func(name *ast.Ident, value ast.Expr) {
		if v, ok := p.info.Defs[name].(*types.Var); ok {
			p.initial[v] = value
		}
	}

	switch n := n.(type) {
	case *ast.ValueSpec:
		if len(n.Names) == len(n.Values) {
			for i, name := range n.Names {
				remember(name, n.Values[i])
			}
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			name, ok := left.(*ast.Ident)
			if !ok {
				continue
			}

			if v, again := p.info.Uses[name].(*types.Var); again {
				p.reassigned[v] = true
				if n.Tok == token.ASSIGN && len(n.Lhs) == len(n.Rhs) && p.initial[v] == nil {
					if _, again := p.first[v]; again {
						p.first[v] = &ast.BadExpr{} // unknown
					} else {
						p.first[v] = n.Rhs[i] // var f func(); f = func() { … f() … }
					}
				}
			} else if len(n.Lhs) == len(n.Rhs) {
				remember(name, n.Rhs[i])
			}
		}
	}
}

// assign gives every function its role: by its parameters, by the verb that receives it, or by the
// function around it.
func (p *program) assign() {
	for _, call := range p.calls {
		p.assignArguments(call)
	}

	for _, f := range p.functions { // outer functions first
		switch {
		case f.hasCtx():
			f.role = roleWorkflow
		case hasParam(f.sig, "EntityCtx"):
			if f.role != roleService {
				f.role = roleEntity
			}
		case f.role != roleNone:
		case f.sig.Recv() != nil && f.sig.Results().Len() == 1 && faceType(f.sig.Results().At(0).Type()) == "Actions":
			f.role = roleMachine
		case f.outer == nil:
		case f.outer.role.isReplayed() && hasContext(f.sig):
			// This literal takes a context.Context, which workflow code does not have. So the SDK
			// calls the literal, as a step.
			f.role = roleStep
		default:
			f.role = f.outer.role
		}
	}
}

// assignArguments gives roles to functions that a verb of the face receives. It also records the
// workflow or activity whose code such a function is.
func (p *program) assignArguments(call *ast.CallExpr) {
	callee := p.callee(call)
	verb := faceFunc(callee)
	if verb == "" {
		return
	}

	r, kind := bodies[verb], binds[verb]
	for _, arg := range call.Args {
		if _, ok := types.Unalias(p.info.TypeOf(arg)).(*types.Signature); !ok {
			continue
		}
		f := p.resolve(arg)
		if f != nil && r != roleNone {
			f.role = r
		}
		if kind == "" {
			continue
		}

		b := boundTo{Kind: kind, Name: p.boundName(verb, call), Handle: p.boundHandle(verb, call)}
		if f != nil {
			f.binding = append(f.binding, b)
		} else if obj := p.mentionedFunction(arg); obj != nil {
			p.foreign[obj] = b
		}
	}
}

// resolve returns the function of this package that an expression refers to: a literal, a declared
// function, a method value, or a local variable that only ever holds one literal.
func (p *program) resolve(e ast.Expr) *function {
	e = ast.Unparen(e)
	if lit, ok := e.(*ast.FuncLit); ok {
		return p.byNode[lit]
	}
	if f := p.mentionedFunction(e); f != nil {
		return p.byObj[f]
	}

	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	v, ok := p.info.Uses[id].(*types.Var)
	if !ok {
		return nil
	}

	value := p.initial[v]
	switch {
	case value == nil:
		value = p.first[v]
	case p.reassigned[v]:
		return nil
	}

	if value == nil {
		return nil
	}
	if lit, ok := ast.Unparen(value).(*ast.FuncLit); ok {
		return p.byNode[lit]
	}
	if f := p.mentionedFunction(value); f != nil {
		return p.byObj[f]
	}

	return nil
}

// mentionedFunction returns the declared function that an expression names.
func (p *program) mentionedFunction(e ast.Expr) *types.Func {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if f, ok := p.info.Uses[e].(*types.Func); ok {
			return f.Origin()
		}
	case *ast.SelectorExpr:
		return p.mentionedFunction(e.Sel)
	case *ast.IndexExpr:
		return p.mentionedFunction(e.X)
	case *ast.IndexListExpr:
		return p.mentionedFunction(e.X)
	}
	return nil
}

// callee returns the declared function that a call calls.
func (p *program) callee(call *ast.CallExpr) *types.Func { return p.mentionedFunction(call.Fun) }
