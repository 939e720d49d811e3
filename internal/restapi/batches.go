package restapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
)

const batchesTag = "Batches"

// addBatches adds the operations that start, read and end batch jobs.
func (s *Server) addBatches() {
	const one = "/batches/{id}"
	add(s, operation{id: "start-batch", method: http.MethodPost, path: "/batches", tag: batchesTag, summary: "Apply a verb to all executions that a query selects, or count them", status: http.StatusCreated, also: http.StatusOK}, s.startBatch)
	add(s, operation{id: "list-batches", method: http.MethodGet, path: "/batches", tag: batchesTag, summary: "List batches, newest first"}, s.listBatches)
	add(s, operation{id: "get-batch", method: http.MethodGet, path: one, tag: batchesTag, summary: "Read a batch and its progress"}, s.batch)
	add(s, operation{id: "cancel-batch", method: http.MethodPost, path: one + "/cancel", tag: batchesTag, summary: "End a batch after the page that it works on", status: http.StatusNoContent}, s.cancelBatch)
}

// batchOrder says what a batch does.
type batchOrder struct {
	ID     string          `json:"id,omitempty" doc:"An id that you choose; if you repeat a request with the same id, only one batch starts"`
	Verb   string          `json:"verb" enum:"cancel,terminate,signal,pause,resume,retry,reset,delete" example:"cancel"`
	Query  string          `json:"query" minLength:"1" example:"workflow = \"order\" and started < -24h" doc:"The executions to act on; -24h means 24 hours before the start of the batch"`
	Reason string          `json:"reason,omitempty" doc:"The reason, which the executions show"`
	Signal string          `json:"signal,omitempty" doc:"The name of the signal, for the verb signal"`
	Input  json.RawMessage `json:"input,omitempty" doc:"The value of the signal"`
	Before string          `json:"before,omitempty" doc:"The step before which the verb reset starts again"`
	After  *int64          `json:"after,omitempty" minimum:"0" doc:"The last event that the verb reset keeps"`
	DryRun bool            `json:"dry_run,omitempty" example:"true" doc:"Start nothing and only count the executions"`
}

type startBatchInput struct {
	RequestHeader

	Body batchOrder
}

type startBatchOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     batchBody
}

// batchBody is a batch.
type batchBody struct {
	ID       string        `json:"id"`
	Verb     string        `json:"verb"`
	Query    string        `json:"query"`
	Selects  string        `json:"selects" doc:"The whole selection, with absolute times"`
	Reason   string        `json:"reason,omitempty"`
	Signal   string        `json:"signal,omitempty"`
	By       string        `json:"by,omitempty" doc:"The caller that started it"`
	DryRun   bool          `json:"dry_run,omitempty"`
	Status   string        `json:"status,omitempty" doc:"Absent after a dry run"`
	Started  *time.Time    `json:"started,omitempty"`
	Ended    *time.Time    `json:"ended,omitempty"`
	Failure  *failure      `json:"failure,omitempty" doc:"Why it failed or was canceled"`
	Waits    []reason      `json:"waits,omitempty" doc:"Why it makes no progress"`
	Progress batchProgress `json:"progress"`
}

// batchProgress is the progress of a batch.
type batchProgress struct {
	Matched int64        `json:"matched" doc:"Executions that the query selected when the batch started"`
	Done    int64        `json:"done" doc:"Executions that the verb was applied to"`
	Skipped int64        `json:"skipped" doc:"Executions that had ended or were removed before the batch came to them"`
	Failed  int64        `json:"failed" doc:"Executions that refused the verb or could not be reached"`
	Errors  []batchError `json:"errors" doc:"The last errors, at most 20"`
}

type batchError struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Kind     string `json:"kind"`
	Detail   string `json:"detail"`
}

func batchOf(b *api.Batch) batchBody {
	p := &b.Progress
	out := batchBody{
		ID: b.ID, Verb: b.Verb, Query: b.Query, Selects: b.Selects, Reason: b.Reason, Signal: b.Signal, By: b.By, DryRun: b.Status == 0,
		Started: at(b.Started), Ended: at(b.Ended), Failure: failureOf(b.Failure),
		Progress: batchProgress{p.Matched, p.Done, p.Skipped, p.Failed, each(p.Errors, func(e *api.BatchError) batchError {
			return batchError{e.Workflow, e.Key, e.Run.String(), e.Kind, e.Text}
		})},
	}
	if b.Status != 0 {
		out.Status = b.Status.String()
	}
	if len(b.Reasons) > 0 {
		out.Waits = each(b.Reasons, reasonOf)
	}
	return out
}

func (s *Server) startBatch(ctx context.Context, who *authn.Identity, in *startBatchInput) (*startBatchOutput, error) {
	b := &in.Body
	r := api.BatchRequest{
		Tenant: who.Tenant, ID: b.ID, RequestID: in.RequestID, Verb: b.Verb, Query: b.Query, Reason: b.Reason, Signal: b.Signal, Input: payload(b.Input),
		Before: b.Before, DryRun: b.DryRun,
	}
	if b.After != nil {
		r.After, r.Placed = *b.After, true
	}
	got, err := s.config.Backend.StartBatch(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &startBatchOutput{Status: http.StatusOK, Body: batchOf(&got)}
	if !b.DryRun {
		out.Status, out.Location = http.StatusCreated, "/v1/batches/"+url.PathEscape(got.ID)
	}
	return out, nil
}

type batchesInput struct {
	PageQuery

	Open bool `query:"open" doc:"Only batches that have not ended"`
}

func (s *Server) listBatches(ctx context.Context, who *authn.Identity, in *batchesInput) (*reply[page[batchBody]], error) {
	got, err := s.config.Backend.ListBatches(ctx, api.BatchListRequest{Tenant: who.Tenant, Open: in.Open, Limit: in.Limit, Cursor: in.Cursor})
	if err != nil {
		return nil, err
	}
	return ok(page[batchBody]{each(got.Batches, batchOf), got.Cursor})
}

// BatchPath names a batch.
type BatchPath struct {
	ID string `path:"id" example:"moved-to-eu"`
}

func (s *Server) batch(ctx context.Context, who *authn.Identity, in *BatchPath) (*reply[batchBody], error) {
	got, err := s.config.Backend.Batch(ctx, api.BatchTarget{Tenant: who.Tenant, ID: in.ID})
	if err != nil {
		return nil, err
	}
	return ok(batchOf(&got))
}

type cancelBatchInput struct {
	BatchPath
	RequestHeader

	Body *reasonBody `required:"false"`
}

func (s *Server) cancelBatch(ctx context.Context, who *authn.Identity, in *cancelBatchInput) (*none, error) {
	t := api.BatchTarget{Tenant: who.Tenant, ID: in.ID, RequestID: in.RequestID}
	if in.Body != nil {
		t.Reason = in.Body.Reason
	}
	return done(s.config.Backend.CancelBatch(ctx, t))
}
