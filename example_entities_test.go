package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// Operators find the entities that have changed recently, and more than once.
func ExampleEntities_Find() {
	counters := perdure.NewEntity[int]("counter")
	add := perdure.NewOperation(counters, "add", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		*s += n
		return *s, nil
	})
	ctx := context.Background()
	app := embedded.MustOpen("memory:", counters)
	defer app.Close()
	for _, key := range []string{"eu-1", "eu-2", "us-1", "eu-2"} {
		if _, err := add.Call(app.With(ctx), key, 5); err != nil {
			panic(err)
		}
	}

	lately := perdure.EntityFilter{Type: "counter", ChangedFrom: time.Now().Add(-time.Hour), MinVersion: 2}
	for info, err := range app.Entities().Find(ctx, lately) {
		fmt.Println(info.Ref.Key, string(info.State), err)
	}
	// Output: eu-2 10 <nil>
}

// A mistake in the code has left a wrong state. An operator repairs it.
func ExampleEntities_Edit() {
	counters := perdure.NewEntity[int]("counter")
	add := perdure.NewOperation(counters, "add", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		*s += n
		return *s, nil
	})
	ctx := context.Background()
	app := embedded.MustOpen("memory:", counters)
	defer app.Close()
	c := app.With(ctx)
	if _, err := add.Call(c, "eu-1", -5); err != nil {
		panic(err)
	}

	seen, err := app.Entities().Describe(ctx, counters.Ref("eu-1"))
	if err != nil {
		panic(err)
	}
	if _, err := app.Entities().Edit(ctx, seen.Ref, seen.Version, []byte("0")); err != nil {
		panic(err)
	}
	fmt.Println(add.Call(c, "eu-1", 3))

	// The edit above has changed the version.
	_, err = app.Entities().Edit(ctx, seen.Ref, seen.Version, []byte("0"))
	fmt.Println(errors.Is(err, perdure.ErrConflict))
	// Output:
	// 3 <nil>
	// true
}

// Operators list entities and describe one of them: its state, and why its calls wait.
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
