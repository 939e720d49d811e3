package wrong_test

import (
	"strings"
	"testing"
)

// refused is a program that must not compile.
type refused struct {
	id, name string
	// body is the body of a function with the parameters ctx, a WorkflowCtx, and std, a
	// context.Context. top is code outside the function.
	body, top string
	want      string
	// right is the body of a similar program that must compile. rightTop is code outside its
	// function.
	right, rightTop string
}

// compiled are the programs of the design that the compiler rejects. The programs with an id that
// starts with S are further programs, for the rules of workflows and activities.
var compiled = []refused{
	{
		id: "01", name: "workflow ctx as context.Context", body: `http.NewRequestWithContext(ctx, "GET", "", nil)`,
		want:  "cannot use ctx (variable of struct type perdure.WorkflowCtx) as context.Context value in argument to http.NewRequestWithContext",
		right: `http.NewRequestWithContext(std, "GET", "", nil)`,
	},
	{
		id: "02", name: "activity called from entity", top: `func e(ctx perdure.EntityCtx) { Act.Run(ctx, In{}) }`,
		want:     "cannot use ctx (variable of struct type perdure.EntityCtx) as perdure.WorkflowCtx value in argument to Act.Run",
		rightTop: `func e(ctx perdure.EntityCtx) { WF.Start(ctx, In{}) }`,
	},
	{
		id: "03", name: "entity waits on workflow", top: `func e(ctx perdure.EntityCtx) { WF.Run(ctx, In{}) }`,
		want:     "cannot use ctx (variable of struct type perdure.EntityCtx) as perdure.Caller value in argument to WF.Run",
		rightTop: `func e(ctx perdure.EntityCtx) { WF.Start(ctx, In{}) }`,
	},
	{
		id: "04", name: "wait inside caller transaction", top: `func f(tx *sql.Tx) { WF.Run(app.InTx(context.Background(), tx), In{}) }`,
		want:     "as perdure.Caller value in argument to WF.Run",
		rightTop: `func f(tx *sql.Tx) { WF.Start(app.InTx(context.Background(), tx), In{}) }`,
	},
	{
		id: "05", name: "wrong request type", body: `WF.Run(ctx, Out{})`,
		want: "cannot use Out{} (value of struct type Out) as In value in argument to WF.Run", right: `WF.Run(ctx, In{})`,
	},
	{
		id: "06", name: "wrong signal type", body: `Sig.Send(ctx, perdure.Ref{}, In{})`,
		want: "cannot use In{} (value of struct type In) as Out value in argument to Sig.Send", right: `Sig.Send(ctx, perdure.Ref{}, Out{})`,
	},
	{
		id: "07", name: "sleep in activity", body: `Act.Bind(func(ctx context.Context, in In) (Out, error) { return Out{}, ctx.Sleep(1) })`,
		want:  "ctx.Sleep undefined (type context.Context has no field or method Sleep)",
		right: `WF.Bind(func(ctx perdure.WorkflowCtx, in In) (Out, error) { return Out{}, ctx.Sleep(1) })`,
	},
	{
		id: "08", name: "activity bound with wrong type", body: `Act.Bind(func(context.Context, Out) (Out, error) { return Out{}, nil })`,
		want:  "as func(context.Context, In) (Out, error) value in argument to Act.Bind",
		right: `Act.Bind(func(context.Context, In) (Out, error) { return Out{}, nil })`,
	},
	{
		id: "09", name: "workflow with two inputs", body: `perdure.NewWorkflow("x", func(ctx perdure.WorkflowCtx, a In, b In) (Out, error) { return Out{}, nil })`,
		want:  "in call to perdure.NewWorkflow, type func(ctx perdure.WorkflowCtx, a In, b In) (Out, error)",
		right: `perdure.NewWorkflow("x", func(ctx perdure.WorkflowCtx, a struct{ A, B In }) (Out, error) { return Out{}, nil })`,
	},
	{
		id: "10", name: "workflow without error result", body: `perdure.NewWorkflow("x", func(ctx perdure.WorkflowCtx, a In) Out { return Out{} })`,
		want: "in call to perdure.NewWorkflow, type func(ctx perdure.WorkflowCtx, a In) Out", right: `perdure.NewWorkflow("x", good)`,
	},
	{
		id: "11", name: "activity function as workflow", body: `perdure.NewWorkflow("x", func(ctx context.Context, a In) (Out, error) { return Out{}, nil })`,
		want:  "in call to perdure.NewWorkflow, type func(ctx context.Context, a In) (Out, error)",
		right: `perdure.NewActivity("x", func(ctx context.Context, a In) (Out, error) { return Out{}, nil })`,
	},
	{
		id: "12", name: "lock inside entity", top: `func e(ctx perdure.EntityCtx) { ctx.Lock(nil, nil) }`,
		want: "ctx.Lock undefined (type perdure.EntityCtx has no field or method Lock)",
	},
	{
		id: "13", name: "view mutates state",
		top:      `var ent = perdure.NewEntity[Out]("e"); var v = perdure.NewView(ent, "v", func(s *Out, _ perdure.Void) (int, error) { s.B++; return 0, nil })`,
		want:     "in call to perdure.NewView, type func(s *Out, _ perdure.Void) (int, error)",
		rightTop: `var ent = perdure.NewEntity[Out]("e"); var v = perdure.NewView(ent, "v", func(s Out, _ perdure.Void) (int, error) { return s.B, nil })`,
	},
	{
		id: "14", name: "operation on wrong state",
		top:      `var ent = perdure.NewEntity[Out]("e"); var op = perdure.NewOperation(ent, "o", func(ctx perdure.EntityCtx, s *In, _ perdure.Void) (int, error) { return 0, nil })`,
		want:     "in call to perdure.NewOperation, type func(ctx perdure.EntityCtx, s *In, _ perdure.Void) (int, error)",
		rightTop: `var ent = perdure.NewEntity[Out]("e"); var op = perdure.NewOperation(ent, "o", func(ctx perdure.EntityCtx, s *Out, _ perdure.Void) (int, error) { return 0, nil })`,
	},
	{
		id: "15", name: "tx activity with foreign tx type",
		body:  `perdure.NewTxActivity("t", perdure.SQL(nil), func(ctx context.Context, tx *sql.Conn, in In) (Out, error) { return Out{}, nil })`,
		want:  "in call to perdure.NewTxActivity, type func(ctx context.Context, tx *sql.Conn, in In) (Out, error)",
		right: `perdure.NewTxActivity("t", perdure.SQL(nil), func(ctx context.Context, tx *sql.Tx, in In) (Out, error) { return Out{}, nil })`,
	},
	{
		id: "16", name: "continue-as-new wrong type", body: `WF.ContinueAsNew(Out{})`,
		want: "cannot use Out{} (value of struct type Out) as In value in argument to WF.ContinueAsNew", right: `WF.ContinueAsNew(In{})`,
	},
	{
		id: "17", name: "key func of wrong input", body: `WF.KeyedBy(func(o Out) perdure.Key { return perdure.RawKey("") })`,
		want: "as func(In) perdure.Key value in argument to WF.KeyedBy", right: `WF.KeyedBy(func(i In) perdure.Key { return perdure.RawKey("") })`,
	},
	{
		id: "18", name: "entity option on workflow", body: `perdure.NewWorkflow("x", good, perdure.Concurrency(3))`,
		want: "as perdure.WorkflowOption value", right: `perdure.NewService("x", perdure.Concurrency(3))`,
	},
	{
		id: "19", name: "key on an activity step", body: `Act.Run(ctx, In{}, perdure.RawKey("x"))`,
		want: `cannot use perdure.RawKey("x") (value of struct type perdure.Key) as perdure.CallOption value in argument to Act.Run`, right: `Act.Run(ctx, In{}, perdure.StepKey("x"))`,
	},
	{
		id: "20", name: "race of different types", body: `perdure.Race(ctx, Act.Go(ctx, In{}), ctx.Timer(1))`,
		want: `does not match inferred type *perdure.Future[Out]`, right: `perdure.Select(ctx, Act.Go(ctx, In{}), ctx.Timer(1))`,
	},
	{
		id: "21", name: "query from a workflow", body: `perdure.NewQuery[In, Out]("q").Ask(ctx, perdure.Ref{}, In{})`,
		want:  "cannot use ctx (variable of struct type perdure.WorkflowCtx) as perdure.Client value in argument to",
		right: `perdure.NewQuery[In, Out]("q").Ask(app.With(std), perdure.Ref{}, In{})`,
	},
	{
		id: "22", name: "complete with wrong result", body: `WF.Complete(In{})`,
		want: "cannot use In{} (value of struct type In) as Out value in argument to WF.Complete", right: `WF.Complete(Out{})`,
	},
	{
		id: "23", name: "group RPC on a service without it",
		top:      `type Orders struct{ Place *perdure.RPC[In, Out] }; func g(o Orders) { o.Ping.Send(app.With(context.Background()), "k", In{}) }`,
		want:     "o.Ping undefined (type Orders has no field or method Ping)",
		rightTop: `type Orders struct{ Place *perdure.RPC[In, Out] }; func g(o Orders) { o.Place.Send(app.With(context.Background()), "k", In{}) }`,
	},
	{
		id: "24", name: "machine without OnStart",
		top:      `type M struct{ perdure.Events }; var machine = perdure.NewMachine[In, Out]("m", func(In) *M { return nil })`,
		want:     "missing method OnStart",
		rightTop: `type M struct{ perdure.Events }; func (*M) OnStart() perdure.Actions { return nil }; var machine = perdure.NewMachine[In, Out]("m", func(In) *M { return nil })`,
	},
	{
		id: "25", name: "self-reference with New (init cycle)",
		top:      `var W = perdure.NewWorkflow("w", w); func w(ctx perdure.WorkflowCtx, in In) (Out, error) { return Out{}, W.ContinueAsNew(in) }`,
		want:     "initialization cycle for W",
		rightTop: `var W = perdure.DeclareWorkflow[In, Out]("w"); func w(ctx perdure.WorkflowCtx, in In) (Out, error) { return Out{}, W.ContinueAsNew(in) }; var _ = W.Bind(w)`,
	},
	{
		id: "26", name: "mutual entity ops with New (init cycle)",
		top: `var ent = perdure.NewEntity[Out]("e"); var A = perdure.NewOperation(ent, "a", a); var B = perdure.NewOperation(ent, "b", b)
func a(ctx perdure.EntityCtx, s *Out, n int) (int, error) { return n, B.Send(ctx, "k", n) }
func b(ctx perdure.EntityCtx, s *Out, n int) (int, error) { return n, A.Send(ctx, "k", n) }`,
		want: "initialization cycle",
		rightTop: `var ent = perdure.NewEntity[Out]("e"); var A, B = perdure.DeclareOperation[int, int]("e", "a"), perdure.DeclareOperation[int, int]("e", "b")
func a(ctx perdure.EntityCtx, s *Out, n int) (int, error) { return n, B.Send(ctx, "k", n) }
func b(ctx perdure.EntityCtx, s *Out, n int) (int, error) { return n, A.Send(ctx, "k", n) }
var _ = perdure.Group{perdure.BindOperation(ent, A, a), perdure.BindOperation(ent, B, b)}`,
	},
	{
		id: "27", name: "a method value of a package variable (init cycle)",
		top:      `type PO struct{}; func (PO) Execute(ctx perdure.WorkflowCtx, in In) (Out, error) { return W.Run(ctx, in) }; var W = perdure.NewWorkflow("w", PO{}.Execute)`,
		want:     "initialization cycle",
		rightTop: `type PO struct{}; func (PO) Execute(ctx perdure.WorkflowCtx, in In) (Out, error) { return W.Run(ctx, in) }; var W = perdure.DeclareWorkflow[In, Out]("w"); var _ = W.Bind(PO{}.Execute)`,
	},

	// Rules of workflows and activities.
	{
		id: "S1", name: "a workflow without its function", body: `perdure.NewWorkflow[In, Out]("x")`,
		want: "not enough arguments in call to perdure.NewWorkflow", right: `perdure.DeclareWorkflow[In, Out]("x")`,
	},
	{
		id: "S2", name: "a workflow with two functions", body: `perdure.NewWorkflow("x", good, good)`,
		want: "cannot use good (value of type func(ctx perdure.WorkflowCtx, in In) (Out, error)) as perdure.WorkflowOption value", right: `perdure.NewWorkflow("x", good)`,
	},
	{
		id: "S3", name: "a workflow without input", body: `perdure.NewWorkflow("x", func(ctx perdure.WorkflowCtx) (Out, error) { return Out{}, nil })`,
		want:  "in call to perdure.NewWorkflow, type func(ctx perdure.WorkflowCtx) (Out, error)",
		right: `perdure.NewWorkflow("x", func(ctx perdure.WorkflowCtx, _ perdure.Void) (Out, error) { return Out{}, nil })`,
	},
	{
		id: "S4", name: "an activity without error result", body: `perdure.NewActivity("x", func(ctx context.Context, in In) Out { return Out{} })`,
		want:  "in call to perdure.NewActivity, type func(ctx context.Context, in In) Out",
		right: `perdure.NewActivity("x", func(ctx context.Context, in In) (Out, error) { return Out{}, nil })`,
	},
	{
		id: "S5", name: "the timeout of an attempt on a workflow", body: `perdure.NewWorkflow("x", good, perdure.AttemptTimeout(3))`,
		want: "as perdure.WorkflowOption value", right: `perdure.DeclareActivity[In, Out]("x", perdure.AttemptTimeout(3))`,
	},
	{
		id: "S6", name: "an option of schedules on a start", body: `WF.Start(ctx, In{}, perdure.CatchUp(3))`,
		want: "as perdure.StartOption value", right: `WF.Start(ctx, In{}, perdure.StartDelay(3))`,
	},
	{
		id: "S7", name: "a workflow as RPC", body: `perdure.NewRPC(perdure.NewService("s"), "x", good)`,
		want:  "in call to perdure.NewRPC, type func(ctx perdure.WorkflowCtx, in In) (Out, error)",
		right: `perdure.NewRPC(perdure.NewService("s"), "x", func(ctx perdure.EntityCtx, in In) (Out, error) { return Out{}, nil })`,
	},
	{
		id: "S8", name: "step key on a start", body: `WF.Start(ctx, In{}, perdure.StepKey("x"))`,
		want: "as perdure.StartOption value", right: `WF.Start(ctx, In{}, perdure.RawKey("x"))`,
	},
	{
		id: "S9", name: "activity called by ordinary code", body: `Act.Run(app.With(std), In{})`,
		want: "as perdure.WorkflowCtx value in argument to Act.Run", right: `Act.Run(ctx, In{})`,
	},
	{
		id: "S10", name: "a Caller of one's own", top: `type mine struct{}; func (mine) sender() {}; func (mine) caller() {}; var _ perdure.Caller = mine{}`,
		want: "does not implement perdure.Caller",
	},
	{
		id: "S11", name: "wrong promise type", body: `perdure.NewPromise[Out]("p").Resolve(app.With(std), perdure.Ref{}, In{})`,
		want: "cannot use In{} (value of struct type In) as Out value", right: `perdure.NewPromise[Out]("p").Resolve(app.With(std), perdure.Ref{}, Out{})`,
	},
}

// source returns the text of a program.
func (r *refused) source(body, top string) string {
	return "func use(ctx perdure.WorkflowCtx, std context.Context) {\n" + body + "\n}\n" + top + "\n"
}

func TestWrongProgramsDoNotCompile(t *testing.T) {
	t.Parallel()
	c := theCompiler(t)
	if p := c.check(t, ""); len(p.errs) > 0 {
		t.Fatalf("the head does not compile: %q", p.errs)
	}
	for _, r := range compiled {
		t.Run(r.id+" "+r.name, func(t *testing.T) {
			t.Parallel()
			r.check(t, c)
		})
	}
}

// check checks that the compiler rejects the wrong program and accepts the right program.
func (r *refused) check(t *testing.T, c *compiler) {
	t.Helper()
	if p := c.check(t, r.source(r.body, r.top)); !mentions(p.errs, r.want) {
		t.Errorf("errors %q, want %q", p.errs, r.want)
	}
	if r.right+r.rightTop == "" {
		return
	}
	if p := c.check(t, r.source(r.right, r.rightTop)); len(p.errs) > 0 {
		t.Errorf("the right program: %q", p.errs)
	}
}

func mentions(texts []string, want string) bool {
	return strings.Contains(strings.Join(texts, "\n"), want)
}
