package wrong_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/analysis"

	"github.com/perdure/perdure/perdurevet"
)

const face = "github.com/perdure/perdure"

// head is the beginning of every program.
const head = `package main

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/perdure/perdure"
)

var (
	_ = context.Background
	_ sql.NullBool
	_ = errors.New
	_ = rand.IntN
	_ = http.NewRequest
	_ time.Time
)

type In struct{ A int }
type Out struct{ B int }

var WF = perdure.DeclareWorkflow[In, Out]("wf")
var Act = perdure.DeclareActivity[In, Out]("act")
var Sig = perdure.NewSignal[Out]("sig")
var app *perdure.App

func good(ctx perdure.WorkflowCtx, in In) (Out, error) { return Out{}, ctx.Sleep(1) }

func main() {}
`

// compiler type-checks programs against the real packages. Its importer is not safe for concurrent
// use.
type compiler struct {
	mu       sync.Mutex
	importer types.Importer
	err      error
}

// imports are the packages that the head imports.
var imports = []string{face, "context", "database/sql", "errors", "math/rand/v2", "net/http", "time"}

// newCompiler finds the compiled form of the packages that programs import.
func newCompiler() *compiler {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, imports...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return &compiler{err: fmt.Errorf("%w\n%s", err, &stderr)}
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	return &compiler{importer: importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })}
}

// shared returns the compiler that all tests share, because creating a compiler takes a while.
var shared = sync.OnceValue(func() *compiler { return newCompiler() })

func theCompiler(t *testing.T) *compiler {
	t.Helper()
	c := shared()
	if c.err != nil {
		t.Fatal(c.err)
	}
	return c
}

// checked is a program after type-checking.
type checked struct {
	fset *token.FileSet
	file *ast.File
	pkg  *types.Package
	info *types.Info
	errs []string
}

// check type-checks the program that consists of the head and more.
func (c *compiler) check(t *testing.T, more string) checked {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()

	p := checked{fset: token.NewFileSet(), info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Instances: map[*ast.Ident]types.Instance{}, Defs: map[*ast.Ident]types.Object{},
		Uses: map[*ast.Ident]types.Object{}, Implicits: map[ast.Node]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
		Scopes: map[ast.Node]*types.Scope{},
	}}

	file, err := parser.ParseFile(p.fset, "main.go", head+more, parser.ParseComments)
	if err != nil {
		t.Fatalf("%v in\n%s", err, more)
	}
	p.file = file
	cfg := types.Config{Importer: c.importer, Error: func(err error) { p.errs = append(p.errs, err.Error()) }}
	// The returned error is also the first error in errs.
	p.pkg, _ = cfg.Check("main", p.fset, []*ast.File{file}, p.info)

	return p
}

// vet runs all checks of perdurevet over a program. It needs no facts about other packages, because
// a program has only one package.
func vet(t *testing.T, p *checked) []string {
	t.Helper()
	var found []string
	done := map[*analysis.Analyzer]any{}
	var run func(a *analysis.Analyzer) any

	run = func(a *analysis.Analyzer) any {
		if r, ok := done[a]; ok {
			return r
		}

		pass := &analysis.Pass{
			Analyzer: a, Fset: p.fset, Files: []*ast.File{p.file}, Pkg: p.pkg, TypesInfo: p.info, TypesSizes: types.SizesFor("gc", "amd64"),
			ResultOf:         map[*analysis.Analyzer]any{},
			Report:           func(d analysis.Diagnostic) { found = append(found, d.Message) },
			ImportObjectFact: func(types.Object, analysis.Fact) bool { return false },
			ExportObjectFact: func(types.Object, analysis.Fact) {},
		}
		for _, r := range a.Requires {
			pass.ResultOf[r] = run(r)
		}
		r, err := a.Run(pass)
		if err != nil {
			t.Fatal(err)
		}

		done[a] = r
		return r
	}
	for _, a := range perdurevet.Analyzers() {
		run(a)
	}

	return found
}
