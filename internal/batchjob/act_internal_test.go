package batchjob

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// refusing is a client. The key of an execution says how the client answers requests for that
// execution.
type refusing struct {
	api.Client
	acts     atomic.Int64
	most, in atomic.Int64
	deleted  []model.RunID
}

func (r *refusing) answer(key string) error {
	r.acts.Add(1)
	r.most.Store(max(r.most.Load(), r.in.Add(1)))
	defer r.in.Add(-1)
	for _, k := range []fault.Kind{fault.NotFound, fault.Conflict, fault.Unavailable, fault.Timeout, fault.Exhausted, fault.Invalid, fault.Corrupt, fault.Blocked} {
		if strings.HasPrefix(key, k.String()) {
			return fault.New(k, "%s: %s", key, strings.Repeat("x", 1000))
		}
	}
	return nil
}

func (r *refusing) Cancel(_ context.Context, c api.CancelRequest) error {
	return r.answer(c.Target.Address.Key)
}

func (r *refusing) Retry(_ context.Context, p api.PastRequest) (api.PastReply, error) {
	return api.PastReply{}, r.answer(p.Source.Address.Key)
}

func (r *refusing) Reset(_ context.Context, p api.PastRequest) (api.PastReply, error) {
	return api.PastReply{}, r.answer(p.Source.Address.Key)
}

// Describe returns the status that the key ends with.
func (r *refusing) Describe(_ context.Context, t api.Target) (d api.Description, err error) {
	key := t.Address.Key
	if strings.HasSuffix(key, "deleted") {
		return d, fault.New(fault.NotFound, "%s", key)
	}
	d.Current, d.Outcome.Status = !strings.HasSuffix(key, "replaced"), model.Running
	for _, status := range []model.Status{model.Completed, model.Failed} {
		if strings.HasSuffix(key, status.String()) {
			d.Outcome.Status = status
		}
	}
	return d, nil
}

func (r *refusing) Delete(_ context.Context, d api.DeleteRequest) (api.DeleteReply, error) {
	key := d.Target.Address.Key
	reply := api.DeleteReply{Runs: []model.RunID{{2}, {1}}}
	if strings.HasSuffix(key, "replaced") {
		reply.Runs = append(reply.Runs, model.RunID{3})
	}
	if err := r.answer(key); err != nil || d.DryRun {
		return reply, err
	}
	r.deleted = append(r.deleted, d.Target.Run)
	return reply, nil
}

func items(keys ...string) (all []batch.Item) {
	for _, key := range keys {
		all = append(all, batch.Item{Workflow: "w", Key: key, Run: model.RunID{1}.String()})
	}
	return all
}

// The answer of an execution decides how the batch counts it, and whether the batch tries the page
// again.
func TestAnswersOfExecutions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verb, key string
		last      bool
		want      batch.Progress
		again     bool
	}{
		{api.BatchCancel, "fine", false, batch.Progress{Done: 1}, false},
		{api.BatchCancel, fault.NotFound.String(), false, batch.Progress{Skipped: 1}, false},
		{api.BatchCancel, "conflict completed", false, batch.Progress{Skipped: 1}, false},
		{api.BatchCancel, "conflict replaced", false, batch.Progress{Skipped: 1}, false},
		{api.BatchCancel, "conflict deleted", false, batch.Progress{Skipped: 1}, false},
		{api.BatchCancel, "conflict", false, batch.Progress{Failed: 1}, false}, // a misused request id
		{api.BatchRetry, "conflict", false, batch.Progress{Skipped: 1}, false},
		{api.BatchRetry, "conflict completed", false, batch.Progress{Skipped: 1}, false},
		{api.BatchRetry, "conflict failed", false, batch.Progress{Failed: 1}, false}, // a child does not exist
		{api.BatchReset, "conflict replaced", false, batch.Progress{Skipped: 1}, false},
		{api.BatchReset, "conflict completed", false, batch.Progress{Failed: 1}, false},
		{api.BatchDelete, "conflict", false, batch.Progress{Failed: 1}, false}, // it runs again
		{api.BatchCancel, fault.Invalid.String(), false, batch.Progress{Failed: 1}, false},
		{api.BatchCancel, fault.Corrupt.String(), false, batch.Progress{Failed: 1}, false},
		{api.BatchCancel, fault.Blocked.String(), false, batch.Progress{Failed: 1}, false},
		{api.BatchCancel, fault.Unavailable.String(), false, batch.Progress{}, true},
		{api.BatchCancel, fault.Timeout.String(), false, batch.Progress{}, true},
		{api.BatchCancel, fault.Exhausted.String(), false, batch.Progress{}, true},
		{api.BatchCancel, fault.Unavailable.String(), true, batch.Progress{Failed: 1}, false},
		{api.BatchDelete, "fine", false, batch.Progress{Done: 1}, false},
		{api.BatchDelete, fault.NotFound.String(), false, batch.Progress{Done: 1}, false},
		{api.BatchDelete, "replaced", false, batch.Progress{Skipped: 1}, false},
		{"unknown", "fine", false, batch.Progress{Failed: 1}, false},
	} {
		// A page with one execution shows the effect of its answer.
		w := &work{client: &refusing{}, tenant: "acme", id: "b", spec: &batch.Spec{Verb: c.verb}}
		got, err := w.act(t.Context(), items(c.key), c.last)
		if (err != nil) != c.again || err == nil && (got.Done != c.want.Done || got.Skipped != c.want.Skipped || got.Failed != c.want.Failed) {
			t.Errorf("%s of %s: %+v, %v", c.verb, c.key, got, err)
		}

		if got.Failed > 0 && (len(got.Errors) != 1 || got.Errors[0].Key != c.key || len(got.Errors[0].Text) > maxErrorText+10) {
			t.Errorf("%s of %s: %+v", c.verb, c.key, got.Errors)
		}
	}
}

