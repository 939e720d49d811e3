package perdure_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/attach"
)

func nothing(perdure.WorkflowCtx, string) (string, error) { return "", nil }

func noop(context.Context, string) (string, error) { return "", nil }

type (
	opaque struct{ secret string }
	tree   struct {
		Name string
		Kids []*tree
	}
	oneWay struct{ N int }
	nested struct {
		Fine string
		Deep map[string][]struct{ C chan int }
	}
)

func (oneWay) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

// TestMistakesInDefinitions opens apps with one mistake each. Open fails each time, before it needs
// an engine.
func TestMistakesInDefinitions(t *testing.T) {
	t.Parallel()
	_ = opaque{secret: ""}
	wf := perdure.DeclareWorkflow[string, string]("wf")
	act := perdure.DeclareActivity[string, string]("act")

	workflow := func(opts ...perdure.WorkflowOption) perdure.Definition {
		return perdure.NewWorkflow("w", nothing, opts...)
	}
	for _, c := range []struct {
		name string
		defs []perdure.Definition
		want []string
	}{
		{"declared workflow without code", []perdure.Definition{wf}, []string{"workflow wf is declared but has no code: pass its Bind(fn) (", "/registry_test.go:"}},
		{"declared activity without code", []perdure.Definition{act}, []string{"activity act is declared but has no code"}},
		{"nil workflow function", []perdure.Definition{wf.Bind(nil)}, []string{"the function of workflow wf is nil (", "/registry_test.go:"}},
		{"nil machine", []perdure.Definition{perdure.BindMachine[string, string, *script](wf, nil)}, []string{"the function of workflow wf is nil (", "/registry_test.go:"}},
		{
			"machine of types that cannot be stored",
			[]perdure.Definition{perdure.NewMachine[chan int, func()]("m", func(chan int) *script { return nil })},
			[]string{"input of workflow m: chan int cannot be encoded; use", "output of workflow m: func() cannot be encoded", "/registry_test.go:"},
		},
		{"nil activity function", []perdure.Definition{perdure.NewActivity[int, int]("n", nil)}, []string{"the function of activity n is nil"}},
		{
			"two workflows of a name",
			[]perdure.Definition{perdure.NewWorkflow("x", nothing), perdure.NewWorkflow("x", nothing)},
			[]string{"two definitions of workflow x (", "/registry_test.go:"},
		},
		{"two activities of a name", []perdure.Definition{act.Bind(noop), perdure.Group{act.Bind(noop)}}, []string{"two definitions of activity act"}},
		{"used activity without code", []perdure.Definition{workflow(perdure.Uses(act))}, []string{"workflow w uses activity act, which has no code here"}},
		{"used workflow without code", []perdure.Definition{workflow(perdure.Uses(wf))}, []string{"workflow w uses workflow wf, which has no code here"}},
		{"no name", []perdure.Definition{perdure.NewWorkflow("", nothing)}, []string{"the name of workflow is empty"}},
		{"long name", []perdure.Definition{perdure.NewActivity(strings.Repeat("n", 201), noop)}, []string{"has 201 bytes, at most 200 are allowed"}},
		{"the name of all", []perdure.Definition{perdure.NewActivity("*", noop)}, []string{`the name of an activity is "*"`}},
		{"control character", []perdure.Definition{perdure.NewActivity("a\nb", noop)}, []string{`the name of activity "a\nb" contains a control character`}},
		{"not text", []perdure.Definition{perdure.NewActivity("\xff", noop)}, []string{"is not valid UTF-8"}},
		{"slash", []perdure.Definition{perdure.NewWorkflow("a/b", nothing)}, []string{"contains a slash"}},
		{"nil definition", []perdure.Definition{nil}, []string{"a definition is nil"}},
		{"nil handle", []perdure.Definition{(*perdure.Workflow[int, int])(nil)}, []string{"a definition is nil"}},
		{
			"channel as input",
			[]perdure.Definition{perdure.NewWorkflow("c", func(perdure.WorkflowCtx, chan int) (string, error) { return "", nil })},
			[]string{"input of workflow c: chan int cannot be encoded"},
		},
		{
			"channel deep inside the output",
			[]perdure.Definition{perdure.NewActivity("d", func(context.Context, int) (nested, error) { return nested{}, nil })},
			[]string{"output of activity d: field Deep: field C: chan int cannot be encoded"},
		},
		{
			"interface",
			[]perdure.Definition{perdure.NewActivity("i", func(context.Context, struct{ Err error }) (int, error) { return 0, nil })},
			[]string{"input of activity i: field Err: interface error can be encoded but not decoded"},
		},
		{
			"map keys",
			[]perdure.Definition{perdure.NewActivity("m", func(context.Context, map[float64]int) (int, error) { return 0, nil })},
			[]string{"the keys of map[float64]int cannot be encoded"},
		},
		{
			"nothing exported",
			[]perdure.Definition{perdure.NewActivity("o", func(context.Context, opaque) (int, error) { return 0, nil })},
			[]string{"input of activity o: perdure_test.opaque has no exported field, so it would be stored empty"},
		},
		{
			"encodes itself only",
			[]perdure.Definition{perdure.NewActivity("s", func(context.Context, int) (oneWay, error) { return oneWay{}, nil })},
			[]string{"perdure_test.oneWay encodes itself but cannot decode itself"},
		},
		{"workflow named as an entity", []perdure.Definition{perdure.NewWorkflow("entity:x", nothing)}, []string{`the name of workflow entity:x begins with "entity:", as the addresses of entities do`}},
		{"workflow named as a service", []perdure.Definition{perdure.NewWorkflow("service:x", nothing)}, []string{`begins with "service:", as the addresses of services do`}},
		{"used entity without code", []perdure.Definition{workflow(perdure.Uses(entityOf[int]("e", inc)))}, []string{"workflow w uses entity e, which has no code here: pass it"}},
		{
			"all at once",
			[]perdure.Definition{wf, perdure.NewWorkflow("", nothing), perdure.Group{act.Bind(nil), act.Bind(noop)}},
			[]string{"4 mistakes in definitions:", "workflow wf is declared", "name of workflow is empty", "two definitions of activity act", "function of activity act is nil"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkMistakes(t, c.defs, c.want)
		})
	}
}

