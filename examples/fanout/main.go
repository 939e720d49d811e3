// Command fanout runs 1,000 steps in parallel in one workflow, and adds up their results.
//
//	go run ./examples/fanout [store URL]
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

var (
	ran    atomic.Int64
	square = perdure.NewActivity("square", func(_ context.Context, n int) (int, error) {
		ran.Add(1)
		return n * n, nil
	})
	sum = perdure.NewWorkflow("sum-of-squares", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		parts := make([]*perdure.Future[int], n)
		for i := range parts {
			parts[i] = square.Go(ctx, i)
		}
		squares, err := perdure.All(ctx, parts...)
		if err != nil {
			return 0, err
		}
		total := 0
		for _, s := range squares {
			total += s
		}
		return total, nil
	})
)

func main() {
	url := "memory:"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	total, took, err := run(context.Background(), url, 1000)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("the sum of 1,000 squares is %d; %d steps ran in parallel, %s in all\n", total, ran.Load(), took.Round(time.Millisecond))
}

func run(ctx context.Context, url string, n int) (int, time.Duration, error) {
	app, err := embedded.Open(ctx, url, sum, square)
	if err != nil {
		return 0, 0, err
	}
	defer app.Close()
	begin := time.Now()
	total, err := sum.Run(app.With(ctx), n)
	return total, time.Since(begin), err
}
