package replay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of queries about runs that have ended. Each of these queries reads and replays a whole
// history.
const (
	maxRecalls       = 2  // queries that run at the same time
	maxRecallsInLine = 64 // queries that wait; further ones are refused
	recallTimeout    = 30 * time.Second
)

// Load reads the whole history of a run. A zero run means the current run.
type Load func(ctx context.Context, a model.Address, run model.RunID) (*model.History, error)

// Taken implements api.Worker. The worker does nothing here. It continues when it gets events, and
// the engine keeps the waits of a run until the worker reports other waits.
func (*Worker) Taken(model.RunID, uint64) {}

// Recall asks the code about a run that has ended: it reads and replays the history, executes no
// step, and writes nothing. It does not block.
func (w *Worker) Recall(a model.Address, run model.RunID, generation uint64, q model.Query) {
	w.mu.Lock()
	if w.ctx.Err() != nil {
		w.mu.Unlock()
		return // the lane knows that the worker has left
	}
	w.goroutines.Add(1)
	w.mu.Unlock()

	go func() {
		defer w.goroutines.Done()
		out, err := w.recall(w.ctx, a, run, q)
		s := w.awaitSession()
		if s == nil || w.ctx.Err() != nil {
			return
		}
		if err != nil {
			s.Answer(run, generation, q.ID, model.Payload{}, w.cfg.Failure(err))
			return
		}
		s.Answer(run, generation, q.ID, out, nil)
	}()
}

// AskEnded asks the code of this worker about a run that has ended. A caller in the same process
// uses it when the owner of the run does not have the code. ok is false when this worker cannot
// answer either, or when the run is open.
func (w *Worker) AskEnded(ctx context.Context, a model.Address, run model.RunID, q model.Query) (out model.Payload, ok bool, err error) {
	if w.cfg.Code[a.Type] == nil {
		return out, false, nil
	}
	out, err = w.recall(ctx, a, run, q)
	if err == nil {
		return out, true, nil
	}
	if f := w.cfg.Failure(err); fault.ParseKind(f.Kind) == fault.Unclassified {
		err = f // an error of the handler, in the form that the owner would return
	}
	return out, !fault.Is(err, fault.Unavailable), err
}

// recall waits for its turn, reads the history and asks the code.
func (w *Worker) recall(ctx context.Context, a model.Address, run model.RunID, q model.Query) (model.Payload, error) {
	defer w.recalls.line.Add(-1)
	if w.recalls.line.Add(1) > maxRecalls+maxRecallsInLine {
		return model.Payload{}, fault.New(fault.Exhausted, "%d queries about executions that have ended wait here, which is the limit", maxRecallsInLine)
	}
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	select {
	case w.recalls.slots <- struct{}{}:
		defer func() { <-w.recalls.slots }()
	case <-ctx.Done():
		return model.Payload{}, fault.New(fault.Timeout, "query %s of %s waited too long for its turn to replay", q.Name, addressText(a))
	}

	if w.cfg.Load == nil {
		return model.Payload{}, fault.New(fault.Unavailable, "execution %s has ended, and this worker cannot read its history", addressText(a))
	}
	h, err := w.cfg.Load(ctx, a, run)
	switch {
	case err != nil:
		return model.Payload{}, err
	case !h.Outcome.Status.Closed():
		return model.Payload{}, fault.New(fault.Unavailable, "execution %s has not ended", addressText(a))
	}

	dry := Config{
		Code: w.cfg.Code, Host: w.cfg.DryHost, Failure: w.cfg.Failure, Plain: w.cfg.Plain, Logger: w.cfg.Logger, StuckAfter: w.cfg.StuckAfter,
	}
	return Ask(ctx, dry, h, q)
}

// recalls bounds how many recalls run, and how many wait, at the same time.
type recalls struct {
	slots chan struct{}
	line  atomic.Int64
}

// Ask replays a history as Check does, and asks the code a query where the history ends. If the
// recorded run was ended by its own code, today's code must end in the same way. If it does not,
// its memory differs from the memory of the recorded run, and Ask returns an error of kind Blocked.
func Ask(ctx context.Context, cfg Config, h *model.History, q model.Query) (model.Payload, error) {
	v, err := conclude(ctx, cfg, h, &q)
	if err == nil {
		err = v.compare(h, cfg.Plain)
	}
	switch {
	case err != nil:
		return model.Payload{}, err
	case v.refused != nil:
		return model.Payload{}, v.refused
	}
	return v.answer, nil
}
