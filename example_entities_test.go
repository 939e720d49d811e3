package perdure_test

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// Operators list entities and look at one: its state, and why calls of it wait.
func ExampleEntities_Describe() {
	counters := perdure.NewEntity[int]("counter")
	add := perdure.NewOperation(counters, "add", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		*s += n
		return *s, nil
	})
	ctx := context.Background()
	app := embedded.MustOpen("memory:", counters)
	defer app.Close()
	c := app.With(ctx)
	for i, key := range []string{"eu-1", "eu-2", "us-1"} {
		if _, err := add.Call(c, key, i+1); err != nil {
			panic(err)
		}
	}
	for info, err := range app.Entities().List(ctx, "counter", "eu-") {
		fmt.Println(info.Ref, string(info.State), err)
	}

	// The code of gauge is in another program, which does not run.
	gauge := perdure.DeclareOperation[int, int]("gauge", "set")
	if err := gauge.Send(c, "g-1", 7); err != nil {
		panic(err)
	}
	info, err := app.Entities().Describe(ctx, perdure.EntityRef{Type: "gauge", Key: "g-1"})
	fmt.Println(info.Exists, info.Waiting, info.Reason, err)
	// Output:
	// {counter eu-1} 1 <nil>
	// {counter eu-2} 2 <nil>
	// false 1 waits for a worker that offers entity gauge: no live process has its code <nil>
}
