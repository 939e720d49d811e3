package perdure_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
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

// TestMistakesInDefinitions opens with one mistake at a time. Nothing is opened: there is no engine behind these.
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
			[]string{"input of activity o: perdure_test.opaque has no exported field, so nothing of it would be stored"},
		},
		{
			"encodes itself only",
			[]perdure.Definition{perdure.NewActivity("s", func(context.Context, int) (oneWay, error) { return oneWay{}, nil })},
			[]string{"perdure_test.oneWay encodes itself but cannot decode itself"},
		},
		{
			"all at once",
			[]perdure.Definition{wf, perdure.NewWorkflow("", nothing), perdure.Group{act.Bind(nil), act.Bind(noop)}},
			[]string{"4 mistakes in definitions:", "workflow wf is declared", "name of workflow is empty", "two definitions of activity act", "function of activity act is nil"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			app, err := perdure.Attach(t.Context(), perdure.Attachment{}, c.defs...)
			if app != nil || !errors.Is(err, perdure.ErrInvalid) {
				t.Fatalf("got %v, %v", app, err)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v\nhas no %q", err, part)
				}
			}
		})
	}
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
