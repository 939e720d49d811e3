package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

func Example() {
	greet := perdure.NewWorkflow("greet", func(ctx perdure.WorkflowCtx, name string) (string, error) {
		msg, err := perdure.Do(ctx, "compose", func(context.Context) (string, error) { return "Hello " + name, nil })
		if err != nil {
			return "", err
		}
		// If the process dies here, the next process continues the execution.
		return msg, ctx.Sleep(10 * time.Millisecond)
	})
	app := embedded.MustOpen("memory:", greet)
	defer app.Close()
	fmt.Println(greet.Run(app.With(context.Background()), "World", perdure.RawKey("hello-1")))
	// Output: Hello World <nil>
}

// A workflow is a function whose effects are steps. The workflow and a key identify an execution,
// so a program may repeat Run and Start.
func ExampleWorkflow() {
	type order struct {
		ID    string
		Cents int
	}
	charge := perdure.NewActivity("charge", func(_ context.Context, o order) (string, error) {
		return fmt.Sprintf("receipt for %d cents", o.Cents), nil
	})
	orders := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, o order) (string, error) {
		return charge.Run(ctx, o)
	}).KeyedBy(func(o order) perdure.Key { return perdure.RawKey(o.ID) })

	app := embedded.MustOpen("memory:", orders, charge)
	defer app.Close()
	c := app.With(context.Background())

	fmt.Println(orders.Run(c, order{"o-1", 990}))
	fmt.Println(orders.Run(c, order{"o-1", 990})) // attaches to the same execution
	_, err := orders.Run(c, order{"o-1", 1})
	fmt.Println(errors.Is(err, perdure.ErrConflict), err)
	// Output:
	// receipt for 990 cents <nil>
	// receipt for 990 cents <nil>
	// true execution order/o-1 was started with another input
}

// Start does not wait for the result. An Execution is a value that a program can store and use
// anywhere.
func ExampleWorkflow_Start() {
	double := perdure.NewWorkflow("double", func(_ perdure.WorkflowCtx, n int) (int, error) { return 2 * n, nil })
	app := embedded.MustOpen("memory:", double)
	defer app.Close()
	c := app.With(context.Background())

	exec, err := double.Start(c, 21, perdure.RawKey("d-1"))
	if err != nil {
		panic(err)
	}
	fmt.Println(exec)
	fmt.Println(exec.Result(c))
	// Output:
	// double/d-1
	// 42 <nil>
}

// A workflow that runs another workflow is its parent. The child is a separate execution with its
// own history.
func ExampleWorkflow_Run_child() {
	ship := perdure.NewWorkflow("ship", func(_ perdure.WorkflowCtx, item string) (string, error) { return item + " is on its way", nil })
	orders := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, items []string) ([]string, error) {
		var parcels []*perdure.Future[string]
		for _, item := range items {
			child, err := ship.Start(ctx, item) // all at the same time
			if err != nil {
				return nil, err
			}
			parcels = append(parcels, child.Future(ctx))
		}
		return perdure.All(ctx, parcels...)
	})

	app := embedded.MustOpen("memory:", orders, ship)
	defer app.Close()
	fmt.Println(orders.Run(app.With(context.Background()), []string{"lamp", "desk"}))
	// Output: [lamp is on its way desk is on its way] <nil>
}

// ContinueAsNew keeps a history short. The next run has the same key, and its input carries the
// state over.
func ExampleWorkflow_ContinueAsNew() {
	type month struct{ N, Paid int }
	rent := perdure.DeclareWorkflow[month, int]("rent") // declared, because it refers to itself
	code := rent.Bind(func(ctx perdure.WorkflowCtx, m month) (int, error) {
		if err := ctx.Sleep(time.Millisecond); err != nil {
			return 0, err
		}
		if m.N == 12 {
			return m.Paid, nil
		}
		return 0, rent.ContinueAsNew(month{m.N + 1, m.Paid + 700})
	})

	app := embedded.MustOpen("memory:", code)
	defer app.Close()
	// waits for the last run
	fmt.Println(rent.Run(app.With(context.Background()), month{}, perdure.RawKey("flat-7")))
	// Output: 8400 <nil>
}

// shop has the dependencies of its activities.
type shop struct{ price int }

func (s *shop) quote(_ context.Context, n int) (int, error) { return n * s.price, nil }

// A declared handle is a name with types, which a package can export. The program binds code to the
// handle where it has the dependencies, and a test binds other code.
func ExampleBinding() {
	quote := perdure.DeclareActivity[int, int]("quote")
	offers := perdure.NewWorkflow("offer", func(ctx perdure.WorkflowCtx, n int) (int, error) { return quote.Run(ctx, n) }, perdure.Uses(quote))

	s := &shop{price: 5}
	app := embedded.MustOpen("memory:", perdure.Group{offers, quote.Bind(s.quote)})
	defer app.Close()
	fmt.Println(offers.Run(app.With(context.Background()), 3))
	// Output: 15 <nil>
}

