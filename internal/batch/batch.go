// Package batch applies one operation to every execution that a query selects (Run). It also has
// the stored form of batch jobs (Spec, Input), which package batchjob runs.
//
// Run lists the executions newest first, page by page. A bounded number of workers apply the
// operation, each to one execution at a time. If the operation fails for one execution, the batch
// reports the error and continues with the others. The listing only moves to older starts, so a
// batch does not touch executions that start while it runs. It addresses each execution by the run
// that was listed, so it does not touch a later run of the same key. Run stores nothing: after an
// interruption the caller calls it again.
package batch

import (
	"context"
	"iter"

	"github.com/perdure/perdure/internal/api"
)

// Do applies the operation to an execution. Several calls run at the same time.
type Do func(ctx context.Context, e *api.Description) error

// Result is the result for one execution. A result without an execution has the error of the
// listing. It is the last result.
type Result struct {
	Execution *api.Description
	Err       error
}

// Run applies do to every execution that the request selects, and yields the results as they
// arrive, in any order. If do is nil, Run changes nothing: it only yields the executions. When the
// caller stops iterating, Run starts no further operations and waits for the running operations.
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
