package embedded_test

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// The engine keeps audits forever. It removes all other executions a week after their end.
var audit = perdure.NewWorkflow("audit", func(_ perdure.WorkflowCtx, year int) (string, error) {
	return fmt.Sprint("audited ", year), nil
}, perdure.Retain(perdure.Forever))

func ExampleConfig_retention() {
	ctx := context.Background()
	app, err := embedded.Config{Retention: 7 * 24 * time.Hour}.Open(ctx, "memory:", audit)
	if err != nil {
		panic(err)
	}
	defer app.Close()
	fmt.Println(audit.Run(app.With(ctx), 2026))
	_, err = embedded.Config{Retention: time.Second}.Open(ctx, "memory:", audit)
	fmt.Println(err)
	// Output:
	// audited 2026 <nil>
	// open the store: a retention time of 1s: at least 1m0s
}
