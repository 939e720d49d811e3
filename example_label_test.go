package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// Queries find executions by their labels. Workflow code may change the labels.
func ExampleLabels() {
	orders := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		return "packed", ctx.SetLabel("stage", "packed")
	})
	app := embedded.MustOpen("memory:", orders)
	defer app.Close()
	ctx := context.Background()
	for key, region := range map[string]string{"o-1": "eu", "o-2": "us"} {
		if _, err := orders.Run(app.With(ctx), "", perdure.RawKey(key), perdure.Labels(map[string]string{"region": region})); err != nil {
			panic(err)
		}
	}
	for info, err := range app.Executions().List(ctx, `workflow = "order" and label.region = "eu"`) {
		fmt.Println(info.Ref.Key, info.Labels, err)
	}
	// Output: o-1 map[region:eu stage:packed] <nil>
}
