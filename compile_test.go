package perdure_test

import (
	"bytes"
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

// exported finds the compiled form of packages, as the go command has it.
func exported(t *testing.T, pkgs ...string) types.Importer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, pkgs...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// TestWrongProgramsDoNotCompile checks the programs that the types must reject, and that each becomes right by a small change.
func TestWrongProgramsDoNotCompile(t *testing.T) {
	t.Parallel()
	imp := exported(t, "github.com/perdure/perdure", "context", "database/sql", "net/http", "time")
	const head = `package main
import ("context"; "database/sql"; "net/http"; "time"; "github.com/perdure/perdure")
var _ = context.Background; var db *sql.DB; var tx *sql.Tx; var _ = http.NewRequest; var _ time.Time
type In struct{ A int }
type Out struct{ B int }
var WF = perdure.DeclareWorkflow[In, Out]("wf")
var Act = perdure.DeclareActivity[In, Out]("act")
var Sig = perdure.NewSignal[Out]("sig")
func use(ctx perdure.WorkflowCtx, app *perdure.App, std context.Context) {
`
	for _, c := range []struct{ name, body, top, want, right string }{
		{name: "workflow ctx as context.Context", body: `http.NewRequestWithContext(ctx, "GET", "", nil)`, want: "cannot use ctx (variable of struct type perdure.WorkflowCtx) as context.Context value", right: `http.NewRequestWithContext(std, "GET", "", nil)`},
		{name: "wrong request type", body: `WF.Run(ctx, Out{})`, want: "cannot use Out{} (value of struct type Out) as In value in argument to WF.Run", right: `WF.Run(ctx, In{})`},
		{name: "wrong signal type", body: `Sig.Send(ctx, perdure.Ref{}, In{})`, want: "cannot use In{} (value of struct type In) as Out value in argument to Sig.Send", right: `Sig.Send(ctx, perdure.Ref{}, Out{})`},
		{name: "sleep in an activity", body: `Act.Bind(func(ctx context.Context, in In) (Out, error) { return Out{}, ctx.Sleep(1) })`, want: "ctx.Sleep undefined (type context.Context has no field or method Sleep)"},
		{name: "activity bound with wrong type", body: `Act.Bind(func(context.Context, Out) (Out, error) { return Out{}, nil })`, want: "as func(context.Context, In) (Out, error) value in argument to Act.Bind", right: `Act.Bind(func(context.Context, In) (Out, error) { return Out{}, nil })`},
		{name: "workflow with two inputs", body: `perdure.NewWorkflow("x", func(ctx perdure.WorkflowCtx, a In, b In) (Out, error) { return Out{}, nil })`, want: "does not match"},
		{name: "workflow without error result", body: `perdure.NewWorkflow("x", func(ctx perdure.WorkflowCtx, a In) Out { return Out{} })`, want: "does not match"},
		{name: "activity function as workflow", body: `perdure.NewWorkflow("x", func(ctx context.Context, a In) (Out, error) { return Out{}, nil })`, want: "does not match", right: `perdure.NewActivity("x", func(ctx context.Context, a In) (Out, error) { return Out{}, nil })`},
		{name: "continue as new with wrong type", body: `WF.ContinueAsNew(Out{})`, want: "cannot use Out{} (value of struct type Out) as In value in argument to WF.ContinueAsNew", right: `WF.ContinueAsNew(In{})`},
		{name: "key of the wrong input", body: `WF.KeyedBy(func(o Out) perdure.Key { return perdure.RawKey("") })`, want: "as func(In) perdure.Key value in argument to WF.KeyedBy", right: `WF.KeyedBy(func(i In) perdure.Key { return perdure.RawKey("") })`},
		{name: "key on a step", body: `Act.Run(ctx, In{}, perdure.RawKey("x"))`, want: "cannot use perdure.RawKey(\"x\") (value of struct type perdure.Key) as perdure.CallOption value", right: `Act.Run(ctx, In{}, perdure.StepKey("x"))`},
		{name: "step key on a start", body: `WF.Start(ctx, In{}, perdure.StepKey("x"))`, want: "as perdure.StartOption value", right: `WF.Start(ctx, In{}, perdure.RawKey("x"))`},
		{name: "race of different types", body: `perdure.Race(ctx, Act.Go(ctx, In{}), ctx.Timer(1))`, want: "does not match inferred type", right: `perdure.Select(ctx, Act.Go(ctx, In{}), ctx.Timer(1))`},
		{name: "activity called by ordinary code", body: `Act.Run(app.With(std), In{})`, want: "as perdure.WorkflowCtx value in argument to Act.Run", right: `Act.Run(ctx, In{})`},
		{name: "wait inside one's own transaction", body: `WF.Run(app.InTx(std, tx), In{})`, want: "as perdure.Caller value in argument to WF.Run", right: `WF.Start(app.InTx(std, tx), In{})`},
		{name: "result inside one's own transaction", body: `WF.Execution(perdure.RawKey("x")).Result(app.InTx(std, tx))`, want: "as perdure.Caller value", right: `WF.Execution(perdure.RawKey("x")).Cancel(app.InTx(std, tx), "")`},
		{name: "transactional activity with a foreign transaction", body: `perdure.NewTxActivity("x", perdure.SQL(db), func(ctx context.Context, tx *sql.Conn, in In) (Out, error) { return Out{}, nil })`, want: "does not match", right: `perdure.NewTxActivity("x", perdure.SQL(db), func(ctx context.Context, tx *sql.Tx, in In) (Out, error) { return Out{}, nil })`},
		{name: "a Caller of one's own", top: `type mine struct{}; func (mine) sender() {}; func (mine) caller() {}; var _ perdure.Caller = mine{}`, want: "does not implement perdure.Caller"},
		{name: "a workflow that refers to itself", top: `var Self = perdure.NewWorkflow("s", self); func self(ctx perdure.WorkflowCtx, in In) (Out, error) { return Out{}, Self.ContinueAsNew(in) }`, want: "initialization cycle"},
		{name: "a method of a package variable", top: `type t struct{}; func (t) run(ctx perdure.WorkflowCtx, in In) (Out, error) { return Meth.Run(ctx, in) }; var Meth = perdure.NewWorkflow("m", t{}.run)`, want: "initialization cycle"},
	} {
		t.Run(c.name, func(t *testing.T) { // one after the other: they share the importer
			check := func(body, top string) []string {
				fset := token.NewFileSet()
				f, err := parser.ParseFile(fset, "main.go", head+body+"\n}\n"+top+"\nfunc main() {}", 0)
				if err != nil {
					t.Fatal(err)
				}
				var errs []string
				cfg := types.Config{Importer: imp, Error: func(err error) { errs = append(errs, err.Error()) }}
				_, _ = cfg.Check("main", fset, []*ast.File{f}, nil)
				return errs
			}
			errs := check(c.body, c.top)
			if len(errs) == 0 || !strings.Contains(strings.Join(errs, "\n"), c.want) {
				t.Errorf("errors %q, want %q", errs, c.want)
			}
			if c.right != "" {
				if errs := check(c.right, ""); len(errs) > 0 {
					t.Errorf("the right program: %q", errs)
				}
			}
		})
	}
}
