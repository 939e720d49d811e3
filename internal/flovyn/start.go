package flovyn

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// startRequest starts a workflow.
type startRequest struct {
	env   envelope
	queue string
	key   *string
	ttl   *int64
	with  *api.Message
}

func (r *startRequest) check() error {
	if r.queue == "" {
		r.queue = defaultQueue
	}
	if err := checkText("the kind of the workflow", r.env.Kind, maxText); err != nil {
		return err
	}
	return checkText("the queue", r.queue, maxText-len(Prefix))
}

// attempts bounds how often a call tries again when other callers use the same key.
const attempts = 8

// start starts a workflow, or returns the one that has the key.
func (d *Door) start(ctx context.Context, tenant string, r startRequest) (a model.Address, isNew bool, err error) {
	if err := r.check(); err != nil {
		return a, false, err
	}
	a = flowAddress(tenant, r.queue, newID())
	if r.key == nil {
		_, err := d.startAt(ctx, a, &r)
		return a, true, err
	}

	mine := a.Key
	r.env.Key = *r.key
	if a, err = d.bindStart(ctx, tenant, *r.key, r.ttl, a); err != nil {
		return a, false, err
	}
	if a.Key != mine {
		// Another caller may have bound the key without having started the workflow yet. It is safe
		// if both callers start the workflow: one of them succeeds.
		if _, err := d.backend.Describe(ctx, api.Target{Address: a}); !fault.Is(err, fault.NotFound) {
			return a, false, err
		}
	}
	existing, err := d.startAt(ctx, a, &r)
	if fault.Is(err, fault.Conflict) {
		return a, false, nil // the other caller was first, with another input
	}
	return a, !existing, err
}

// bindStart binds a key to an address, and returns the address that the key is bound to. If the key
// is taken by an execution that has neither failed nor been cancelled, bindStart returns the
// address of that execution.
func (d *Door) bindStart(ctx context.Context, tenant, key string, ttl *int64, a model.Address) (model.Address, error) {
	ms, err := keyTTL(ttl)
	if err != nil {
		return a, err
	}
	r := bindRequest{Type: a.Type, ID: a.Key, TTLMs: ms}
	for range attempts {
		b, err := d.bind(ctx, tenant, key, r)
		if err != nil || b.ID == a.Key || !d.isFree(ctx, tenant, b) {
			return model.Address{Tenant: tenant, Type: b.Type, Key: b.ID}, err
		}
		r.Instead = b.ID
	}
	return a, fault.New(fault.Unavailable, "others use the same idempotency key at the same time")
}

// startAt starts a workflow at an address. It reports whether the workflow existed.
func (d *Door) startAt(ctx context.Context, a model.Address, r *startRequest) (existing bool, err error) {
	s := api.StartRequest{Address: a, Input: r.env.payload(), Labels: kindLabel(r.env.Kind)}
	if r.with != nil {
		s.With = []api.Message{*r.with}
	}
	reply, err := d.backend.Start(ctx, s)
	if err != nil {
		return false, err
	}
	d.places.put(a.Key, a)
	return reply.Existing, nil
}

// signal delivers a signal to an execution and returns its sequence number.
func (d *Door) signal(ctx context.Context, a model.Address, name string, value []byte) (int64, error) {
	if err := checkText("the name of the signal", name, maxText); err != nil {
		return 0, err
	}
	n, err := d.sendSignal(ctx, a, name, jsonPayload(value))
	if fault.Is(err, fault.Conflict) {
		return d.lateSignal(ctx, a, err)
	}
	return n, err
}

// lateSignal accepts a signal for a run that has just completed, because the client may have sent
// it before the end. The signal has no effect.
func (d *Door) lateSignal(ctx context.Context, a model.Address, refused error) (int64, error) {
	info, err := d.backend.Describe(ctx, api.Target{Address: a})
	if err != nil {
		return 0, err
	}
	if o := info.Outcome; o.Status != model.Completed || now().Sub(o.At) > d.cfg.LateSignal {
		return 0, refused
	}
	j, err := d.journal(ctx, a, false)
	if err != nil {
		return 0, err
	}
	return int64(len(j.records) + 1), nil
}

