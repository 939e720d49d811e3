package perdure

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/query"
)

// Executions lists, describes and operates executions of workflows and tasks. Workflow code and
// programs that wait for one execution use its handle instead ([Execution], [Ref]).
type Executions struct{ app *App }

// Executions operates the executions of the store.
func (a *App) Executions() Executions { return Executions{a} }

// List lists by query, newest first. The empty query lists all. A query is made of conditions joined by "and":
//
//	workflow = "order"                     workflow in ("order", "refund")
//	key = "order-42"                       key = "order-"*                     which begin so
//	status = "open"                        status in ("failed", "canceled")    status != "completed"
//	started >= "2026-11-15T00:00:00Z"      closed < -24h                       also > and <=; a distance counts back from now
//	label.region = "eu"                    label.region in ("eu", "us")        label.region != "eu"
//	reason = "replay_mismatch"             reason in ("timer", "signal")       why an open one does not move
//
// status is open, closed, running, completed, failed, canceled or continued. An execution that has no such label satisfies != too. docs/operating.md
// tells which conditions are found by an index.
func (x Executions) List(ctx context.Context, query string) iter.Seq2[Info, error] {
	req, err := listRequest(query)
	req.Limit, req.Explain = 200, true
	return pages(infoOf, func(cursor string) ([]api.Description, string, error) {
		if err != nil {
			return nil, "", err
		}
		req.Cursor = cursor
		page, err := x.app.host.backend.List(ctx, req)
		return page.Executions, page.Cursor, err
	})
}

// Count counts what List lists.
func (x Executions) Count(ctx context.Context, query string) (int64, error) {
	req, err := listRequest(query)
	if err != nil {
		return 0, err
	}
	n, err := x.app.host.backend.Count(ctx, req)
	return n, public(err)
}

// Stranded lists open executions and tasks that go on only when somebody changes something, with the reason: no
// live process has their code, the version that they are pinned to, or a worker for their queue; the code does not
// match their history; they are blocked. Look at it after a deploy.
func (x Executions) Stranded(ctx context.Context) iter.Seq2[Info, error] {
	return pages(infoOf, func(cursor string) ([]api.Description, string, error) {
		page, err := x.app.host.backend.Stranded(ctx, model.DefaultTenant, cursor)
		return page.Executions, page.Cursor, err
	})
}

// Describe tells how an execution stands.
func (x Executions) Describe(ctx context.Context, t Target) (info Info, err error) {
	defer publish(&err)
	to, err := t.target().api()
	if err != nil {
		return Info{}, err
	}
	d, err := x.app.host.backend.Describe(ctx, to)
	if err != nil {
		return Info{}, err
	}
	return infoOf(&d), nil
}

// Batch does one thing to every execution that a query selects, several at once, and yields what became of each as it is done:
//
//	for e, err := range app.Executions().Batch(ctx, `workflow = "order" and status = "open" and label.region = "eu"`, func(c perdure.Client, e perdure.Info) error {
//		return e.Ref.Cancel(c, "the region moves")
//	}) {
//		fmt.Println(e.Ref, err)
//	}
//
// An error of one does not stop the others. Executions that start while it runs are not touched: it is done to the run that was listed, so Ref names
// that run. Nothing is kept: a batch that was stopped half way, by ctx or by leaving the loop, is run again; give a Send a RequestID if it must
// not reach an execution twice. A zero Info comes with the error that ends a listing. With nil for do nothing is changed: it yields what would be
// done.
func (x Executions) Batch(ctx context.Context, query string, do func(c Client, e Info) error) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		req, err := listRequest(query)
		if err != nil {
			yield(Info{}, err)
			return
		}
		var op batch.Do
		if do != nil {
			op = func(ctx context.Context, e *api.Description) error { return do(x.app.With(ctx), infoOf(e)) }
		}
		for r := range batch.Run(ctx, x.app.host.backend, req, op) {
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

// Pause has nobody continue an execution until Resume. A step that runs may finish; signals, updates and timers are kept for later.
func (x Executions) Pause(ctx context.Context, t Target, reason string) error {
	return x.order(ctx, t, reason, x.app.host.backend.Pause)
}

// Resume undoes Pause.
func (x Executions) Resume(ctx context.Context, t Target) error {
	return x.order(ctx, t, "", x.app.host.backend.Resume)
}

// Terminate ends an execution at once, whatever its code says: no clean-up runs. Cancel asks its code to end.
func (x Executions) Terminate(ctx context.Context, t Target, reason string) error {
	return x.order(ctx, t, reason, x.app.host.backend.Terminate)
}

// Delete removes a closed execution with all runs of its chain, or one run when the Target names it. It is a conflict while it is open. A start with
// the key begins afresh.
func (x Executions) Delete(ctx context.Context, t Target) error {
	to, err := t.target().api()
	if err == nil {
		_, err = x.app.host.backend.Delete(ctx, api.DeleteRequest{Target: to})
	}
	return public(err)
}

// ForceDelete removes an execution that nothing else can end: one whose rows cannot be read, or whose commits the store refuses. Its rows are written to export first, as they
// stand, as JSON lines (docs/operating.md has the format). Locks that it holds become free, and so does its key. One that can still be ended is terminated first.
// An export that has a method Flush() error, as a bufio.Writer has, is flushed before anything is
// removed.
func (x Executions) ForceDelete(ctx context.Context, t Target, export io.Writer) error {
	to, err := t.target().api()
	if err == nil {
		_, err = x.app.host.backend.Delete(ctx, api.DeleteRequest{Target: to, Force: true, Export: export})
	}
	return public(err)
}

func (x Executions) order(ctx context.Context, t Target, reason string, order func(context.Context, api.CancelRequest) error) (err error) {
	defer publish(&err)
	to, err := t.target().api()
	if err != nil {
		return err
	}
	return order(ctx, api.CancelRequest{Target: to, Reason: reason})
}

// listRequest is what a query asks for.
func listRequest(text string) (api.ListRequest, error) {
	q, err := query.Parse(text, time.Now())
	return q.Request(), err
}

// Info describes an execution, with the reason why it does not move.
type Info struct {
	Ref    Ref // with its run
	Status Status
	Reason string // while open
	// Because says what the reason leads to, one sentence after the other, down to the cause: what the child waits
	// for that it waits for, or the execution that holds the lock. Describe fills it, lists do not.
	Because []string
	Started time.Time
	Closed  time.Time // zero while open
	Err     error     // of one that failed or was cancelled
	Labels  map[string]string
	// Attempt counts runs with the same input, one after another because the one before failed, from 1.
	Attempt int
	// Begins is before when its code does not run, Expires when the execution times out; zero when nobody said so.
	Begins, Expires time.Time
}

func infoOf(d *api.Description) Info {
	a := d.Start.Address
	i := Info{
		Ref:    Ref{Workflow: a.Type, Key: a.Key, Run: d.Start.Run.String()},
		Status: Status(d.Outcome.Status.String()), Started: d.Start.At.Std(), Closed: d.Outcome.At.Std(),
		Attempt: d.Start.Tries(), Begins: d.Start.Begins.Std(), Expires: d.Start.Expires.Std(),
	}
	if len(d.Labels) > 0 {
		i.Labels = make(map[string]string, len(d.Labels))
		for _, l := range d.Labels {
			i.Labels[l.Name] = l.Value
		}
	}
	if len(d.Reasons) > 0 {
		i.Reason = d.Reasons[0].String()
	}
	for _, l := range d.Chain {
		i.Because = append(i.Because, l.String())
	}
	if d.Outcome.Failure != nil {
		i.Err = remote(d.Outcome.Failure)
	}
	return i
}