func inc(_ perdure.EntityCtx, n *int, by int) (int, error) { return *n + by, nil }

// entityOf returns an entity with one operation.
func entityOf[S, I, O any](name string, fn func(perdure.EntityCtx, *S, I) (O, error), opts ...perdure.EntityOption) *perdure.Entity[S] {
	e := perdure.NewEntity[S](name, opts...)
	perdure.NewOperation(e, "do", fn)
	return e
}

// serviceOf returns a service with one RPC.
func serviceOf[I, O any](name string, fn func(perdure.EntityCtx, I) (O, error), opts ...perdure.EntityOption) *perdure.Service {
	s := perdure.NewService(name, opts...)
	perdure.NewRPC(s, "do", fn)
	return s
}

func echoText(_ perdure.EntityCtx, in string) (string, error) { return in, nil }

func TestMistakesInEntities(t *testing.T) {
	t.Parallel()
	twice := entityOf[int]("e", inc)
	perdure.NewView(twice, "do", func(n, _ int) (int, error) { return n, nil })
	declared := perdure.DeclareOperation[int, int]("e", "do")
	viewless := perdure.NewEntity[int]("e")
	perdure.NewView[int, int, int](viewless, "look", nil)

	for name, c := range map[string]struct {
		defs []perdure.Definition
		want []string
	}{
		"two entities":          {[]perdure.Definition{entityOf[int]("e", inc), entityOf[int]("e", inc)}, []string{"two definitions of entity e (", "/registry_test.go:"}},
		"two services":          {[]perdure.Definition{serviceOf("s", echoText), serviceOf("s", echoText)}, []string{"two definitions of service s ("}},
		"two operations":        {[]perdure.Definition{twice}, []string{"two definitions of operation do of entity e (", "/registry_test.go:"}},
		"bound twice":           {[]perdure.Definition{perdure.BindOperation(perdure.NewEntity[int]("e"), declared, inc), perdure.BindOperation(perdure.NewEntity[int]("e"), declared, inc)}, []string{"two definitions of entity e ("}},
		"bound and defined":     {[]perdure.Definition{perdure.BindOperation(entityOf[int]("e", inc), declared, inc)}, []string{"two definitions of operation do of entity e"}},
		"bound to another one":  {[]perdure.Definition{perdure.BindOperation(entityOf[int]("f", inc), declared, inc)}, []string{"operation do is declared for entity e and bound to entity f ("}},
		"bound to nothing":      {[]perdure.Definition{perdure.BindOperation(nil, declared, inc)}, []string{"operation do is bound to no entity (", "/registry_test.go:"}},
		"RPC bound and defined": {[]perdure.Definition{perdure.DeclareRPC[string, string]("s", "do").Bind(echoText), serviceOf("s", echoText)}, []string{"two definitions of RPC do of service s ("}},
		"RPC bound to nil":      {[]perdure.Definition{perdure.DeclareRPC[string, string]("s", "do").Bind(nil)}, []string{"the function of RPC do of service s is nil (", "/registry_test.go:"}},
		"nil operation":         {[]perdure.Definition{entityOf[int, int, int]("e", nil)}, []string{"the function of operation do of entity e is nil ("}},
		"nil view":              {[]perdure.Definition{viewless}, []string{"the function of operation look of entity e is nil ("}},
		"nil RPC":               {[]perdure.Definition{serviceOf[int, int]("s", nil)}, []string{"the function of RPC do of service s is nil ("}},
		"bound to nil":          {[]perdure.Definition{perdure.BindOperation(perdure.NewEntity[int]("e"), declared, nil)}, []string{"the function of operation do of entity e is nil ("}},
		"no operation":          {[]perdure.Definition{perdure.NewEntity[int]("e")}, []string{"entity e has no operation: define one"}},
		"no RPC":                {[]perdure.Definition{perdure.NewService("s")}, []string{"service s has no RPC: define one"}},
		"nil entity":            {[]perdure.Definition{(*perdure.Entity[int])(nil)}, []string{"a definition is nil"}},
		"no name":               {[]perdure.Definition{entityOf[int]("", inc)}, []string{"the name of entity is empty"}},
		"long name":             {[]perdure.Definition{serviceOf(strings.Repeat("s", 193), echoText)}, []string{"has 193 bytes, at most 192 are allowed"}},
		"slash":                 {[]perdure.Definition{entityOf[int]("a/b", inc)}, []string{`the name of entity "a/b" contains a slash`}},
		"state that cannot be stored": {
			[]perdure.Definition{entityOf("e", func(perdure.EntityCtx, *chan int, int) (int, error) { return 0, nil })},
			[]string{"state of entity e: chan int cannot be encoded; use"},
		},
		"input and output that cannot be stored": {
			[]perdure.Definition{serviceOf("s", func(perdure.EntityCtx, func()) (chan int, error) { return nil, nil })},
			[]string{"input of RPC do of service s: func() cannot be encoded", "output of RPC do of service s: chan int cannot be encoded"},
		},
		"entities do not overlap":   {[]perdure.Definition{entityOf("e", inc, perdure.Concurrency(3))}, []string{"entity e: Concurrency is for services"}},
		"no room":                   {[]perdure.Definition{entityOf("e", inc, perdure.MailboxSize(0), perdure.MaxIdle(-1))}, []string{"entity e: MailboxSize(0) must be at least 1", "entity e: MaxIdle(-1ns) must be more than 0"}},
		"nobody":                    {[]perdure.Definition{serviceOf("s", echoText, perdure.Concurrency(-1))}, []string{"service s: Concurrency(-1) must be >= 0"}},
		"group with an orphan":      {[]perdure.Definition{perdure.GroupOf(&struct{ Do *perdure.Operation[int, int] }{perdure.NewOperation[int]((*perdure.Entity[int])(nil), "do", inc)})}, []string{"field Do: operation do has no entity: it is nil ("}},
		"group with an orphan view": {[]perdure.Definition{perdure.GroupOf(&struct{ Do *perdure.Operation[int, int] }{perdure.NewView((*perdure.Entity[int])(nil), "do", func(n, _ int) (int, error) { return n, nil })})}, []string{"operation do has no entity"}},
		"group with an orphan RPC":  {[]perdure.Definition{perdure.GroupOf(&struct{ Do *perdure.RPC[string, string] }{perdure.NewRPC(nil, "do", echoText)})}, []string{"RPC do has no service: it is nil ("}},
		"group without operation":   {[]perdure.Definition{perdure.GroupOf(&struct{ Do *perdure.Operation[int, int] }{})}, []string{"field Do is nil"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkMistakes(t, c.defs, c.want)
		})
	}
}

