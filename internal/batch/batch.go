// Package batch does one thing to every execution that a query selects.
//
// It lists them newest first, page by page, and has a bounded number of workers do it, each to one
// execution at a time. What one of them refuses is reported and the others go on. The cursor only
// moves to older starts, so an execution that starts while a batch runs is not touched; and each is
// touched as the run that was listed, so neither is one that has got the key meanwhile. A batch
// keeps nothing: stopped half way, it is simply run again.
package batch

import (
	"context"
	"iter"

	"github.com/perdure/perdure/internal/api"
)

// Do does one thing to an execution. Several calls run at once.
type Do func(ctx context.Context, e *api.Description) error

// Result is what became of one execution. One without an execution is the error of the listing, and
// the last one.
type Result struct {
	Execution *api.Description
	Err       error
}

// Run does it to every execution that the request selects and yields the results as they come; the
// order is not that of the list. Without do it changes nothing: it only yields what it would have
// done it to. When the caller stops iterating, nothing new is begun, and what has begun is waited
// for.
func Run(ctx context.Context, c api.Client, r api.ListRequest, do Do) iter.Seq[Result] {
	r.Limit = pageSize
	list := func(ctx context.Context, hand func(*api.Description), _ func(Result)) error {
		return walk(ctx, r.Cursor, func(cursor string) ([]api.Description, string, error) {
			r := r
			r.Cursor = cursor
			page, err := c.List(ctx, r)
			return page.Executions, page.Cursor, err
		}, func(e *api.Description) error {
			hand(e)
			return nil
		})
	}

	one := func(ctx context.Context, e *api.Description) Result {
		if do == nil {
			return Result{Execution: e}
		}
		return Result{e, do(ctx, e)}
	}

	return fan(ctx, list, one, func(err error) Result { return Result{Err: err} })
}
