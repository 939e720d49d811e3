package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

func ExampleApp_Watch() {
	ctx := context.Background()
	greet := perdure.NewWorkflow("greet", func(perdure.WorkflowCtx, string) (string, error) { return "", nil })
	app, err := embedded.Open(ctx, "memory:", greet)
	if err != nil {
		panic(err)
	}
	defer app.Close()

	for c, err := range app.Watch(ctx, perdure.WatchQuery{Workflows: []string{"greet"}}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(c.Class, c.Kind)
		if c.Kind == "begun" { // from here on the loop misses nothing
			if _, err := greet.Start(app.With(ctx), "Ann"); err != nil {
				panic(err)
			}
		}
		if c.Status == perdure.Completed {
			break
		}
	}
	// Output:
	// feed begun
	// execution started
	// execution completed
}
