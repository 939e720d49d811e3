package flovyn

import (
	"context"
	"slices"
	"time"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// submit applies the commands of a worker as one turn, and returns when they are durable.
func (q *flowQueue) submit(ctx context.Context, id string, m *pb.SubmitWorkflowCommandsRequest) error {
	r, err := q.beginSubmit(id)
	if err != nil {
		return err
	}
	q.d.workers.see(q.at.tenant, r.worker, time.Now())

	// The turn continues if the client leaves, because the door must not apply only a part of it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	turn, err := q.translate(ctx, r, m)
	if err != nil {
		q.refuse(r)
		return err
	}

	mark := ""
	if turn.Close == nil {
		mark = turn.Commands[len(turn.Commands)-1].Event.ID
	}
	s := q.mark(r, mark)
	if err := q.session.Report(ctx, turn); err != nil {
		q.refuse(r)
		return err
	}
	if turn.Close != nil {
		return q.awaitClose(ctx, r)
	}

	select {
	case err := <-s.done:
		return err
	case <-r.evicted:
		return q.afterEviction(ctx, r, mark)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mark notes the id of the event by which the door recognizes the commit of a submission.
func (q *flowQueue) mark(r *run, id string) *submission {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.submitting.mark = id
	return r.submitting
}

// beginSubmit finds the run and notes that a submission is in progress. It returns an error if no
// worker has the run, or if another submission is in progress.
func (q *flowQueue) beginSubmit(id string) (*run, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.byKey[id]
	if r == nil || r.state != handed || r.submitting != nil || r.ended {
		return nil, notRunning(id)
	}
	r.submitting = &submission{done: make(chan error, 1)}
	return r, nil
}

func notRunning(id string) error {
	return fault.New(fault.Conflict, "workflow execution %s is not running: no worker has it, or its worker was silent for too long", id)
}

// longestRefusal bounds the pause before the door again hands out a run whose commands it refused.
const longestRefusal = time.Minute

// refuse takes back a run whose commands cannot be applied. The client does not repeat them, so the
// door hands the run out again after a pause. The pause grows, because the next activation will
// probably fail in the same way.
func (q *flowQueue) refuse(r *run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.submitting = nil
	r.notBefore = time.Now().Add(min(time.Second<<min(r.refusals, 10), longestRefusal))
	r.refusals++
	r.journal.news = true
	q.putBack(r)
}

// awaitClose waits until the end of a run is durable.
func (q *flowQueue) awaitClose(ctx context.Context, r *run) error {
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, err := q.d.backend.Await(ctx, api.Target{Address: r.address(), Run: r.start.Run})
		ended <- err
	}()

	var err error
	select {
	case err = <-ended:
	case <-r.evicted: // the run has ended, or the engine refused the turn
		info, derr := q.d.backend.Describe(ctx, api.Target{Address: r.address(), Run: r.start.Run})
		if err = derr; err == nil && !info.Outcome.Status.Closed() {
			err = takenAway(r)
		}
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	r.submitting, r.ended = nil, err == nil
	q.drop(r)
	return err
}

// afterEviction finds out whether a turn was applied before the engine took the run back.
func (q *flowQueue) afterEviction(ctx context.Context, r *run, mark string) error {
	target := api.Target{Address: r.address(), Run: r.start.Run}
	for after := r.claimed; ; {
		page, err := q.d.backend.History(ctx, api.HistoryRequest{Target: target, After: after})
		if err != nil {
			return err
		}
		for i := range page.Events {
			after = page.Events[i].Seq
			if page.Events[i].ID == mark {
				return nil
			}
		}
		if !page.More || len(page.Events) == 0 {
			return takenAway(r)
		}
	}
}

func takenAway(r *run) error {
	return fault.New(fault.Unavailable, "workflow execution %s was taken from its worker before its commands were stored", r.address().Key)
}

// events returns the event log of a run that a worker has. It returns false if no worker has the
// run, or if only the store has the events. If the call comes over the connection of the worker,
// the worker has received the run. A call over another connection, such as that of a client that
// waits for the result, does not prove that.
//
// If the door has reported the end of the run, the store has the rest of the log: the door does not
// get the events of that turn.
func (q *flowQueue) events(ctx context.Context, id string, older bool) (*journal, bool) {
	q.mu.Lock()
	r := q.byKey[id]
	if r == nil || r.state != handed {
		q.mu.Unlock()
		return nil, false
	}
	shed, ended := r.shed, r.ended
	confirms := !r.confirmed && r.client == clientOf(ctx)
	if confirms {
		r.confirmed, r.at = true, time.Now()
	}
	start, events, worker := r.start, slices.Clip(r.events), r.worker
	q.mu.Unlock()

	if confirms {
		q.d.workers.see(q.at.tenant, worker, time.Now())
	}
	if shed || ended {
		return nil, false
	}
	j := newJournal(id, older)
	j.add(&model.Event{Kind: model.EventStarted, At: start.Zero(), Input: start.Input})
	for i := range events {
		j.add(&events[i])
	}
	return j, true
}