// signalWithStart signals the workflow that has a key, or starts it with the signal.
func (d *Door) signalWithStart(ctx context.Context, tenant string, r startRequest, name string, value []byte) (a model.Address, created bool, sequence int64, err error) {
	if err := r.check(); err != nil {
		return a, false, 0, err
	}
	if err := checkText("the name of the signal", name, maxText); err != nil {
		return a, false, 0, err
	}
	ms, err := keyTTL(r.ttl)
	if err != nil {
		return a, false, 0, err
	}
	r.env.Key = *r.key
	r.with = &api.Message{Name: name, Input: jsonPayload(value)}
	mine := flowAddress(tenant, r.queue, newID())
	if err := roomFor(mine, int64(len(r.env.Input)), int64(len(value)), d.cfg.MaxLog); err != nil {
		return a, false, 0, err
	}
	bind := bindRequest{Type: mine.Type, ID: mine.Key, TTLMs: ms}

	for try := range attempts {
		if try > 0 {
			// Another caller is starting or ending the workflow, which may take a while.
			select {
			case <-time.After(time.Millisecond << try):
			case <-ctx.Done():
			}
		}
		b, err := d.bind(ctx, tenant, *r.key, bind)
		if err != nil {
			return a, false, 0, err
		}
		a = model.Address{Tenant: tenant, Type: b.Type, Key: b.ID}
		if a.Key != mine.Key {
			n, err := d.sendSignal(ctx, a, name, jsonPayload(value))
			switch {
			case err == nil:
				return a, false, n, nil
			case fault.Is(err, fault.Conflict): // the workflow has ended, so the key is free
				bind.Instead = a.Key
				continue
			case !fault.Is(err, fault.NotFound):
				return a, false, 0, err
			}
		}

		// The workflow does not exist. Another caller may start it at the same moment, with another
		// input.
		existing, err := d.startAt(ctx, a, &r)
		if fault.Is(err, fault.Conflict) {
			continue
		}
		if existing { // another caller started it first, with the same input
			j, err := d.journal(ctx, a, false)
			if err != nil {
				return a, false, 0, err
			}
			return a, false, int64(len(j.records)), nil
		}
		return a, err == nil, 2, err
	}
	return a, false, 0, fault.New(fault.Unavailable, "others use workflow id %.80q at the same time", *r.key)
}

// settlePromise resolves a promise, or rejects it when there is a failure. The first outcome wins.
// already says that the promise had an outcome before.
func (d *Door) settlePromise(ctx context.Context, tenant, id string, value []byte, f *model.Failure) (promise string, already bool, err error) {
	a, err := d.promiseAddress(ctx, tenant, id)
	if err != nil {
		return "", false, err
	}
	j, err := d.journal(ctx, a, false)
	if err != nil {
		return "", false, err
	}

	p := j.promise(id)
	if p == nil {
		return "", false, fault.New(fault.NotFound, "there is no promise %.200q", id)
	}
	if p.settled || j.closed {
		return p.id, true, nil
	}

	r := api.SettleRequest{Target: api.Target{Address: a}, Name: p.id, Failure: f, RequestID: uuid.NewString()}
	if f == nil {
		r.Value = jsonPayload(value)
	}
	err = d.backend.Settle(ctx, r)
	if fault.Is(err, fault.Conflict) {
		return p.id, true, nil
	}

	return p.id, false, err
}

// promiseAddress finds the execution of a promise. Older clients send the id of the execution and
// the name.
func (d *Door) promiseAddress(ctx context.Context, tenant, id string) (model.Address, error) {
	if len(id) > 37 && id[36] == ':' {
		return d.findFlow(ctx, tenant, id[:36])
	}
	return d.findPromise(ctx, tenant, id)
}
