package perdure_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// The next attempt of a task reads the state that the last attempt saved. This task continues after
// the last stored page, on any worker.
func ExampleState_Save() {
	page := perdure.NewState[int]("page")
	importer := perdure.NewActivity("import", func(ctx context.Context, pages int) (int, error) {
		done, _, err := page.Load(ctx)
		if err != nil {
			return 0, err
		}
		for ; done < pages; done++ {
			// … fetch and store a page …
			// When Save returns, the value is durable.
			if err := page.Save(ctx, done+1); err != nil {
				return 0, err
			}
			if done == 1 && perdure.Attempt(ctx) == 1 {
				return 0, fmt.Errorf("the other side hung up")
			}
		}
		return perdure.Attempt(ctx), page.Remove(ctx)
	}, perdure.OnQueue("import"), perdure.Constant(3, 0))

	app := embedded.MustOpen("memory:", importer)
	defer app.Close()
	c := app.With(context.Background())
	task, err := importer.Submit(c, 4)
	if err != nil {
		panic(err)
	}
	fmt.Println(task.Result(c))
	fmt.Println(page.Read(c, task))
	// Output:
	// 2 <nil>
	// 0 false <nil>
}

// The engine keeps the log lines of a task. With Follow, the loop ends when the task ends.
func ExampleLog() {
	greet := perdure.NewActivity("greet", func(ctx context.Context, name string) (perdure.Void, error) {
		perdure.Log(ctx).Info("hello", "name", name)
		perdure.Log(ctx).Warn("that was all")
		return perdure.Void{}, nil
	}, perdure.OnQueue("greet"))

	ctx := context.Background()
	app := embedded.MustOpen("memory:", greet)
	defer app.Close()
	task, err := greet.Submit(app.With(ctx), "Ann")
	if err != nil {
		panic(err)
	}
	for line, err := range app.Tasks().Logs(ctx, task, perdure.TaskTail{Follow: true}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(line.Level, line.Text)
	}
	// Output:
	// INFO hello name=Ann
	// WARN that was all
}

// A task streams its output while it produces it. To continue an earlier read, a reader passes the
// position of the last item that it has seen.
func ExampleStreamItem() {
	chat := perdure.NewActivity("chat", func(ctx context.Context, prompt string) (string, error) {
		var answer strings.Builder
		for _, token := range []string{"to", " be", " or", " not"} {
			answer.WriteString(token)
			if err := perdure.StreamToken(ctx, token); err != nil {
				return "", err // the task should end
			}
		}
		return answer.String(), perdure.StreamProgress(ctx, 1, "done")
	}, perdure.OnQueue("chat"))

	ctx := context.Background()
	app := embedded.MustOpen("memory:", chat)
	defer app.Close()
	task, err := chat.Submit(app.With(ctx), "that is the question")
	if err != nil {
		panic(err)
	}
	for item, err := range app.Tasks().Stream(ctx, task, perdure.TaskTail{Follow: true, After: 2}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(item.Position, item.Kind, item.Text)
	}
	// Output:
	// 3 token  or
	// 4 token  not
	// 5 progress done
}
