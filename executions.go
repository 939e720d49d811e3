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

// Executions lists, describes and operates executions of workflows and tasks. Workflow code, and a
// program that waits for one execution, use the handle of that execution instead ([Execution],
// [Ref]).
type Executions struct{ app *App }

// Executions operates the executions of the store.
func (a *App) Executions() Executions { return Executions{a} }

// List returns the executions that a query selects, newest first. The empty query selects all. A
// query consists of conditions joined by "and":
//
//	workflow = "order"                   workflow in ("order", "refund")
//	key = "order-42"                     key = "order-"*
//	status = "open"                      status in ("failed", "canceled")
//	started >= "2026-11-15T00:00:00Z"    closed < -24h
//	label.region = "eu"                  label.region in ("eu", "us")
//	reason = "replay_mismatch"           reason in ("timer", "signal")
//
// A * after a text matches every key that starts with the text. != negates a condition on a status
// or a label. Times can be compared with <, <=, > and >=, and a time such as -24h counts back from
// now. reason is why an open execution makes no progress.
//
// status is open, closed, running, completed, failed, canceled, continued or terminated. An
// execution without a label satisfies != for that label. docs/operating.md says which conditions
// use an index.
func (x Executions) List(ctx context.Context, query string) iter.Seq2[Info, error] {
	req, err := x.app.listRequest(query)
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

// Count returns how many executions List would return.
func (x Executions) Count(ctx context.Context, query string) (int64, error) {
	req, err := x.app.listRequest(query)
	if err != nil {
		return 0, err
	}
	n, err := x.app.host.backend.Count(ctx, req)
	return n, public(err)
}

// Stranded returns open executions and tasks that cannot continue by themselves, with the reason.
// Some are blocked, for example because the code does not match their history. For the others, no
// live process has what they need: their code, the version that they are pinned to, or a worker for
// their queue. Call Stranded after a deploy.
func (x Executions) Stranded(ctx context.Context) iter.Seq2[Info, error] {
	return pages(infoOf, func(cursor string) ([]api.Description, string, error) {
		page, err := x.app.host.backend.Stranded(ctx, x.app.host.tenant, cursor)
		return page.Executions, page.Cursor, err
	})
}

// Describe returns the status of an execution. For an open execution, it also returns the reason
// why the execution waits, and the cause of that reason.
func (x Executions) Describe(ctx context.Context, t Target) (info Info, err error) {
	defer publish(&err)
	to, err := t.target().api(x.app.host)
	if err != nil {
		return Info{}, err
	}
	d, err := x.app.host.backend.Describe(ctx, to)
	if err != nil {
		return Info{}, err
	}
	return infoOf(&d), nil
}

// Batch applies do to every execution that a query selects, to several at the same time, and yields
// the result of each:
//
//	cancel := func(c perdure.Client, e perdure.Info) error { return e.Ref.Cancel(c, "it moves") }
//	for e, err := range app.Executions().Batch(ctx, `label.region = "eu"`, cancel) {
//		fmt.Println(e.Ref, err)
//	}
//
// An error of one execution does not stop the others. Batch applies do only to the runs that it has
// listed, not to runs that start later. If the list itself fails, Batch yields a zero Info with the
// error, and ends. With a nil do, Batch changes nothing and yields the selected executions.
//
// Batch does not store its progress. If ctx ends or the caller leaves the loop early, call Batch
// again. If do sends something that must not reach an execution twice, give it a RequestID.
func (x Executions) Batch(ctx context.Context, query string, do func(c Client, e Info) error) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		req, err := x.app.listRequest(query)
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

// Pause stops an execution until Resume. A running step may finish. The engine keeps signals,
// updates and timers for later.
func (x Executions) Pause(ctx context.Context, t Target, reason string) error {
	return x.order(ctx, t, reason, x.app.host.backend.Pause)
}

// Resume undoes Pause.
func (x Executions) Resume(ctx context.Context, t Target) error {
	return x.order(ctx, t, "", x.app.host.backend.Resume)
}

// Terminate ends an execution immediately. Its code does not run again, so no clean-up and no
// compensation runs. To let the code clean up, use Cancel instead.
func (x Executions) Terminate(ctx context.Context, t Target, reason string) error {
	return x.order(ctx, t, reason, x.app.host.backend.Terminate)
}

// Delete removes a closed execution with all its runs, or one run if the Target names a run. It
// returns ErrConflict while the execution is open. A later start with the same key begins a new
// execution.
func (x Executions) Delete(ctx context.Context, t Target) error {
	to, err := t.target().api(x.app.host)
	if err == nil {
		_, err = x.app.host.backend.Delete(ctx, api.DeleteRequest{Target: to})
	}
	return public(err)
}

// ForceDelete removes an execution that nothing else can end: its rows cannot be read, or the store
// refuses its commits. It first writes the rows to export, unchanged, as JSON lines
// (docs/operating.md has the format). Next, it terminates the execution if that is still possible.
// Then it removes the rows. The locks of the execution and its key become free.
//
// ForceDelete flushes an export that has a method Flush() error, such as a bufio.Writer, before it
// removes anything.
func (x Executions) ForceDelete(ctx context.Context, t Target, export io.Writer) error {
	to, err := t.target().api(x.app.host)
	if err == nil {
		_, err = x.app.host.backend.Delete(ctx, api.DeleteRequest{Target: to, Force: true, Export: export})
	}
	return public(err)
}

func (x Executions) order(ctx context.Context, t Target, reason string, order func(context.Context, api.CancelRequest) error) (err error) {
	defer publish(&err)
	to, err := t.target().api(x.app.host)
	if err != nil {
		return err
	}
	return order(ctx, api.CancelRequest{Target: to, Reason: reason})
}

// listRequest parses a query.
func (a *App) listRequest(text string) (api.ListRequest, error) {
	q, err := query.Parse(text, time.Now())
	return q.Request(a.host.tenant), err
}

// Info describes an execution.
type Info struct {
	Ref    Ref // names the run too
	Status Status
	Reason string // why it waits; empty once it has ended
	// Because follows the reason down to its cause, with one sentence per link. For example, it
	// says what the awaited child waits for, or which execution holds the lock. Describe fills it,
	// List does not.
	Because []string
	Started time.Time
	Closed  time.Time // zero while open
	Err     error     // why it ended, unless it completed
	Labels  map[string]string
	// Attempt is 1 for a run that no RetryPolicy has started. After a run has failed, a RetryPolicy
	// starts another run with the same input, and that run has the next number.
	Attempt int
	// Begins is when the code may start (StartDelay, StartAt), and Expires when the execution times
	// out (ExecutionTimeout). They are zero without these options.
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

	i.Reason = model.Summary(d.Reasons)
	for _, l := range d.Chain {
		i.Because = append(i.Because, l.String())
	}
	if d.Outcome.Failure != nil {
		i.Err = remote(d.Outcome.Failure)
	}

	return i
}
