package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parse loads a module that consists of the given files.
func parse(t *testing.T, files map[string]string) *module {
	t.Helper()
	root := t.TempDir()
	files["go.mod"] = "// a comment\nmodule example.com/m\n\ngo 1.26\n"

	for name, text := range files {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	m, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// same compares the problems that a check found with the expected ones.
func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// code is a file of a package with imports.
func code(name string, imports ...string) string {
	text := "package " + name + "\n"
	for _, i := range imports {
		text += "import " + i + "\n"
	}
	return text
}

func TestCheckRooms(t *testing.T) {
	t.Parallel()
	table := []room{
		{path: ".", imports: []string{"low"}},
		{path: "low"},
		{path: "middle/...", imports: []string{"low", "middle/..."}},
		{path: "middle/special"},
		{path: "top", imports: []string{"low", "middle/..."}, except: []string{"middle/secret"}},
	}

	m := parse(t, map[string]string{
		"root.go":               code("m", `"example.com/m/low"`, `"fmt"`, `"example.com/middle"`),
		"low/low.go":            code("low", `"example.com/m"`, `_ "example.com/m/middle"`),
		"low/low_test.go":       code("low_test", `"example.com/m/top"`),
		"middle/a/b/b.go":       code("b", `"example.com/m/middle/a"`, `"example.com/m/low"`),
		"middle/special/s.go":   code("special", `"example.com/m/low"`),
		"top/top.go":            code("top", `"example.com/m/middle/secret"`, `"example.com/m/middle"`),
		"top/only_on_plan9.go":  "//go:build plan9\n\n" + code("top", `"example.com/m"`),
		"stray/stray.go":        code("stray"),
		"stray/testdata/x.go":   code("x"),
		"low/_old/x.go":         code("x"),
		".hidden/x.go":          code("x"),
		"node_modules/x/x.go":   code("x"),
		"bench/go.mod":          "module example.com/m/bench\n",
		"bench/bench.go":        code("bench"),
		"bench/deeper/bench.go": code("bench"),
		"top/broken.go":         "package top\nimport \"example.com/m/stray\"\nfunc {",
		"top/hopeless.go":       "what is this",
	})

	same(
		t, checkRooms(m, table),
		"low/low.go:2: low must not import . (the table is internal/archtest/rooms.go)",
		"low/low.go:3: low must not import middle (the table is internal/archtest/rooms.go)",
		"middle/special/s.go:2: middle/special must not import low (the table is internal/archtest/rooms.go)",
		"stray: this package has no row in the table of rooms: add one to internal/archtest/rooms.go, and the room to docs/architecture.md",
		"top/broken.go:2: top must not import stray (the table is internal/archtest/rooms.go)",
		"top/only_on_plan9.go:4: top must not import . (the table is internal/archtest/rooms.go)",
		"top/top.go:2: top must not import middle/secret (the table is internal/archtest/rooms.go)",
	)
}

// TestTableKeepsItsPromises checks that the table of rooms agrees with the statements of
// docs/architecture.md about imports.
func TestTableKeepsItsPromises(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to string
		want     bool
	}{
		{".", "internal/replay", true},
		{".", "internal/store", false},
		{".", "internal/store/memory", false},
		{".", "internal/engine", false},
		{".", "internal/service", false},
		{".", "internal/node", false},
		{"internal/model", "internal/fault", false},
		{"internal/core", "internal/store", false},
		{"internal/core/lock", "internal/model", true},
		{"internal/store/postgres", "internal/store/sqlite", false},
		{"internal/engine", "internal/core", true},
		{"internal/engine", "internal/store/postgres", false},
		{"internal/engine", "internal/api", false},
		{"internal/engine/lane", "internal/engine", false},
		{"internal/engine/flow", "internal/engine", false},
		{"internal/engine/lending", "internal/engine", false},
		{"internal/engine/loan", "internal/engine/lending", false},
		{"internal/grpcapi", "internal/engine", false},
		{"internal/restapi", "internal/service", false},
		{"internal/flovyn", "internal/store", false},
		{"internal/service", "internal/engine", true},
		{"internal/replay", "internal/engine", false},
		{"internal/node", "internal/flovyn/v1", true},
		{"internal/node", ".", false},
		{"internal/node", "embedded", false},
		{"internal/node", "internal/cli", false},
		{"internal/node", "internal/pgtest", false},
		{"internal/node", "internal/store/storetest", false},
		{"embedded", "internal/node", true},
		{"embedded", "internal/engine", false},
		{"perdurevet", ".", false},
		{"examples/hello", "embedded", true},
		{"examples/hello", "internal/node", false},
		{"cmd/perdure", "internal/cli", true},
		{"cmd/perdure", "internal/node", false},
	} {
		r, found := roomOf(rooms, test.from)
		if !found {
			t.Errorf("%s has no row", test.from)
			continue
		}
		if got := r.allows(test.to); got != test.want {
			t.Errorf("%s may import %s = %v, want %v", test.from, test.to, got, test.want)
		}
	}

	for _, dir := range []string{"internal/core", "internal/core/entity", "internal/engine/lane", "internal/engine/queue", "internal/cluster"} {
		if !matchesAny(pure, dir) {
			t.Errorf("%s is not pure", dir)
		}
	}

	if matchesAny(pure, "internal/engine") || matchesAny(pure, "internal/corelike") {
		t.Error("more is pure than was meant")
	}
}

func TestCheckTesting(t *testing.T) {
	t.Parallel()
	m := parse(t, map[string]string{
		"a/a.go":      code("a", `"testing"`, `"testing/iotest"`, `"example.com/testing"`),
		"a/a_test.go": code("a", `"testing"`),
		"b/b.go":      code("b", `"testing"`),
	})
	same(
		t, checkTesting(m, []room{{path: "b", testing: true}}),
		"a/a.go:2: production code must not import testing",
		"a/a.go:3: production code must not import testing/iotest",
	)
}

func TestCheckPackageDocs(t *testing.T) {
	t.Parallel()
	m := parse(t, map[string]string{
		"good/a.go":         "// Package good is good.\npackage good\n",
		"good/b.go":         "package good\n",
		"silent/a.go":       "package silent\n",
		"misnamed/a.go":     "// Package silent is something else.\npackage misnamed\n",
		"detached/a.go":     "// Package detached is too far away.\n\npackage detached\n",
		"cmd/tool/main.go":  "// Command tool does things.\npackage main\n",
		"cmd/mute/main.go":  "package main\n",
		"tests/a_test.go":   "// Package tests has only tests.\npackage tests_test\n",
		"tests/b_test.go":   "// Package tests_test has only tests.\npackage tests_test\n",
		"mixed/a.go":        "package mixed\n",
		"mixed/doc_test.go": "package mixed_test\n",
	})

	const rest = " …\" that says what it is, promises, and does not do"
	same(
		t, checkPackageDocs(m),
		"cmd/mute: no file has a doc comment \"Package main"+rest,
		"detached: no file has a doc comment \"Package detached"+rest,
		"misnamed: no file has a doc comment \"Package misnamed"+rest,
		"mixed: no file has a doc comment \"Package mixed"+rest,
		"silent: no file has a doc comment \"Package silent"+rest,
	)
}

func TestCheckLengths(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("// one of many\n", maxLines)
	m := parse(t, map[string]string{
		"a/exactly.go":   "package a" + strings.Repeat("\n", maxLines),
		"a/long.go":      "package a\n" + long,
		"a/long_test.go": "package a\n" + long + long,
		"a/gen.go":       "// Code generated by hand. DO NOT EDIT.\n\npackage a\n" + long,
		"a/pretends.go":  "// Code generated, or so we say.\n\npackage a\n" + long,
	})
	const rest = " lines; at most 800: which idea could live in a file of its own?"
	same(t, checkLengths(m), "a/long.go: 801"+rest, "a/long_test.go: 1601"+rest, "a/pretends.go: 803"+rest)

	m = parse(t, map[string]string{
		laneDir + "/exactly.go":    "package lane" + strings.Repeat("\n", maxLaneLines),
		laneDir + "/long.go":       "package lane" + strings.Repeat("\n", maxLaneLines+1),
		laneDir + "/at_test.go":    "package lane" + strings.Repeat("\n", maxLines),
		laneDir + "/below/long.go": "package below" + strings.Repeat("\n", maxLines),
	})
	same(t, checkLengths(m), laneDir+"/long.go: 501 lines; at most 500: which idea could live in a file of its own?")
}

func TestCheckUnfinished(t *testing.T) {
	t.Parallel()
	word, other := "TO"+"DO", "FIX"+"ME"
	const rest = ": finish it, or write down in an issue what is missing"
	m := parse(t, map[string]string{
		"a/a.go":      "package a\n// " + word + "(x): later\nvar x = \"" + other + "\" // methodology, My" + word + "s\n",
		"a/a_test.go": "package a\nfunc f() { context." + word + "() }\n",
		"a/gen.go":    "// Code generated by hand. DO NOT EDIT.\npackage a\n// " + word + "\n",
	})
	same(t, checkUnfinished(m), "a/a.go:2: "+word+rest, "a/a.go:3: "+other+rest, "a/a_test.go:2: "+word+rest)
}

func TestCheckPurity(t *testing.T) {
	t.Parallel()
	impure := `package core

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io/fs"
	mrand "math/rand"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	clock "time"

	"example.com/m/model"
	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"
)

const second = clock.Second

func f(now clock.Time, d clock.Duration, in chan int) bool {
	go f(now, d, nil)
	select {}
	_ = clock.Now()
	_, _, _ = clock.Since(now), clock.Until, clock.NewTicker
	clock.Sleep(d)
	<-clock.After(d)
	clock.AfterFunc(d, nil)
	_, _ = clock.Tick(d), clock.NewTimer(d)
	var _ <-chan int
	return now.After(now.Add(d)) && now.Sub(now).Until()
}
`
	m := parse(t, map[string]string{
		"core/a.go":        impure,
		"core/deep/b.go":   "package deep\n\nimport . \"time\"\n\nvar _ = Now\n",
		"core/a_test.go":   impure,
		"engine/engine.go": impure,
		"core/fine.go":     "package core\n\nimport \"time\"\n\ntype t struct{ at time.Time }\n\nfunc (t) Now() time.Duration { return t{}.Now() }\n",
	})
	const who = ": core is pure: "
	same(
		t, checkPurity(m, []string{"core/..."}),
		"core/a.go:5"+who+"no crypto/rand",
		"core/a.go:6"+who+"no database/sql",
		"core/a.go:8"+who+"no io/fs",
		"core/a.go:9"+who+"no math/rand",
		"core/a.go:10"+who+"no math/rand/v2",
		"core/a.go:11"+who+"no net",
		"core/a.go:12"+who+"no net/http",
		"core/a.go:13"+who+"no os",
		"core/a.go:14"+who+"no os/exec",
		"core/a.go:15"+who+"no sync",
		"core/a.go:16"+who+"no sync/atomic",
		"core/a.go:21"+who+"no github.com/google/uuid, unless it computes and nothing else and is listed in rooms.go",
		"core/a.go:26"+who+"no channels",
		"core/a.go:27"+who+"no goroutines",
		"core/a.go:28"+who+"no select",
		"core/a.go:29"+who+"no time.Now: time is an input",
		"core/a.go:30"+who+"no time.Since: time is an input",
		"core/a.go:30"+who+"no time.Until: time is an input",
		"core/a.go:30"+who+"no time.NewTicker: time is an input",
		"core/a.go:31"+who+"no time.Sleep: time is an input",
		"core/a.go:32"+who+"no time.After: time is an input",
		"core/a.go:33"+who+"no time.AfterFunc: time is an input",
		"core/a.go:34"+who+"no time.Tick: time is an input",
		"core/a.go:34"+who+"no time.NewTimer: time is an input",
		"core/a.go:35"+who+"no channels",
		"core/deep/b.go:3: core/deep is pure: package time must be imported by name",
	)
}

func TestCheckExportedDocs(t *testing.T) {
	t.Parallel()
	bare := `package a

type Bare struct{ Field int }

func (Bare) Method() {}
func (b *Bare) Error() string { return "" }
func (Bare) hidden() {}

type Generic[K, V any] struct{}

func (g *Generic[K, V]) Method() {}

type hidden struct{}

func (hidden) Method() {}

func Func() {}

const Const = 1

var A, b, C int

type Port interface {
	Call()
	// Documented is documented.
	Documented()
	Trailing() // is documented too
	String() string
	hidden()
	hidden2
}

// A comment on a group of types says nothing about its members.
type (
	InGroup int
	// Described is described.
	Described int
)
`
	m := parse(t, map[string]string{
		"a/a.go":      bare,
		"a/a_test.go": bare,
		"a/gen.go":    "// Code generated by hand. DO NOT EDIT.\n\n" + bare,
		"b/b.go": `package b

// T is documented.
type T struct{ F int }

// M is documented.
func (T) M() {}

// Kinds of things.
const (
	First = iota
	Second
)

const (
	Third = iota // is documented
	// Fourth is documented.
	Fourth
)

// I is documented.
type I interface{ I2 }
`,
	})
	const rest = " has no doc comment"
	same(
		t, checkExportedDocs(m),
		"a/a.go:3: exported Bare"+rest,
		"a/a.go:5: exported Bare.Method"+rest,
		"a/a.go:9: exported Generic"+rest,
		"a/a.go:11: exported Generic.Method"+rest,
		"a/a.go:17: exported Func"+rest,
		"a/a.go:19: exported Const"+rest,
		"a/a.go:21: exported A"+rest,
		"a/a.go:21: exported C"+rest,
		"a/a.go:23: exported Port"+rest,
		"a/a.go:24: exported Port.Call"+rest,
		"a/a.go:35: exported InGroup"+rest,
	)
}

func TestRenderSurface(t *testing.T) {
	t.Parallel()
	const want = `const (
	First Kind = iota
	Second
)
var ErrX error
var Guess
func Run[T any](ctx context.Context, in T, options ...Option) (T, error)
type Alias = Kind
type Handle[I, O any] struct {
	Name    string ` + "`json:\"name\"`" + `
	Timeout time.Duration
	Embedded
}
func (_ *Handle[I, O]) Start(in I) (O, error)
type Kind int
func (_ Kind) String() string
type Option interface {
	Apply(x, y int)
	// contains filtered or unexported methods
}
`
	sources := map[string]string{
		"as written": `// Package m is a module.
package m

// Kind is a kind.
type Kind int

// The kinds.
const (
	// First is first.
	First Kind = iota

	Second // is second
)

// String is a method.
func (k Kind) String() string { return "body" }

type (
	Alias  = Kind
	hidden struct{}
)

func (hidden) Method() {}
func (k Kind) private() {}

var (
	ErrX  error = f("…")
	Guess       = f("…")
	secret = 1
)

type Option interface {
	// Apply applies.
	Apply(x, y int)
	sealed()
}

// Run runs.
func Run[T any](ctx context.Context, in T, options ...Option) (T, error) { panic("body") }
func run() {}

// Handle is generic.
type Handle[I, O any] struct {
	// Name names.
	Name    string ` + "`json:\"name\"`" + `
	Timeout time.Duration // or else
	Embedded
	private int
}

func (h *Handle[I, O]) Start(in I) (O, error) { return h.start(in) }
`,
		"with other comments, line breaks and order": `package m

func (
	handle *Handle[I, O],
) Start(
	in I,
) (
	O,
	error,
) {
	return
}

type Option interface { Apply(x, y int); hidden() }

type Handle[
	I,
	O any,
] struct {
	another, secret string

	Name string ` + "`json:\"name\"`" + `

	// A long
	// explanation.

	Timeout time.Duration

	Embedded
}

func Run[T any](
	ctx context.Context,
	in T,
	options ...Option,
) (T, error) {
	return
}

const (
	First Kind = iota
	Second
)

func (Kind_ Kind) String() string { return "" }
type Alias = Kind
type Kind int
var Guess = 1
var ErrX error
`,
	}
	for name, source := range sources {
		m := parse(t, map[string]string{"m.go": source, "m_test.go": "package m\n\nfunc Exported() {}\n"})
		got, ok := surface(m.packages[0])
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%s: ok = %v (-want +got):\n%s", name, ok, diff)
		}
		if got := surfaceFile(m, m.packages[0]); got != "m.txt" {
			t.Errorf("file of the root package = %s, want m.txt", got)
		}
		if got := countTypes(m.packages[0]); got != 4 {
			t.Errorf("%s: %d exported types, want 4", name, got)
		}
	}
	m := parse(t, map[string]string{"a/b/broken.go": "package b\nfunc {"})
	if _, ok := surface(m.packages[0]); ok {
		t.Error("a package that cannot be parsed has a surface")
	}
	if got := surfaceFile(m, m.packages[0]); got != "a_b.txt" {
		t.Errorf("file of a/b = %s, want a_b.txt", got)
	}
}
