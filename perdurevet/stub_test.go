package perdurevet

import (
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestStubIsFaithful compares the stub of TestAhead with the real package. A function that both
// have must have the same signature, so that what TestAhead finds is also true of the real package.
func TestStubIsFaithful(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("testdata/ahead")
	if err != nil {
		t.Fatal(err)
	}
	stub := functionsOf(t, "GO111MODULE=off", "GOPATH="+dir)
	real := functionsOf(t)

	both := 0
	for name, want := range real {
		got, ok := stub[name]
		if !ok {
			continue
		}
		both++
		if got != want {
			t.Errorf("%s%s in the stub, %s%s in the package", name, got, name, want)
		}
	}

	if both < 60 {
		t.Errorf("only %d functions are in both", both)
	}
}

// functionsOf returns the exported functions and methods of the face with their signatures.
func functionsOf(t *testing.T, env ...string) map[string]string {
	t.Helper()
	cfg := &packages.Config{Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports, Env: append(os.Environ(), env...)}
	pkgs, err := packages.Load(cfg, facePath)
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) != 1 || pkgs[0].Types == nil || len(pkgs[0].Errors) > 0 {
		t.Fatalf("%v", pkgs[0].Errors)
	}

	all := map[string]string{}
	scope := pkgs[0].Types.Scope()
	for _, name := range scope.Names() {
		switch obj := scope.Lookup(name).(type) {
		case *types.Func:
			all[name] = signature(obj)
		case *types.TypeName:
			n, ok := obj.Type().(*types.Named)
			if !ok {
				continue
			}
			for m := range n.Methods() {
				all[name+"."+m.Name()] = signature(m)
			}
		}
	}

	for name := range all {
		if parts := strings.Split(name, "."); !isExported(parts) {
			delete(all, name)
		}
	}

	return all
}

func isExported(names []string) bool {
	for _, name := range names {
		if name[0] < 'A' || name[0] > 'Z' {
			return false
		}
	}
	return true
}

// signature returns the type of a function without the names of its parameters, except names that
// the checks read.
func signature(f *types.Func) string {
	sig := f.Signature()
	list := func(vars *types.Tuple) string {
		var texts []string
		for v := range vars.Variables() {
			text := types.TypeString(v.Type(), (*types.Package).Name)
			if names[v.Name()] {
				text = v.Name() + " " + text
			}
			texts = append(texts, text)
		}
		return "(" + strings.Join(texts, ", ") + ")"
	}
	return list(sig.Params()) + " " + list(sig.Results())
}
