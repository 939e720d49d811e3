package perduretest_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestEveryVerbIsTried looks in everything_test.go and everything_entities_test.go for all verbs of
// the public packages. A verb is a function that takes a WorkflowCtx, a Caller, a Sender or an App,
// or a method of one of these types or of a group of operator verbs, such as Breakers. So a new
// verb needs a test before it is released.
func TestEveryVerbIsTried(t *testing.T) {
	t.Parallel()
	const face = "github.com/perdure/perdure"
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", face+"/perduretest")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}

	fset := token.NewFileSet()
	imp := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	var everything []*ast.File
	for _, name := range []string{"everything_test.go", "everything_entities_test.go"} {
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		everything = append(everything, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	if _, err := (&types.Config{Importer: imp}).Check("everything", fset, everything, info); err != nil {
		t.Fatal(err)
	}

	tried := map[string]bool{}
	for _, obj := range info.Uses {
		if f, ok := obj.(*types.Func); ok && f.Pkg() != nil && f.Pkg().Path() == face {
			tried[verbName(f)] = true
		}
	}

	pkg, err := imp.Import(face)
	if err != nil {
		t.Fatal(err)
	}

	verbs := 0
	for _, f := range functions(pkg) {
		name := verbName(f)
		// The environment closes the App. Databases of the user are not part of the environment.
		// Package internal/txtest tests their verbs.
		left := map[string]bool{"App.Close": true, "App.Wait": true, "App.With": true, "App.InTx": true, "InPgx": true}
		if !f.Exported() || !isVerb(f) || left[name] {
			continue
		}
		if verbs++; !tried[name] {
			t.Errorf("perdure.%s is not tried in everything_test.go: add it, so that users can test what they write with it", name)
		}
	}

	if verbs < 40 {
		t.Errorf("only %d verbs were seen", verbs)
	}
}

// functions returns all functions and methods of a package.
func functions(pkg *types.Package) (all []*types.Func) {
	for _, name := range pkg.Scope().Names() {
		switch obj := pkg.Scope().Lookup(name).(type) {
		case *types.Func:
			all = append(all, obj)
		case *types.TypeName:
			if n, ok := obj.Type().(*types.Named); ok && obj.Exported() {
				for m := range n.Methods() {
					all = append(all, m)
				}
			}
		}
	}
	return all
}

// verbName returns Type.Method or Function.
func verbName(f *types.Func) string {
	if recv := f.Signature().Recv(); recv != nil {
		return typeName(recv.Type()) + "." + f.Name()
	}
	return f.Name()
}

func typeName(t types.Type) string {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); ok {
		return n.Obj().Name()
	}
	return ""
}

// groups are the types whose methods are verbs of operators. An example of such a verb is
// app.Breakers().Trip.
var groups = []string{
	"Breakers", "DeadTasks", "Entities", "Executions", "Histories", "Limits", "Locks", "Mailboxes", "Queues", "Schedules", "Signals", "Tasks",
}

// isVerb reports whether a function takes, or belongs to, a type that can send or call.
func isVerb(f *types.Func) bool {
	speaks := map[string]bool{"WorkflowCtx": true, "Caller": true, "Sender": true, "Client": true, "App": true}
	for _, group := range groups {
		speaks[group] = true
	}
	if recv := f.Signature().Recv(); recv != nil && speaks[typeName(recv.Type())] {
		return true
	}
	for v := range f.Signature().Params().Variables() {
		if speaks[typeName(v.Type())] {
			return true
		}
	}
	return false
}
