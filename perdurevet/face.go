package perdurevet

import (
	"go/types"
	"strings"
)

// facePath is the import path of package perdure, which users import. This package calls it the
// face. The checks derive most facts from the types of its functions, so a new verb needs no entry
// here: a function that takes a WorkflowCtx is a durable call, and a function that takes a
// func(WorkflowCtx, …) receives workflow code. The tables below contain only what the types do not
// say.
const facePath = "github.com/perdure/perdure"

// accessors read the execution and are allowed anywhere, including in a step.
var accessors = set("WorkflowCtx.Self", "WorkflowCtx.Now", "WorkflowCtx.Log", "WorkflowCtx.Err")

// scopes only derive another context.
var scopes = set("WorkflowCtx.WithTimeout", "WorkflowCtx.Detached")

// draws take values from a random source of the execution. They are not durable calls, but steps
// must not use them either, because steps do not run on replay.
var draws = set("WorkflowCtx.Rand", "WorkflowCtx.UUID")

// coroutines are the verbs that run their function as a separate coroutine. Each coroutine counts
// separately how often it has used the name of a step.
var coroutines = set("Go", "Update.Handle")

// bodies maps verbs to the role of the function that they receive, for functions whose parameters
// do not determine the role. A function with a WorkflowCtx is always workflow code, and a function
// with an EntityCtx always belongs to an entity or a service.
var bodies = map[string]role{
	"Do":                   roleStep,
	"NewActivity":          roleStep,
	"Activity.Bind":        roleStep,
	"NewTxActivity":        roleTx,
	"BindTx":               roleTx,
	"Workflow.KeyedBy":     roleKey,
	"Activity.StepKeyedBy": roleKey,
	"Query.Handle":         roleRead,
	"Update.Handle":        roleRead, // the validators of the update
	"NewView":              roleEntity,
	"NewRPC":               roleService,
	"RPC.Bind":             roleService,
	"NewMachine":           roleMachine,
	"BindMachine":          roleMachine,
}

// binds maps calls that join a function and a handle to the role of the function. The handle is the
// receiver, the first argument, or the result of the call.
var binds = map[string]string{
	"NewWorkflow":   "workflow",
	"Workflow.Bind": "workflow",
	"NewActivity":   "activity",
	"Activity.Bind": "activity",
	"NewTxActivity": "activity",
	"BindTx":        "activity",
}

// makers create a handle with a constant name. derivers return a copy of a handle with other
// settings.
var (
	makers   = set("NewWorkflow", "DeclareWorkflow", "NewMachine", "NewActivity", "DeclareActivity", "NewTxActivity")
	derivers = set("Workflow.KeyedBy", "Activity.StepKeyedBy")
)

// names are the parameters of the face that take a stored name. A stored name must never change.
var names = set("name", "change")

// pools are types that bypass the transaction of a transactional activity.
var pools = set(
	"database/sql.DB", "database/sql.Conn",
	"github.com/jackc/pgx/v5.Conn", "github.com/jackc/pgx/v5/pgxpool.Pool", "github.com/jackc/pgx/v5/pgxpool.Conn",
)

// faceType returns the name of t, or of the type that t points to, if it is a type of the face.
// Otherwise it returns "".
func faceType(t types.Type) string {
	if n := namedType(t); n != nil && inFace(n.Obj()) {
		return n.Obj().Name()
	}
	return ""
}

// faceFunc returns the name of a function or method of the face, as the tables write it. It returns
// "" for other functions.
func faceFunc(f *types.Func) string {
	if f == nil || !inFace(f) {
		return ""
	}
	if recv := f.Signature().Recv(); recv != nil {
		return faceType(recv.Type()) + "." + f.Name()
	}
	return f.Name()
}

func inFace(o types.Object) bool { return o.Pkg() != nil && isFace(o.Pkg()) }

// isFace reports whether a package is the face, or its variant that is built for its own tests.
func isFace(pkg *types.Package) bool {
	path, _, _ := strings.Cut(pkg.Path(), " [")
	return path == facePath
}

func isCtx(t types.Type) bool { return t != nil && faceType(t) == "WorkflowCtx" }

// hasParam reports whether a function takes a type of the face by value.
func hasParam(sig *types.Signature, name string) bool {
	for p := range sig.Params().Variables() {
		if faceType(p.Type()) == name {
			return true
		}
	}
	return false
}

// hasContext reports whether a function takes a context.Context.
func hasContext(sig *types.Signature) bool {
	for p := range sig.Params().Variables() {
		if isContext(p.Type()) {
			return true
		}
	}
	return false
}

func isContext(t types.Type) bool { return typeName(t) == "context.Context" }

// namedType returns the named type that t is or points to.
func namedType(t types.Type) *types.Named {
	if t == nil {
		return nil
	}
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	n, _ := types.Unalias(t).(*types.Named)
	return n
}

// typeName returns the import path and name of the named type that t is or points to.
func typeName(t types.Type) string {
	n := namedType(t)
	if n == nil || n.Obj().Pkg() == nil {
		return ""
	}
	return n.Obj().Pkg().Path() + "." + n.Obj().Name()
}

// fromSync reports whether several goroutines may change values of the type.
func fromSync(t types.Type) bool {
	name := typeName(t)
	return strings.HasPrefix(name, "sync/atomic.") || name == "sync.Map"
}

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}
