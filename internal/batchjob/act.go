package batchjob

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/query"
)

// Bounds of a page.
const (
	// A page has at most pageSize executions. Their workflow names and keys have at most
	// maxPageBytes bytes in total.
	pageSize     = 100
	maxPageBytes = 128 << 10
	// workers is how many executions a batch acts on at the same time.
	workers = 8
	// itemTime is how long the verb may take on one execution.
	itemTime = 30 * time.Second
	// maxTries is how often a batch tries a page. The last try counts unreachable executions as
	// failed.
	maxTries = 5
	// maxErrorText bounds the text of an error.
	maxErrorText = 300
	// oldPage is the age from which a batch does not rely on request ids. It is less than
	// engine.LeastRetainRequest, after which an owner may forget a request id.
	oldPage = 18 * time.Hour
)

// work is what a batch does in one process.
type work struct {
	client     api.Client
	tenant, id string
	spec       *batch.Spec
	// old is true if the page is older than oldPage. In that case the batch reads the histories of
	// the executions to see which of them have already received the request.
	old bool
}

// on returns the work on a page that was listed at the given time. If the clock has gone back by
// more than an hour since then, the age of the page is not known, so the page counts as old.
func (w *work) on(listed time.Time) *work {
	now := *w
	age := time.Since(listed)
	now.old = age > oldPage || age < -time.Hour
	return &now
}

// list returns the executions of the next page, without executions of Perdure itself, and the
// cursor of the page after it.
func (w *work) list(ctx context.Context, cursor string) (items []batch.Item, next string, err error) {
	q, err := query.Parse(w.spec.Selects, time.Now()) // the times in the selection are absolute
	if err != nil {
		return nil, "", err
	}
	r := q.Request(w.tenant)
	r.Cursor = cursor

	for r.Limit = pageSize; ; r.Limit /= 2 {
		list, err := w.client.List(ctx, r)
		if err != nil {
			return nil, "", err
		}
		items, size := []batch.Item{}, 0
		for i := range list.Executions {
			s := &list.Executions[i].Start
			if model.IsBuiltIn(s.Address.Type) {
				continue
			}
			items = append(items, batch.Item{Workflow: s.Address.Type, Key: s.Address.Key, Run: s.Run.String()})
			size += len(s.Address.Type) + len(s.Address.Key)
		}
		if size <= maxPageBytes || r.Limit == 1 {
			return items, list.Cursor, nil
		}
	}
}

// act acts on the items of a page, several at the same time. It returns an error if an item could
// not be reached or if ctx has ended. After an error, the batch must try the page again. If last is
// true, act counts items that it could not reach as failed, and returns no error for them.
func (w *work) act(ctx context.Context, items []batch.Item, last bool) (batch.Progress, error) {
	errs := make([]error, len(items))
	turns := make(chan int)
	var busy sync.WaitGroup
	for range min(workers, len(items)) {
		busy.Go(func() {
			for i := range turns {
				errs[i] = w.one(ctx, &items[i])
			}
		})
	}
	for i := range items {
		turns <- i
	}
	close(turns)
	busy.Wait()

	var p batch.Progress
	for i, err := range errs {
		switch {
		case err == nil:
			p.Done++
		case fault.Is(err, fault.NotFound), errors.Is(err, errTooLate):
			p.Skipped++
		case ctx.Err() != nil:
			return p, context.Cause(ctx)
		case isPassing(err) && !last:
			return p, fault.New(fault.KindOf(err), "%s/%s: %w", items[i].Workflow, items[i].Key, err)
		default:
			p.Failed++
			p.Errors = append(p.Errors, errorOf(items[i], err))
		}
	}
	p.Errors = p.Errors[max(0, len(p.Errors)-api.MaxBatchErrors):]
	return p, nil
}

// isPassing reports whether the next try may succeed.
func isPassing(err error) bool {
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Timeout, fault.Exhausted, fault.Canceled:
		return true
	default:
		return errors.Is(err, context.DeadlineExceeded)
	}
}

// errTooLate says that the batch has nothing left to do for an execution. The execution has ended,
// or another run has replaced the run that the batch has selected.
var errTooLate = errors.New("the execution has ended, or has another run")

