package batch

import (
	"context"
	"iter"
	"sync"
)

// workers is how many operations run at the same time: enough to fill group commits, few enough to
// leave room for other callers.
const workers = 16

// pageSize is how many items one page of a listing has.
const pageSize = 200

// fan calls list, which finds items, and calls do for every item, in a bounded number of
// goroutines. It yields the results as they arrive, in any order. list passes each item to hand,
// and may pass results of its own to tell.
//
// If list returns an error, or if ctx ends, fan yields one more result after all others. The
// parameter last is a function that makes this result from the error of list, or from the cause of
// the end of ctx.
//
// When the caller stops iterating, fan cancels the context that it has passed to list and do. It
// starts no further calls of do, and waits for the running calls.
func fan[T, R any](ctx context.Context, list func(ctx context.Context, hand func(T), tell func(R)) error, do func(context.Context, T) R, last func(error) R) iter.Seq[R] {
	return func(yield func(R) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		listed, results := make(chan T), make(chan R)

		hand := func(item T) {
			select {
			case listed <- item:
			case <-ctx.Done():
			}
		}

		tell := func(res R) {
			select {
			case results <- res:
			case <-ctx.Done():
			}
		}

		var failed error // the error of the listing
		var busy sync.WaitGroup
		busy.Go(func() {
			defer close(listed)
			failed = list(ctx, hand, tell)
		})

		for range workers {
			busy.Go(func() {
				for item := range listed {
					if ctx.Err() == nil { // when ctx has ended, skip the remaining items
						tell(do(ctx, item))
					}
				}
			})
		}

		wg.Go(func() {
			busy.Wait()
			close(results)
		})

		for res := range results {
			if !yield(res) {
				return
			}
		}

		if failed == nil {
			failed = context.Cause(ctx)
		}
		if failed != nil {
			yield(last(failed))
		}
	}
}

// walk reads a list page by page from a cursor, and calls do for every item until do returns an
// error or ctx ends. walk does not report the end of ctx as an error: its caller checks ctx.
func walk[T any](ctx context.Context, cursor string, page func(cursor string) (items []T, next string, err error), do func(*T) error) error {
	for {
		items, next, err := page(cursor)
		if err != nil {
			return err
		}
		for i := range items {
			if err := do(&items[i]); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return nil
			}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}
