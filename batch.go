package perdure

import (
	"context"
	"iter"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
)

// Batch does one thing to every execution that a query selects, several at once, and yields what became of each as it is done:
//
//	for e, err := range app.Batch(ctx, `workflow = "order" and status = "open" and label.region = "eu"`, func(c perdure.Client, e perdure.Info) error {
//		return e.Ref.Cancel(c, "the region moves")
//	}) {
//		fmt.Println(e.Ref, err)
//	}
//
// An error of one does not stop the others. Executions that start while it runs are not touched: it is done to the run that was listed, so Ref names
// that run. Nothing is kept: a batch that was stopped half way, by ctx or by leaving the loop, is run again; give a Send a RequestID if it must
// not reach an execution twice. A zero Info comes with the error that ends a listing. With nil for do nothing is changed: it yields what would be
// done.
func (a *App) Batch(ctx context.Context, query string, do func(c Client, e Info) error) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		req, err := listRequest(query)
		if err != nil {
			yield(Info{}, public(err))
			return
		}
		var op batch.Do
		if do != nil {
			op = func(ctx context.Context, e *api.Description) error { return do(a.With(ctx), infoOf(e)) }
		}
		for r := range batch.Run(ctx, a.host.backend, req, op) {
			var e Info
			if r.Execution != nil {
				e = infoOf(r.Execution)
			}
			if !yield(e, public(r.Err)) {
				return
			}
		}
	}
}

// Cancel asks the execution to end; clean-up runs.
func (r Ref) Cancel(s Sender, reason string) error { return cancel(s, r, reason) }
