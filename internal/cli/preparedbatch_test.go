package cli

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// batches are the batches of the store.
func (p *prepared) batches() []api.Batch {
	if p.empty {
		return nil
	}
	query := `workflow = "order" and label.region = "eu"`
	return []api.Batch{
		{
			ID: uuidA, Verb: api.BatchSignal, Signal: "approved", Query: query, Selects: query + ` and status = "running"`, Reason: "the warehouse moves", By: "key k3v9x2m7q1ab",
			Started: noon, Status: model.Running, Reasons: []model.Reason{{Code: model.WaitPaused, Detail: "lunch"}},
			Progress: api.BatchProgress{Matched: 12_000, Done: 300, Skipped: 4, Failed: 1, Errors: []api.BatchError{
				{Workflow: "order", Key: hashA, Run: runOf(4), Kind: "exhausted", Text: prose},
			}},
		},
		{
			ID: "night", Verb: api.BatchDelete, Query: `closed < -720h`, Selects: `closed < "2026-10-16T12:00:00Z"`, Started: noon, Ended: after(time.Minute), Status: model.Canceled,
			Failure: &model.Failure{Kind: model.FailureCanceled, Message: "wrong query"}, Progress: api.BatchProgress{Matched: 7, Done: 7},
		},
	}
}

func (p *prepared) StartBatch(_ context.Context, r api.BatchRequest) (api.Batch, error) {
	b := p.batches()[0]
	if r.DryRun {
		b.Status, b.Started, b.Progress = 0, 0, api.BatchProgress{Matched: 12_000}
	}
	return b, nil
}

func (p *prepared) Batch(_ context.Context, t api.BatchTarget) (api.Batch, error) {
	if t.ID == "night" {
		return p.batches()[1], nil
	}
	return p.batches()[0], nil
}

func (p *prepared) ListBatches(context.Context, api.BatchListRequest) (api.BatchPage, error) {
	return api.BatchPage{Batches: p.batches()}, nil
}

func (p *prepared) CancelBatch(context.Context, api.BatchTarget) error { return nil }
