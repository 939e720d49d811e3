package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// A WorkflowCtx has its own clock, random numbers and ids, which are the same on every replay. It
// is not a context.Context, so it cannot be passed to functions with effects by mistake.
func ExampleWorkflowCtx() {
	draw := perdure.NewWorkflow("draw", func(ctx perdure.WorkflowCtx, names []string) (bool, error) {
		begin := ctx.Now()
		winner := names[ctx.Rand().IntN(len(names))]
		ticket := ctx.UUID()
		if err := ctx.Sleep(5 * time.Millisecond); err != nil {
			return false, err
		}
		return winner != "" && len(ticket) == 36 && ctx.Now().Sub(begin) >= 5*time.Millisecond, nil
	})
	app := embedded.MustOpen("memory:", draw)
	defer app.Close()
	fmt.Println(draw.Run(app.With(context.Background()), []string{"ann", "bob"}))
	// Output: true <nil>
}

// Sleep is durable. An execution that sleeps needs neither memory nor a goroutine.
func ExampleWorkflowCtx_Sleep() {
	remind := perdure.NewWorkflow("remind", func(ctx perdure.WorkflowCtx, in time.Duration) (string, error) {
		if err := ctx.Sleep(in); err != nil {
			return "", err // cancelled
		}
		return "it is time", nil
	})
	app := embedded.MustOpen("memory:", remind)
	defer app.Close()
	fmt.Println(remind.Run(app.With(context.Background()), 5*time.Millisecond))
	// Output: it is time <nil>
}

// WithTimeout returns a scope. Every wait in the scope ends when the time of the scope is over.
func ExampleWorkflowCtx_WithTimeout() {
	paid := perdure.NewSignal[int]("paid")
	bill := perdure.NewWorkflow("bill", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		within := ctx.WithTimeout(10 * time.Millisecond)
		for sum := 0; sum < 100; {
			n, err := paid.Receive(within) // all receives share the deadline
			if errors.Is(err, perdure.ErrTimeout) {
				return fmt.Sprintf("only %d were paid in time", sum), nil
			}
			if err != nil {
				return "", err
			}
			sum += n
		}
		return "paid", nil
	})

	app := embedded.MustOpen("memory:", bill)
	defer app.Close()
	fmt.Println(bill.Run(app.With(context.Background()), "", paid.With(30)))
	// Output: only 30 were paid in time <nil>
}

// In a saga, each step that can be undone says how to undo it. When the workflow fails or is
// cancelled, the completed steps are undone in reverse order.
func ExampleWorkflowCtx_OnFailure() {
	var log []string
	do := perdure.NewActivity("do", func(_ context.Context, what string) (perdure.Void, error) {
		if what == "book hotel" {
			return perdure.Void{}, perdure.Permanent(errors.New("no room"))
		}
		log = append(log, what)
		return perdure.Void{}, nil
	})

	trip := perdure.NewWorkflow("trip", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		for _, what := range []string{"flight", "car", "hotel"} {
			if _, err := do.Run(ctx, "book "+what); err != nil {
				return "", err
			}
			ctx.OnFailure(func(ctx perdure.WorkflowCtx) error {
				_, err := do.Run(ctx, "return "+what)
				return err
			})
		}
		return "booked", nil
	})

	app := embedded.MustOpen("memory:", trip, do)
	defer app.Close()
	_, err := trip.Run(app.With(context.Background()), "")
	fmt.Println(err)
	fmt.Println(strings.Join(log, ", "))
	// Output:
	// no room
	// book flight, book car, return car, return flight
}

// Defer runs its function when the execution ends, for any reason. A Go defer statement would also
// run each time the execution leaves memory.
func ExampleWorkflowCtx_Defer() {
	var log []string
	note := perdure.NewActivity("note", func(_ context.Context, what string) (perdure.Void, error) {
		log = append(log, what)
		return perdure.Void{}, nil
	})

	job := perdure.NewWorkflow("job", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		ctx.Defer(func(ctx perdure.WorkflowCtx) error {
			_, err := note.Run(ctx, "machine returned")
			return err
		})
		_, err := note.Run(ctx, "worked")
		return "", err
	})

	app := embedded.MustOpen("memory:", job, note)
	defer app.Close()
	_, err := job.Run(app.With(context.Background()), "")
	fmt.Println(log, err)
	// Output: [worked machine returned] <nil>
}

// Cancelling is a request: waits end with ErrCanceled, and the code may still clean up.
func ExampleWorkflowCtx_Detached() {
	job := perdure.NewWorkflow("job", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		if err := ctx.Sleep(time.Hour); errors.Is(err, perdure.ErrCanceled) {
			// The scope of ctx has ended, so a step in it would fail immediately. This step runs,
			// because its scope is detached.
			return perdure.Do(ctx.Detached(), "save", func(context.Context) (string, error) { return "saved what there was", nil })
		}
		return "", errors.New("an hour is over")
	})

	app := embedded.MustOpen("memory:", job)
	defer app.Close()
	c := app.With(context.Background())
	exec, err := job.Start(c, "", perdure.RawKey("j"))
	if err != nil {
		panic(err)
	}
	waitFor(app, exec.Ref, "waits for a timer")
	if err := exec.Cancel(c, "not needed"); err != nil {
		panic(err)
	}
	fmt.Println(exec.Result(c))
	// Output: saved what there was <nil>
}

