package perdure

import (
	"context"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/query"
)

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

// Describe tells how an execution stands.
func (a *App) Describe(ctx context.Context, t Target) (Info, error) {
	to, err := t.target().api()
	if err != nil {
		return Info{}, public(err)
	}
	d, err := a.host.backend.Describe(ctx, to)
	if err != nil {
		return Info{}, public(err)
	}
	return infoOf(&d), nil
}

// Executions lists by query, newest first. The empty query lists all. A query is made of conditions joined by "and":
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
func (a *App) Executions(ctx context.Context, query string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		req, err := listRequest(query)
		if err != nil {
			yield(Info{}, public(err))
			return
		}
		req.Limit, req.Explain = 200, true
		for {
			page, err := a.host.backend.List(ctx, req)
			if err != nil {
				yield(Info{}, public(err))
				return
			}
			for i := range page.Executions {
				if !yield(infoOf(&page.Executions[i]), nil) {
					return
				}
			}
			if req.Cursor = page.Cursor; req.Cursor == "" {
				return
			}
		}
	}
}

// Stranded lists open executions and tasks that go on only when somebody changes something, with the reason: no
// live process has their code, the version that they are pinned to, or a worker for their queue; the code does not
// match their history; they are blocked. Look at it after a deploy.
func (a *App) Stranded(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for cursor := ""; ; {
			page, err := a.host.backend.Stranded(ctx, model.DefaultTenant, cursor)
			if err != nil {
				yield(Info{}, public(err))
				return
			}
			for i := range page.Executions {
				if !yield(infoOf(&page.Executions[i]), nil) {
					return
				}
			}
			if cursor = page.Cursor; cursor == "" {
				return
			}
		}
	}
}

// Count counts what Executions lists.
func (a *App) Count(ctx context.Context, query string) (int64, error) {
	req, err := listRequest(query)
	if err != nil {
		return 0, public(err)
	}
	n, err := a.host.backend.Count(ctx, req)
	return n, public(err)
}

// listRequest is what a query asks for.
func listRequest(text string) (api.ListRequest, error) {
	q, err := query.Parse(text, time.Now())
	return q.Request(), err
}

// Event is one fact of the history of a run.
type Event struct {
	Position int64
	Time     time.Time
	Kind     string // such as step_completed, timer_fired, signal_received
	Name     string // of the step, signal, promise or child
	Attempt  int
	// Queue and Worker are those of a task: which one carries it, and who has claimed it: worker@node, or worker@node/owner when the node had lent it to the
	// owner of the run.
	Queue, Worker string
	// Input and Output are JSON. What is stored in another way is decoded, if this app can; if not, they are nil.
	Input, Output []byte
	// InputIs and OutputIs tell how they are stored, such as "512 bytes of json+aes-gcm".
	InputIs, OutputIs string
	Err               error
}

// History is the history of a run, from its start.
func (a *App) History(ctx context.Context, t Target) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		to, err := t.target().api()
		if err != nil {
			yield(Event{}, public(err))
			return
		}
		req := api.HistoryRequest{Target: to, After: -1}
		for {
			page, err := a.host.backend.History(ctx, req)
			if err != nil {
				yield(Event{}, public(err))
				return
			}
			for i := range page.Events {
				if !yield(a.eventOf(ctx, &page.Events[i]), nil) {
					return
				}
			}
			if !page.More || len(page.Events) == 0 {
				return
			}
			req.After, req.Target.Run = page.Events[len(page.Events)-1].Seq, page.Run
		}
	}
}

func (a *App) eventOf(ctx context.Context, e *model.Event) Event {
	out := Event{Position: e.Seq, Time: e.At.Std(), Kind: e.Kind.String(), Name: e.Name, Attempt: e.Attempt, Worker: e.Worker}
	if e.Task != nil {
		out.Queue = e.Task.Queue
	}
	out.Input, out.InputIs = a.host.show(ctx, e.Input)
	out.Output, out.OutputIs = a.host.show(ctx, e.Output)
	if e.Failure != nil {
		out.Err = remote(e.Failure)
	}
	return out
}