// checkMistakes opens wrong definitions and compares the mistakes.
func checkMistakes(t *testing.T, defs []perdure.Definition, wanted []string) {
	t.Helper()
	app, err := attach.Open(t.Context(), attach.Config{}, defs...)
	if app != nil || !errors.Is(err, perdure.ErrInvalid) {
		t.Fatalf("got %v, %v", app, err)
	}
	for _, part := range wanted {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nhas no %q", err, part)
		}
	}
}

// A bound RPC defines its service, so the program need not pass the service.
func TestBoundRPCs(t *testing.T) {
	t.Parallel()
	one, two := perdure.DeclareRPC[string, string]("one", "echo"), perdure.DeclareRPC[string, string]("two", "echo")
	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		for _, r := range []*perdure.RPC[string, string]{one, two} {
			got, err := r.Call(c, "k", "hello")
			want(t, got, err, "hello")
		}
	}, one.Bind(echoText), two.Bind(echoText), serviceOf("two", echoText, perdure.Concurrency(1)))
}

// A group of operations and RPCs defines the entities and services that they belong to.
func TestGroupOfOperations(t *testing.T) {
	t.Parallel()
	e, s := perdure.NewEntity[int]("e"), perdure.NewService("s")
	group := struct {
		Add   *perdure.Operation[int, int]
		Look  *perdure.Operation[int, int]
		Echo  *perdure.RPC[string, string]
		Other *perdure.Operation[int, int] // another program has the code
	}{perdure.NewOperation(e, "add", inc), perdure.NewView(e, "look", func(n, _ int) (int, error) { return n, nil }), perdure.NewRPC(s, "echo", echoText), perdure.DeclareOperation[int, int]("f", "add")}
	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		n, err := group.Add.Call(c, "k", 3)
		want(t, n, err, 3)
		text, err := group.Echo.Call(c, "k", "hello")
		want(t, text, err, "hello")
	}, perdure.GroupOf(&group))
}

func TestDefinitionsWithoutMistakes(t *testing.T) {
	t.Parallel()
	act := perdure.DeclareActivity[tree, []tree]("act")
	app, err := embedded.Open(t.Context(), "memory:",
		perdure.Group{act.Bind(func(context.Context, tree) ([]tree, error) { return nil, nil })},
		perdure.NewActivity("any", func(context.Context, any) (perdure.Void, error) { return perdure.Void{}, nil }),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
}
