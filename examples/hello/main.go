// Command hello greets after a durable sleep. Kill it while it sleeps and run it again: it
// continues.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

var greet = perdure.NewWorkflow("greet", func(ctx perdure.WorkflowCtx, name string) (string, error) {
	msg, err := perdure.Do(ctx, "compose", func(context.Context) (string, error) { return "Hello " + name, nil })
	if err != nil {
		return "", err
	}
	return msg, ctx.Sleep(10 * time.Second) // kill the process here: the next run resumes the sleep
})

func main() {
	app := embedded.MustOpen("file:perdure.db", greet)
	defer app.Close()
	fmt.Println(greet.Run(app.With(context.Background()), "World", perdure.RawKey("hello-1")))
}