// A batch deletes the run that it has selected and the runs before it, and no run after it.
func TestDeletesUpToTheSelectedRun(t *testing.T) {
	t.Parallel()
	for key, want := range map[string][]model.RunID{"fine": {{2}, {1}}, "replaced": nil} {
		c := &refusing{}
		w := &work{client: c, tenant: "acme", id: "b", spec: &batch.Spec{Verb: api.BatchDelete}}
		if _, err := w.act(t.Context(), items(key), false); err != nil || !slices.Equal(c.deleted, want) {
			t.Errorf("%s: deletes %v, %v; want %v", key, c.deleted, err, want)
		}
	}
}

// A page keeps the last errors only, and acts on a bounded number of executions at the same time.
func TestErrorsAndWorkersAreBounded(t *testing.T) {
	t.Parallel()
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprintf("%s-%02d", fault.Invalid, i))
	}
	c := &refusing{}
	w := &work{client: c, tenant: "acme", id: "b", spec: &batch.Spec{Verb: api.BatchCancel}}
	var all batch.Progress
	for range 3 {
		got, err := w.act(t.Context(), items(keys...), false)
		if err != nil {
			t.Fatal(err)
		}
		all.Add(&got)
	}
	last := all.Errors[len(all.Errors)-1].Key
	if all.Failed != 300 || len(all.Errors) != api.MaxBatchErrors || last != keys[99] || c.acts.Load() != 300 || c.most.Load() > workers {
		t.Errorf("%d failed, %d errors, the last of %s, %d acts, %d at once", all.Failed, len(all.Errors), last, c.acts.Load(), c.most.Load())
	}
}

// long lists executions with long keys.
type long struct {
	api.Client
	limits []int
}

func (l *long) List(_ context.Context, r api.ListRequest) (page api.ListPage, err error) {
	l.limits = append(l.limits, r.Limit)
	for range r.Limit {
		page.Executions = append(page.Executions, api.Description{Start: model.Start{Address: model.Address{Type: "w", Key: strings.Repeat("k", 4000)}}})
	}
	page.Cursor = "next"
	return page, nil
}

// A page with long names has fewer executions.
func TestPageIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	c := &long{}
	w := &work{client: c, tenant: "acme", id: "b", spec: &batch.Spec{Verb: api.BatchCancel, Selects: `workflow = "w"`}}
	got, next, err := w.list(t.Context(), "")
	if err != nil || next != "next" || len(got) != 25 || len(c.limits) != 3 {
		t.Errorf("%d items, cursor %s, %v; asked for %v", len(got), next, err, c.limits)
	}
}

// past is a client with the histories of executions. It returns one event per page, and counts
// signals.
type past struct {
	api.Client
	events  map[string][]model.Event // by key
	signals atomic.Int64
}

func (p *past) History(_ context.Context, r api.HistoryRequest) (page api.HistoryPage, err error) {
	key := r.Target.Address.Key
	if key == "gone" {
		return page, fault.New(fault.NotFound, "%s", key)
	}
	for _, e := range p.events[key] {
		if e.Seq > r.After {
			return api.HistoryPage{Events: []model.Event{e}, More: e.Seq < int64(len(p.events[key])-1)}, nil
		}
	}
	return page, nil
}

func (p *past) Signal(context.Context, api.SignalRequest) error {
	p.signals.Add(1)
	return nil
}

// The owners may have forgotten the request ids of an old page. In that case the batch reads from
// the histories which executions have the signal, and sends it only to the others.
func TestOldPage(t *testing.T) {
	t.Parallel()
	run := model.RunID{1}.String()
	c := &past{events: map[string][]model.Event{
		"has":   {{}, {Seq: 1, RequestID: "batch/b/" + run}, {Seq: 2}},
		"lacks": {{}, {Seq: 1, RequestID: "batch/other/" + run}, {Seq: 2}},
	}}
	w := &work{client: c, tenant: "acme", id: "b", spec: &batch.Spec{Verb: api.BatchSignal, Signal: "go"}}
	for _, listed := range []time.Time{time.Now().Add(-oldPage - time.Minute), time.Now().Add(2 * time.Hour)} {
		c.signals.Store(0)
		got, err := w.on(listed).act(t.Context(), items("has", "lacks", "gone"), false)
		if err != nil || got.Done != 2 || got.Skipped != 1 || c.signals.Load() != 1 {
			t.Errorf("an old page: %+v, %v, %d signals", got, err, c.signals.Load())
		}
	}

	c.signals.Store(0)
	got, err := w.on(time.Now().Add(-oldPage+time.Minute)).act(t.Context(), items("has", "lacks", "gone"), false)
	if err != nil || got.Done != 3 || c.signals.Load() != 3 {
		t.Errorf("a page whose ids are remembered: %+v, %v, %d signals", got, err, c.signals.Load())
	}
	if oldPage >= engine.LeastRetainRequest {
		t.Error("a page gets old after its ids are forgotten")
	}
}

// A batch does not record a page that was interrupted.
func TestInterruptedPageIsTriedAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &refusing{}
	w := &work{client: c, tenant: "acme", id: "b", spec: &batch.Spec{Verb: api.BatchCancel}}
	if got, err := w.act(ctx, items("a", "b"), true); err == nil || c.acts.Load() != 0 {
		t.Errorf("%+v, %d acts", got, c.acts.Load())
	}
}
