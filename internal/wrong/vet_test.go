package wrong_test

import "testing"

// reported is a wrong program that compiles, and that perdurevet must report.
type reported struct {
	id, name string
	program  string
	// want are texts that the findings must contain: what is wrong, and what to do instead.
	want []string
	// right is a similar program without findings.
	right string
}

// vetted are the wrong programs that only perdurevet can detect. Programs whose ids start with V
// are from the design of the SDK. Programs whose ids start with S break further rules of workflows,
// entities and services.
var vetted = []reported{
	{
		id: "V1", name: "captured workflow ctx in step",
		program: `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { return perdure.Do(ctx, "x", func(context.Context) (Out, error) { return Out{}, ctx.Sleep(1) }) }`,
		want:    []string{"durable call ctx.Sleep inside a step", "make it in the workflow, before or after"},
		right:   `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { if err := ctx.Sleep(1); err != nil { return Out{}, err }; return perdure.Do(ctx, "x", func(context.Context) (Out, error) { return Out{}, nil }) }`,
	},
	{
		id: "V2", name: "client used in workflow",
		program: `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { return WF.Run(app.With(nil), in) }`,
		want:    []string{"App app used in workflow code", "pass the workflow context itself"},
		right:   `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { return WF.Run(ctx, in) }`,
	},
	{
		id: "V3", name: "go statement in workflow",
		program: `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { go func() { _, _ = Act.Run(ctx, in) }(); return Out{}, nil }`,
		want:    []string{"a go statement in workflow code", "use perdure.Go"},
		right:   `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { f := perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (Out, error) { return Act.Run(ctx, in) }); return f.Get(ctx) }`,
	},
	{
		id: "V4", name: "Do in a loop without StepKey",
		program: `func v(ctx perdure.WorkflowCtx, in In) (o Out, err error) { for range in.A { o, err = perdure.Do(ctx, "x", func(context.Context) (Out, error) { return Out{}, nil }) }; return o, err }`,
		want:    []string{"needs perdure.StepKey"},
		right:   `func v(ctx perdure.WorkflowCtx, in []string) (o Out, err error) { for _, k := range in { o, err = perdure.Do(ctx, "x", func(context.Context) (Out, error) { return Out{}, nil }, perdure.StepKey(k)) }; return o, err }`,
	},
	{
		id: "V5", name: "error of ContinueAsNew dropped",
		program: `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { WF.ContinueAsNew(in); return Out{}, nil }; var _ = WF.Bind(v)`,
		want:    []string{"WF.ContinueAsNew does nothing by itself", "return its error"},
		right:   `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { return Out{}, WF.ContinueAsNew(in) }; var _ = WF.Bind(v)`,
	},
	{
		id: "V6", name: "ContinueAsNew of another workflow",
		program: `var other = perdure.DeclareWorkflow[In, Out]("other"); var _ = WF.Bind(func(ctx perdure.WorkflowCtx, in In) (Out, error) { return Out{}, other.ContinueAsNew(in) })`,
		want:    []string{"this is the code of workflow wf, which cannot continue as other", "start the other: other.Start(ctx, in)"},
		right:   `var other = perdure.DeclareWorkflow[In, Out]("other"); var _ = WF.Bind(func(ctx perdure.WorkflowCtx, in In) (Out, error) { return other.Run(ctx, in) })`,
	},
	{
		id: "V7", name: "direct call of workflow function",
		program: `var child = perdure.NewWorkflow("child", good); func v(ctx perdure.WorkflowCtx, in In) (Out, error) { return good(ctx, in) }`,
		want:    []string{"direct call of good, the code of workflow child", "write child.Run(ctx, …)"},
		right:   `var child = perdure.NewWorkflow("child", good); func v(ctx perdure.WorkflowCtx, in In) (Out, error) { return child.Run(ctx, in) }`,
	},
	{
		id: "V10", name: "future stored globally", program: `var kept *perdure.Future[Out]`,
		want: []string{"Future kept in package variable kept", "use a local variable or an argument"},
	},
	{
		id: "V11", name: "workflow ctx stored in a struct", program: `type s struct { ctx perdure.WorkflowCtx }`,
		want: []string{"WorkflowCtx kept in a field", "pass it as an argument"},
	},

	// Further rules of workflows, entities and services.
	{
		id: "S12", name: "a workflow with state in its receiver",
		program: `type flow struct{ n int }; func (f *flow) run(ctx perdure.WorkflowCtx, in In) (Out, error) { f.n++; return Out{}, ctx.Sleep(1) }`,
		want:    []string{"changes a field of its receiver", "use local variables", "[state]"},
		right:   `type flow struct{ n int }; func (f *flow) run(ctx perdure.WorkflowCtx, in In) (Out, error) { n := f.n; n++; return Out{n}, ctx.Sleep(1) }`,
	},
	{
		id: "S13", name: "a workflow with state in a package variable",
		program: `var n int; func v(ctx perdure.WorkflowCtx, in In) (Out, error) { n++; return Out{}, ctx.Sleep(1) }`,
		want:    []string{"package variable n", "pass it in with the input", "[state]"},
	},
	{
		id: "S14", name: "the clock in a workflow", program: `func v(ctx perdure.WorkflowCtx, in In) (time.Time, error) { return time.Now(), ctx.Sleep(1) }`,
		want: []string{"time.Now", "ctx.Now()"}, right: `func v(ctx perdure.WorkflowCtx, in In) (time.Time, error) { return ctx.Now(), ctx.Sleep(1) }`,
	},
	{
		id: "S15", name: "random numbers in a workflow", program: `func v(ctx perdure.WorkflowCtx, in In) (int, error) { return rand.IntN(6), ctx.Sleep(1) }`,
		want: []string{"rand.IntN", "ctx.Rand()"}, right: `func v(ctx perdure.WorkflowCtx, in In) (int, error) { return ctx.Rand().IntN(6), ctx.Sleep(1) }`,
	},
	{
		id: "S16", name: "I/O in a workflow", program: `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { _, err := http.Get("http://x"); return Out{}, err }`,
		want: []string{"http.Get", "move it into perdure.Do or an activity"}, right: `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { return perdure.Do(ctx, "get", func(context.Context) (Out, error) { _, err := http.Get("http://x"); return Out{}, err }) }`,
	},
	{
		id: "S17", name: "the order of a map", program: `func v(ctx perdure.WorkflowCtx, in map[string]In) (o Out, err error) { for _, i := range in { o, err = Act.Run(ctx, i) }; return o, err }`,
		want: []string{"in the order of a map", "range over slices.Sorted(maps.Keys(m))"},
	},
	{
		id: "S18", name: "a channel in a workflow", program: `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { c := make(chan Out, 1); c <- Out{}; return <-c, ctx.Sleep(1) }`,
		want: []string{"a send on a channel", "share variables or use a signal"},
	},
	{
		id: "S19", name: "a computed step name", program: `func v(ctx perdure.WorkflowCtx, in string) (Out, error) { return perdure.Do(ctx, "step-"+in, func(context.Context) (Out, error) { return Out{}, nil }) }`,
		want:  []string{"is computed", "use a constant"},
		right: `func v(ctx perdure.WorkflowCtx, in string) (Out, error) { return perdure.Do(ctx, "step", func(context.Context) (Out, error) { return Out{}, nil }, perdure.StepKey(in)) }`,
	},
	{
		id: "S21", name: "an entity that sleeps in a helper", program: `func nap() { time.Sleep(time.Second) }; var _ = perdure.NewOperation(perdure.NewEntity[Out]("e"), "o", func(ctx perdure.EntityCtx, s *Out, in In) (Out, error) { nap(); return *s, nil })`,
		want:  []string{"nap reaches time.Sleep", "in an entity", "start a workflow that waits with ctx.Sleep"},
		right: `var _ = perdure.NewOperation(perdure.NewEntity[Out]("e"), "o", func(ctx perdure.EntityCtx, s *Out, in In) (Out, error) { _, err := WF.Start(ctx, in); return *s, err })`,
	},
	{
		id: "S22", name: "a service that sleeps", program: `var _ = perdure.NewRPC(perdure.NewService("s"), "o", func(ctx perdure.EntityCtx, in In) (Out, error) { time.Sleep(time.Second); return Out{}, nil })`,
		want: []string{"time.Sleep in a service", "start a workflow that waits with ctx.Sleep"},
	},
	{
		id: "S20", name: "an effect in a plain defer", program: `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { defer Act.Run(ctx, in); return Out{}, ctx.Sleep(1) }`,
		want:  []string{"in a plain defer", "use ctx.Defer or ctx.OnFailure"},
		right: `func v(ctx perdure.WorkflowCtx, in In) (Out, error) { ctx.Defer(func(ctx perdure.WorkflowCtx) error { _, err := Act.Run(ctx, in); return err }); return Out{}, ctx.Sleep(1) }`,
	},
}

func TestWrongProgramsAreReported(t *testing.T) {
	t.Parallel()
	c := theCompiler(t)
	for _, r := range vetted {
		t.Run(r.id+" "+r.name, func(t *testing.T) {
			t.Parallel()
			p := c.check(t, r.program)
			if len(p.errs) > 0 {
				t.Fatalf("does not compile: %q", p.errs)
			}

			found := vet(t, &p)
			for _, want := range r.want {
				if !mentions(found, want) {
					t.Errorf("the findings are %q, want one that contains %q", found, want)
				}
			}

			if r.right == "" {
				return
			}
			if p = c.check(t, r.right); len(p.errs) > 0 {
				t.Fatalf("the right program does not compile: %q", p.errs)
			}
			if found := vet(t, &p); len(found) > 0 {
				t.Errorf("the right program has findings: %q", found)
			}
		})
	}
}
