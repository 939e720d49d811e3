package service

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// taskSession adapts the engine to a task worker.
type taskSession struct {
	*engine.TaskSession

	service *Service
}

// Write stores what the worker of a claim writes.
func (s taskSession) Write(ctx context.Context, w model.TaskWrite) error {
	v := s.service.check("write of " + w.Ref.TaskRef.String())
	v.write(&w)
	if err := v.Err(); err != nil {
		return err
	}
	return s.TaskSession.Write(ctx, &w)
}

// States reads the states of a task.
func (s taskSession) States(ctx context.Context, claim model.ClaimRef) ([]api.TaskState, error) {
	rows, err := s.TaskSession.States(ctx, claim)
	return statesOf(rows), err
}

// Report delivers the outcome of a claim.
func (s taskSession) Report(ctx context.Context, r model.TaskReport) error {
	for _, d := range []time.Duration{r.After, r.RetryAfter} {
		if d < 0 || d > model.MaxTaskTime {
			return fault.New(fault.Invalid, "report of %s: the next attempt starts after %s, must be between 0 and a hundred years", r.Ref.TaskRef, d)
		}
	}
	return s.TaskSession.Report(ctx, r)
}

// Beat says that claims are being executed. It sends all heartbeats before any progress: progress
// blocks while the engine is full, and no claim must time out because of that.
func (s taskSession) Beat(ctx context.Context, beats []api.Beat) ([]api.BeatReply, error) {
	replies := make([]api.BeatReply, len(beats))
	for i := range beats {
		held, canceled, err := s.TaskSession.Beat(ctx, beats[i].Claim, nil)
		if err != nil {
			return nil, err
		}
		replies[i] = api.BeatReply{Held: held, Canceled: canceled}
	}

	for i := range beats {
		if beats[i].Progress == nil {
			continue
		}
		if _, _, err := s.TaskSession.Beat(ctx, beats[i].Claim, beats[i].Progress); err != nil {
			return nil, err
		}
	}

	return replies, s.Flush(ctx)
}
