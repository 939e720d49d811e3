package service

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/query"
)

// builtIns are the workflows of Perdure itself. A batch leaves their executions alone.
var builtIns = []string{model.BatchType, model.ReservedPrefix + "schedule", model.ReservedPrefix + "send"}

// batchPage bounds a page of batches, because each batch costs one more read.
const batchPage = 100

func batchAddress(tenant, id string) model.Address {
	return model.Address{Tenant: tenant, Type: model.BatchType, Key: id}
}

// StartBatch starts a batch job.
func (s *Service) StartBatch(ctx context.Context, r api.BatchRequest) (api.Batch, error) {
	selection, err := s.checkBatch(&r)
	if err != nil {
		return api.Batch{}, err
	}
	by := ""
	if call := authn.CallOf(ctx); call != nil {
		if err := s.mayBatch(&call.Identity, r.Verb); err != nil {
			return api.Batch{}, err
		}
		by = call.Name
	}

	// A repeated request finds the batch that the first one has started.
	asked := digestOfBatch(&r)
	if b, err := s.sameBatch(ctx, &r, asked); !fault.Is(err, fault.NotFound) && !r.DryRun {
		return b, err
	}

	matched, err := s.countBatch(ctx, selection.Request(r.Tenant))
	if err != nil {
		return api.Batch{}, err
	}
	in := batch.Input{Spec: batch.Spec{
		Verb: r.Verb, Query: r.Query, Selects: selection.String(), Reason: r.Reason, Signal: r.Signal, Input: model.JSONPayload{Payload: r.Input},
		Before: r.Before, After: r.After, Placed: r.Placed, By: by, Began: time.Now().UTC(), Matched: matched, Asked: asked,
	}}
	if r.DryRun {
		return api.Batch{
			ID: r.ID, Verb: r.Verb, Query: r.Query, Selects: in.Spec.Selects, Reason: r.Reason, Signal: r.Signal, By: by,
			Progress: api.BatchProgress{Matched: matched},
		}, nil
	}
	return s.beginBatch(ctx, &r, &in)
}

// beginBatch starts the execution of a batch.
func (s *Service) beginBatch(ctx context.Context, r *api.BatchRequest, in *batch.Input) (api.Batch, error) {
	if err := s.roomForBatch(ctx, r.Tenant); err != nil {
		return api.Batch{}, err
	}
	input, err := in.Encode()
	if err != nil {
		return api.Batch{}, err
	}

	// The allowance of the tenant does not apply: an operator must be able to end executions even
	// if the tenant has used up its allowance.
	m := &model.Message{Kind: model.MessageStart, To: batchAddress(r.Tenant, r.ID), Input: input}
	if _, err := s.send(ctx, m); err != nil {
		if fault.Is(err, fault.Conflict) { // the same request has arrived twice at once
			return s.sameBatch(ctx, r, in.Spec.Asked)
		}
		return api.Batch{}, err
	}
	return s.Batch(ctx, api.BatchTarget{Tenant: r.Tenant, ID: r.ID})
}

// checkBatch checks a request, gives it an id, and returns its selection.
func (s *Service) checkBatch(r *api.BatchRequest) (selection query.Query, err error) {
	switch {
	case r.ID != "":
	case r.RequestID != "":
		r.ID = idOfBatch(r.RequestID)
	default:
		r.ID = uuid.Must(uuid.NewV7()).String()
	}

	v := s.check("batch")
	v.Tenant(r.Tenant)
	v.Text("the id", r.ID, batch.MaxID)
	v.RequestID(r.RequestID)
	v.Text("the query", r.Query, batch.MaxQuery)
	if len(r.Reason) > batch.MaxReason || !utf8.ValidString(r.Reason) {
		v.Wrong("the reason has %d bytes: it may have %d of text", len(r.Reason), batch.MaxReason)
	}
	if n := r.Input.Size(); n > batch.MaxInput {
		v.Wrong("the input has %d bytes as it is stored, at most %d are allowed", n, batch.MaxInput)
	}
	v.batchVerb(r)
	if err := v.Err(); err != nil {
		return selection, err
	}

	narrowed, _ := batch.Narrow(r.Verb, r.Query)
	if selection, err = query.Parse(narrowed, time.Now()); err != nil {
		return selection, err
	}
	if selection.Earlier() {
		return selection, fault.New(fault.Invalid, `batch: a batch acts on the latest run of each execution, and no latest run is "continued": select another status`)
	}
	for _, name := range selection.Workflows {
		if model.IsBuiltIn(name) {
			return selection, fault.New(fault.Invalid, "batch: workflow %s is one of Perdure itself, which batches leave alone", name)
		}
	}
	return selection, nil
}

// batchVerb checks the verb of a batch and the fields of the request that belong to the verb.
func (v validator) batchVerb(r *api.BatchRequest) {
	if !slices.Contains(api.BatchVerbs(), r.Verb) {
		v.Wrong("there is no verb %.40q: it is one of %v", r.Verb, api.BatchVerbs())
		return
	}
	switch {
	case r.Verb == api.BatchSignal:
		v.Name("signal", r.Signal)
	case r.Signal != "" || r.Input.Size() > 0:
		v.Wrong("only the verb %s has a signal and an input", api.BatchSignal)
	}
	switch {
	case r.Verb != api.BatchReset && (r.Before != "" || r.Placed || r.After != 0):
		v.Wrong("only the verb %s has a place to start from", api.BatchReset)
	case r.Before != "" && r.Placed:
		v.Wrong("both a step and a position are set: set only one")
	case !r.Placed && r.After != 0:
		v.Wrong("the position is %d, and placed is not set", r.After)
	case r.Before != "":
		v.Name("step", r.Before)
	}
}