// A Group bundles definitions. Open reports all mistakes in them, in one error.
func ExampleGroup() {
	quote := perdure.DeclareActivity[int, int]("quote")
	offers := perdure.NewWorkflow("offer", func(ctx perdure.WorkflowCtx, n int) (int, error) { return quote.Run(ctx, n) }, perdure.Uses(quote))
	_, err := embedded.Open(context.Background(), "memory:", perdure.Group{offers})
	fmt.Println(errors.Is(err, perdure.ErrInvalid), err)
	// Output: true a mistake in the definitions: workflow offer uses activity quote, which has no code here and no queue: pass its Bind(fn)
}

// Keys identify executions. HashKey is for values that have no natural name.
func ExampleKey() {
	type line struct {
		SKU string
		N   int
	}
	fmt.Println(perdure.RawKey("order-42"))
	fmt.Println(perdure.HashKey(line{"a", 1}) == perdure.HashKey(map[string]any{"N": 1, "SKU": "a"}))
	// Output:
	// order-42
	// true
}

// Reuse decides what a start does if the execution of its key has ended.
func ExampleReuse() {
	fails := true
	pay := perdure.NewWorkflow("pay", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		return perdure.Do(ctx, "pay", func(context.Context) (string, error) {
			if fails {
				return "", perdure.Permanent(errors.New("card refused"))
			}
			return "paid", nil
		})
	})
	app := embedded.MustOpen("memory:", pay)
	defer app.Close()
	c := app.With(context.Background())

	fmt.Println(pay.Run(c, "", perdure.RawKey("p")))
	fails = false
	// returns the stored result
	fmt.Println(pay.Run(c, "", perdure.RawKey("p")))
	fmt.Println(pay.Run(c, "", perdure.RawKey("p"), perdure.ReuseIfFailed)) // starts a new run
	// Output:
	//  card refused
	//  card refused
	// paid <nil>
}

// When a parent closes, the engine cancels the children that still run, unless they have
// AbandonChild.
func ExampleParentClose() {
	task := perdure.NewWorkflow("task", func(ctx perdure.WorkflowCtx, d time.Duration) (string, error) { return "done", ctx.Sleep(d) })
	parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		if _, err := task.Start(ctx, time.Hour, perdure.RawKey("bound")); err != nil {
			return "", err
		}
		_, err := task.Start(ctx, 10*time.Millisecond, perdure.RawKey("free"), perdure.AbandonChild)
		return "closed", err
	})

	app := embedded.MustOpen("memory:", parent, task)
	defer app.Close()
	c := app.With(context.Background())
	fmt.Println(parent.Run(c, ""))

	for _, key := range []string{"bound", "free"} {
		child := task.Execution(perdure.RawKey(key))
		waitFor(app, child.Ref, "") // the start message of the child may not have arrived yet
		fmt.Println(child.Result(c))
	}
	// Output:
	// closed <nil>
	//  canceled: its parent closed
	// done <nil>
}

// A key is enough to refer to an execution. Execution does not read the store.
func ExampleExecution() {
	double := perdure.NewWorkflow("double", func(_ perdure.WorkflowCtx, n int) (int, error) { return 2 * n, nil })
	app := embedded.MustOpen("memory:", double)
	defer app.Close()
	c := app.With(context.Background())

	exec := double.Execution(perdure.RawKey("d-1"))
	_, err := exec.Result(c)
	fmt.Println(errors.Is(err, perdure.ErrNotFound))
	if _, err := double.Run(c, 21, perdure.RawKey("d-1")); err != nil {
		panic(err)
	}
	fmt.Println(exec.Result(c))
	// Output:
	// true
	// 42 <nil>
}

// Poll returns the state of an execution without waiting.
func ExampleOutcome() {
	wait := perdure.NewWorkflow("wait", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return "", ctx.Sleep(time.Hour) })
	app := embedded.MustOpen("memory:", wait)
	defer app.Close()
	c := app.With(context.Background())
	exec, err := wait.Start(c, "", perdure.RawKey("w"))
	if err != nil {
		panic(err)
	}
	before, _ := exec.Poll(c)
	if err := exec.Cancel(c, "enough"); err != nil {
		panic(err)
	}
	_, _ = exec.Result(c)
	after, _ := exec.Poll(c)
	fmt.Println(before.Status, before.Status.Open())
	fmt.Println(after)
	// Output:
	// running true
	// canceled: canceled: enough
}

// A Ref is the address of an execution as a value. The command line takes its text form.
func ExampleRef() {
	ref, err := perdure.ParseRef("order/o-1")
	fmt.Println(ref.Workflow, ref.Key, err)
	fmt.Println(perdure.Ref{Workflow: "order", Key: "o-2"})
	// Output:
	// order o-1 <nil>
	// order/o-2
}
