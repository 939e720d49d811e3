package service

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
)

// taskWorker is a task worker as the engine sees it.
type taskWorker struct{ api.TaskWorker }

func (w taskWorker) Stop(claim model.ClaimRef, canceled bool) {
	why := api.StopLost
	if canceled {
		why = api.StopCanceled
	}
	w.TaskWorker.Stop(claim, why)
}

// taskSession is the engine as a task worker sees it.
type taskSession struct{ *engine.TaskSession }

// Beat tells that claims are being executed.
func (s taskSession) Beat(ctx context.Context, beats []api.Beat) ([]api.BeatReply, error) {
	replies := make([]api.BeatReply, len(beats))
	for i := range beats {
		held, canceled, err := s.TaskSession.Beat(ctx, beats[i].Claim, beats[i].Progress)
		if err != nil {
			return nil, err
		}
		replies[i] = api.BeatReply{Held: held, Canceled: canceled}
	}
	return replies, s.Flush(ctx)
}