// mayBatch refuses a caller that may not apply the verb of the batch to a single execution.
func (s *Service) mayBatch(who *authn.Identity, verb string) error {
	a := s.authorizer
	if a == nil {
		a = authz.Admins{}
	}
	for _, action := range authz.BatchActions(verb) {
		if err := a.Authorize(who, action); err != nil {
			return fault.New(fault.KindOf(err), "batch of %s: %w", verb, err)
		}
	}
	return nil
}

// digestOfBatch returns a digest of the content of a request.
func digestOfBatch(r *api.BatchRequest) []byte {
	input := ""
	if r.Input.Comparable() {
		input = string(r.Input.Digest())
	}
	return digestOf("batch", r.Verb, r.Query, r.Reason, r.Signal, input, r.Before, strconv.FormatInt(r.After, 10), strconv.FormatBool(r.Placed))
}

// idOfBatch returns the id of the batch that a request with a request id and without an id starts.
func idOfBatch(request string) string { return hex.EncodeToString(digestOf("batch", request)) }

// sameBatch returns the batch with the id of a request, if the same request has started it. It
// fails with NotFound if there is no such batch.
func (s *Service) sameBatch(ctx context.Context, r *api.BatchRequest, asked []byte) (api.Batch, error) {
	t := api.BatchTarget{Tenant: r.Tenant, ID: r.ID}
	row, err := s.batchRow(ctx, t)
	if err != nil {
		return api.Batch{}, err
	}
	in, err := batch.Decode(row.Start.Input)
	if err != nil {
		return api.Batch{}, err
	}
	if !slices.Equal(in.Spec.Asked, asked) {
		if r.RequestID != "" && r.ID == idOfBatch(r.RequestID) {
			return api.Batch{}, fault.New(fault.Conflict, "request id %q was used for another batch, %s: this batch needs another request id", r.RequestID, r.ID)
		}
		return api.Batch{}, fault.New(fault.Conflict, "batch %s exists and does something else: use another id", r.ID)
	}
	return s.Batch(ctx, t)
}

// countBatch counts the executions that a batch will act on.
func (s *Service) countBatch(ctx context.Context, r api.ListRequest) (int64, error) {
	all, err := s.Count(ctx, r)
	if err != nil || len(r.Workflows) > 0 {
		return all, err
	}
	r.Workflows = builtIns
	ours, err := s.Count(ctx, r)
	return max(0, all-ours), err
}

// roomForBatch refuses a batch when the tenant has too many open batches.
func (s *Service) roomForBatch(ctx context.Context, tenant string) error {
	n, err := s.Count(ctx, api.ListRequest{Tenant: tenant, Workflows: []string{model.BatchType}, Statuses: []model.Status{model.Running}})
	if err == nil && n >= batch.MaxOpen {
		err = fault.New(fault.Exhausted, "tenant %s has %d open batches, at most %d are allowed: wait for one of them, or cancel it", tenant, n, batch.MaxOpen)
	}
	return err
}

// batchRow reads the current run of a batch.
func (s *Service) batchRow(ctx context.Context, t api.BatchTarget) (*api.Description, error) {
	row, err := s.execution(ctx, "batch", api.Target{Address: batchAddress(t.Tenant, t.ID)})
	if err != nil {
		return nil, noBatch(t.ID, err)
	}
	d := describe(row)
	return &d, nil
}

// noBatch returns an error which says that the batch does not exist, if err says that an execution
// does not exist. Other errors stay the same.
func noBatch(id string, err error) error {
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, "there is no batch %.120s", id)
	}
	return err
}

// Batch returns a batch job and its progress.
func (s *Service) Batch(ctx context.Context, t api.BatchTarget) (api.Batch, error) {
	d, err := s.Describe(ctx, api.Target{Address: batchAddress(t.Tenant, t.ID)})
	if err != nil {
		return api.Batch{}, noBatch(t.ID, err)
	}
	return s.readBatch(ctx, &d)
}

// readBatch reads the progress of a batch.
func (s *Service) readBatch(ctx context.Context, d *api.Description) (api.Batch, error) {
	state, _, err := s.State(ctx, api.Target{Address: d.Start.Address, Run: d.Start.Run}, batch.StateProgress)
	if err != nil {
		return api.Batch{}, noBatch(d.Start.Address.Key, err)
	}
	return batch.Describe(d, state)
}

// ListBatches returns a page of batch jobs, newest first.
func (s *Service) ListBatches(ctx context.Context, r api.BatchListRequest) (page api.BatchPage, err error) {
	q := api.ListRequest{Tenant: r.Tenant, Workflows: []string{model.BatchType}, Limit: min(pageSize(r.Limit), batchPage), Cursor: r.Cursor}
	if r.Open {
		q.Statuses = []model.Status{model.Running}
	}
	list, err := s.List(ctx, q)
	if err != nil {
		return page, err
	}

	page.Cursor = list.Cursor
	for i := range list.Executions {
		a := list.Executions[i].Start.Address
		d, err := s.batchRow(ctx, api.BatchTarget{Tenant: a.Tenant, ID: a.Key})
		if err == nil {
			d.Reasons = nil
			var b api.Batch
			if b, err = s.readBatch(ctx, d); err == nil {
				page.Batches = append(page.Batches, b)
			}
		}
		if err != nil && !fault.Is(err, fault.NotFound) { // the batch may just have been removed
			return page, err
		}
	}
	return page, nil
}

// CancelBatch ends a batch job after the page that it works on.
func (s *Service) CancelBatch(ctx context.Context, t api.BatchTarget) error {
	err := s.Cancel(ctx, api.CancelRequest{Target: api.Target{Address: batchAddress(t.Tenant, t.ID)}, Reason: t.Reason, RequestID: t.RequestID})
	return noBatch(t.ID, err)
}