// OnInterrupt calls its function with the reason of a cancellation. The function runs as a
// coroutine next to the cancelled code.
func ExampleWorkflowCtx_OnInterrupt() {
	var told string
	job := perdure.NewWorkflow("job", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		ctx.OnInterrupt(func(ctx perdure.WorkflowCtx, reason string) error {
			_, err := perdure.Do(ctx, "tell", func(context.Context) (bool, error) { told = reason; return true, nil })
			return err
		})
		return "", ctx.Sleep(time.Hour)
	})

	app := embedded.MustOpen("memory:", job)
	defer app.Close()
	c := app.With(context.Background())
	exec, err := job.Start(c, "", perdure.RawKey("j"))
	if err != nil {
		panic(err)
	}
	waitFor(app, exec.Ref, "waits for a timer")
	if err := exec.Cancel(c, "the customer left"); err != nil {
		panic(err)
	}
	_, err = exec.Result(c)
	fmt.Println(told, "/", err, "/", errors.Is(err, perdure.ErrCanceled))
	// Output: the customer left / canceled: the customer left / true
}

// Log writes to the logger of the app, names the execution, and is silent on replay.
func ExampleWorkflowCtx_Log() {
	stock := perdure.NewWorkflow("stock", func(ctx perdure.WorkflowCtx, left int) (string, error) {
		ctx.Log().Error("out of stock", "left", left)
		return "", nil
	})

	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelError,
		// Remove attributes that differ in every run.
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "run_id" {
				return slog.Attr{}
			}
			return a
		},
	})

	app, err := embedded.Config{Logger: slog.New(handler)}.Open(context.Background(), "memory:", stock)
	if err != nil {
		panic(err)
	}
	defer app.Close()
	_, _ = stock.Run(app.With(context.Background()), 0, perdure.RawKey("lamps"))
	// Output: level=ERROR msg="out of stock" workflow=stock key=lamps left=0
}

// Version keeps an execution on the path on which it started. Here a deploy puts a credit check
// before the charge.
func ExampleWorkflowCtx_Version() {
	step := func(ctx perdure.WorkflowCtx, name string) error {
		_, err := perdure.Do(ctx, name, func(context.Context) (bool, error) { return true, nil })
		return err
	}
	goOn := perdure.NewSignal[perdure.Void]("go-on")
	orders := perdure.DeclareWorkflow[string, string]("order")
	before := orders.Bind(func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		if err := step(ctx, "charge"); err != nil {
			return "", err
		}
		_, err := goOn.Receive(ctx)
		return "charged", err
	})
	after := orders.Bind(func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		path := "charged"
		if ctx.Version("credit-check", 0, 1) >= 1 {
			if err := step(ctx, "check credit"); err != nil {
				return "", err
			}
			path = "checked, then charged"
		}
		if err := step(ctx, "charge"); err != nil {
			return "", err
		}
		_, err := goOn.Receive(ctx)
		return path, err
	})

	url, remove := newFile()
	defer remove()
	ctx := context.Background()

	app := embedded.MustOpen(url, before)
	if _, err := orders.Start(app.With(ctx), "", perdure.RawKey("old")); err != nil {
		panic(err)
	}
	waitFor(app, perdure.Ref{Workflow: "order", Key: "old"}, "waits for signal go-on")
	if err := app.Close(); err != nil {
		panic(err)
	}

	app = embedded.MustOpen(url, after) // the deploy
	defer app.Close()
	c := app.With(ctx)
	if err := goOn.Send(c, orders.Execution(perdure.RawKey("old")), perdure.Void{}); err != nil {
		panic(err)
	}
	fmt.Println(orders.Execution(perdure.RawKey("old")).Result(c))
	fmt.Println(orders.Run(c, "", perdure.RawKey("new"), goOn.With(perdure.Void{})))
	// Output:
	// charged <nil>
	// checked, then charged <nil>
}

// waitFor waits until an execution exists and has the reason.
func waitFor(app *perdure.App, ref perdure.Ref, reason string) {
	for {
		info, err := app.Executions().Describe(context.Background(), ref)
		switch {
		case err == nil && strings.Contains(info.Reason, reason):
			return
		case err != nil && !errors.Is(err, perdure.ErrNotFound):
			panic(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// newFile returns the URL of a store in a new file, and a function that removes it.
func newFile() (url string, remove func()) {
	dir, err := os.MkdirTemp("", "perdure")
	if err != nil {
		panic(err)
	}
	return "file:" + filepath.Join(dir, "app.db"), func() { _ = os.RemoveAll(dir) }
}
