package perdurevet

import (
	"go/types"
	"strings"
)

// facePath is the package that users import. Most of what follows is read off the types of its
// functions, so that a new verb needs no line here: what takes a WorkflowCtx is a durable call,
// what takes a func(WorkflowCtx, …) is given workflow code. The tables hold only what types do not
// say.
const facePath = "github.com/perdure/perdure"

// accessors look at the execution and are allowed anywhere, a step included.
var accessors = set("WorkflowCtx.Self", "WorkflowCtx.Now", "WorkflowCtx.Log", "WorkflowCtx.Err")

// scopes only derive another context.
var scopes = set("WorkflowCtx.WithTimeout", "WorkflowCtx.Detached")

// draws take from a stream of the execution: no durable calls, but not for steps either, which do
// not run on replay.
var draws = set("WorkflowCtx.Rand", "WorkflowCtx.UUID")

// coroutines are the verbs whose function runs as a coroutine of its own, with its own occurrences
// of steps.
var coroutines = set("Go", "Update.Handle")

// bodies says what a function is for that is handed to one of these, where its parameters do not
// tell. A function with a WorkflowCtx is workflow code and one with an EntityCtx is of an entity or
// a service, whatever it is handed to.
var bodies = map[string]role{
	"Do":                   roleStep,
	"NewActivity":          roleStep,
	"Activity.Bind":        roleStep,
	"NewTxActivity":        roleTx,
	"BindTx":               roleTx,
	"Workflow.KeyedBy":     roleKey,
	"Activity.StepKeyedBy": roleKey,
	"Query.Handle":         roleRead,
	"Update.Handle":        roleRead, // its validators
	"NewView":              roleEntity,
	"NewRPC":               roleService,
	"RPC.Bind":             roleService,
	"NewMachine":           roleMachine,
	"BindMachine":          roleMachine,
}

// binds says which calls join a function and a handle, and what it thereby is. The handle is the
// receiver, the first argument, or made by the call.
var binds = map[string]string{
	"NewWorkflow":   "workflow",
	"Workflow.Bind": "workflow",
	"NewActivity":   "activity",
	"Activity.Bind": "activity",
	"NewTxActivity": "activity",
	"BindTx":        "activity",
}

// makers name a handle by a constant; derivers return the same handle with other settings.
var (
	makers   = set("NewWorkflow", "DeclareWorkflow", "NewMachine", "NewActivity", "DeclareActivity", "NewTxActivity")
	derivers = set("Workflow.KeyedBy", "Activity.StepKeyedBy")
)

// names are the parameters of the face that hold a name which is stored, and must therefore be the
// same for ever.
var names = set("name", "change")

// pools are the types that lead around the transaction of a transactional activity.
var pools = set(
	"database/sql.DB", "database/sql.Conn",
	"github.com/jackc/pgx/v5.Conn", "github.com/jackc/pgx/v5/pgxpool.Pool", "github.com/jackc/pgx/v5/pgxpool.Conn",
)

// faceType is the name of a type of the face, or of what a pointer to it points to; otherwise "".
func faceType(t types.Type) string {
	if n := named(t); n != nil && inFace(n.Obj()) {
		return n.Obj().Name()
	}
	return ""
}

// faceFunc is how the tables call a function or method of the face; otherwise "".
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

// isFace reports whether a package is the face, or the variant of it that is built for its own
// tests.
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

// named is the named type that t is or points to.
func named(t types.Type) *types.Named {
	if t == nil {
		return nil
	}
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	n, _ := types.Unalias(t).(*types.Named)
	return n
}

// typeName is the import path and name of the named type that t is or points to.
func typeName(t types.Type) string {
	n := named(t)
	if n == nil || n.Obj().Pkg() == nil {
		return ""
	}
	return n.Obj().Pkg().Path() + "." + n.Obj().Name()
}

// fromSync reports whether values of the type are made to be changed by several goroutines.
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
