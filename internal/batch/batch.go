// Package batch does one thing to every execution that a query selects.
//
// It lists them newest first, page by page, and has a bounded number of workers do it, each to one execution at a time. What one of them refuses is
// reported and the others go on. The cursor only moves to older starts, so an execution that starts while a batch runs is not touched; and each is
// touched as the run that was listed, so neither is one that has got the key meanwhile. A batch keeps nothing: stopped half way, it is simply run again.
package batch

import (
	"context"
	"iter"
	"sync"

	"github.com/perdure/perdure/internal/api"
)

// workers is how many executions are dealt with at once: enough to fill group commits, few enough to leave room for others.
const workers = 16

// pageSize is how many are listed at once.
const pageSize = 200

// Do does one thing to an execution. Several calls run at once.
type Do func(ctx context.Context, e *api.Description) error

// Result is what became of one execution. One without an execution is the error of the listing, and the last one.
type Result struct {
	Execution *api.Description
	Err       error
}

// Run does it to every execution that the request selects and yields the results as they come; the order is not that of the list. Without do it
// changes nothing: it only yields what it would have done it to. When the caller stops iterating, nothing new is begun, and what has begun is waited for.
func Run(ctx context.Context, c api.Client, r api.ListRequest, do Do) iter.Seq[Result] {
	return func(yield func(Result) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		listed, results := make(chan *api.Description), make(chan Result)
		tell := func(res Result) {
			select {
			case results <- res:
			case <-ctx.Done():
			}
		}
		var failed error // of the listing
		var busy sync.WaitGroup
		busy.Go(func() {
			defer close(listed)
			failed = list(ctx, c, r, listed)
		})
		for range workers {
			busy.Go(func() {
				for e := range listed {
					if ctx.Err() != nil {
						continue // nothing new is begun
					}
					var err error
					if do != nil {
						err = do(ctx, e)
					}
					tell(Result{e, err})
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
			yield(Result{Err: failed})
		}
	}
}

// list hands out every execution, newest first.
func list(ctx context.Context, c api.Client, r api.ListRequest, to chan<- *api.Description) error {
	r.Limit = pageSize
	for {
		page, err := c.List(ctx, r)
		if err != nil {
			return err
		}
		for i := range page.Executions {
			select {
			case to <- &page.Executions[i]:
			case <-ctx.Done():
				return nil // told at the end
			}
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return nil
		}
	}
}