// one acts on one execution.
func (w *work) one(ctx context.Context, item *batch.Item) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // start nothing new
	}
	ctx, cancel := context.WithTimeout(ctx, itemTime)
	defer cancel()
	run, err := model.ParseRunID(item.Run)
	if err != nil {
		return err
	}

	t := api.Target{Address: model.Address{Tenant: w.tenant, Type: item.Workflow, Key: item.Key}, Run: run}
	err = w.do(ctx, t, "batch/"+w.id+"/"+item.Run)
	if !fault.Is(err, fault.Conflict) || errors.Is(err, errTooLate) {
		return err
	}

	// A conflict has many reasons. The state of the run says whether it has one that is not worth
	// an error.
	switch d, lookErr := w.client.Describe(ctx, t); {
	case lookErr != nil:
		return lookErr
	case !d.Current || w.needsNothing(d.Outcome.Status):
		return errTooLate
	}
	return err
}

// needsNothing reports whether the verb has nothing to do on the current run of an execution,
// because of the status of the run.
func (w *work) needsNothing(status model.Status) bool {
	switch w.spec.Verb {
	case api.BatchCancel, api.BatchTerminate, api.BatchPause, api.BatchResume, api.BatchSignal:
		return status.Closed()
	case api.BatchRetry:
		return !status.Closed() || status == model.Completed
	default: // a closed run can be reset and deleted, so the conflict has another reason
		return false
	}
}

// do applies the verb to a run. The request id makes a repetition harmless.
func (w *work) do(ctx context.Context, t api.Target, request string) (err error) {
	s := w.spec
	order := api.CancelRequest{Target: t, Reason: s.Reason, RequestID: request}
	if order.Reason == "" {
		order.Reason = "batch " + w.id
	}

	if w.old && leavesEvent(s.Verb) {
		if done, err := w.hasActed(ctx, t, request); done || err != nil {
			return err
		}
	}

	switch s.Verb {
	case api.BatchCancel:
		return w.client.Cancel(ctx, order)
	case api.BatchTerminate:
		return w.client.Terminate(ctx, order)
	case api.BatchPause:
		return w.client.Pause(ctx, order)
	case api.BatchResume:
		return w.client.Resume(ctx, order)
	case api.BatchSignal:
		return w.client.Signal(ctx, api.SignalRequest{Target: t, Name: s.Signal, Input: s.Input.Payload, RequestID: request})
	case api.BatchRetry:
		_, err = w.client.Retry(ctx, api.PastRequest{Source: t, RequestID: request})
	case api.BatchReset:
		_, err = w.client.Reset(ctx, api.PastRequest{Source: t, Before: s.Before, After: s.After, Placed: s.Placed, RequestID: request})
	case api.BatchDelete:
		return w.remove(ctx, t, request)
	default:
		err = fault.New(fault.Invalid, "this build does not know the verb %.40q", s.Verb)
	}
	return err
}

// remove deletes an execution with all its runs, up to the run that the batch has selected. A run
// that starts later stays, even if it has ended by now. If the execution no longer exists, remove
// returns no error: this batch, another caller or the retention has already removed the execution.
func (w *work) remove(ctx context.Context, t api.Target, request string) error {
	all, err := w.client.Delete(ctx, api.DeleteRequest{Target: api.Target{Address: t.Address}, DryRun: true})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if n := len(all.Runs); n == 0 || all.Runs[n-1] != t.Run {
		return errTooLate
	}

	// A delete of the address would also remove a run that has replaced this one in the meantime.
	// So delete each run by its id: the oldest first, and the selected one last, because the others
	// could not be found without it.
	for _, run := range all.Runs {
		r := api.DeleteRequest{Target: api.Target{Address: t.Address, Run: run}, RequestID: request}
		if run != t.Run {
			r.RequestID += "#" + run.String()
		}
		if _, err := w.client.Delete(ctx, r); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return nil
}

// leavesEvent reports whether a verb leaves an event with the request id in the history. The other
// verbs end the run, replace the run or remove the run, so a repetition has no effect.
func leavesEvent(verb string) bool {
	switch verb {
	case api.BatchCancel, api.BatchSignal, api.BatchPause, api.BatchResume:
		return true
	default:
		return false
	}
}

// hasActed reports whether the history of a run has an event of the request.
func (w *work) hasActed(ctx context.Context, t api.Target, request string) (bool, error) {
	r := api.HistoryRequest{Target: t, After: -1}
	for {
		page, err := w.client.History(ctx, r)
		if err != nil {
			return false, err
		}
		for i := range page.Events {
			if page.Events[i].RequestID == request {
				return true, nil
			}
		}
		if !page.More || len(page.Events) == 0 {
			return false, nil
		}
		r.After = page.Events[len(page.Events)-1].Seq
	}
}
