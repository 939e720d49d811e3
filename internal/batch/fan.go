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

// fan applies do to all listed items, with a bounded number of workers, and yields the results as
// they arrive, in any order. list calls hand with each item, and may call tell with results of its
// own. If list fails, the last result has its error. If ctx ends, the last result has the cause.
// When the caller stops iterating, ctx ends, and fan starts no further calls and waits for the
// running calls.
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
					if ctx.Err() == nil { // otherwise nothing new begins
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
// error or ctx ends. The end of ctx is not an error here.
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
