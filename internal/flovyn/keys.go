package flovyn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"github.com/google/uuid"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Times of idempotency keys.
const (
	defaultKeyTTL = 24 * time.Hour
	longestKeyTTL = 30 * 24 * time.Hour
	// sweepEvery is the time between two sweeps of expired keys.
	sweepEvery = time.Hour
)

// keyType is the type of the entities that are idempotency keys. Each entity remembers what its key
// is bound to.
const keyType = model.EntityPrefix + "flovyn.key"

// Operations of a key.
const (
	opBind  = "bind"
	opSweep = "sweep"
)

// binding is what a key is bound to.
type binding struct {
	// Type and ID are the type and the key of an execution or a task. For a promise, Type is the
	// word promise, and ID is the id of the promise.
	Type    string     `json:"type"`
	ID      string     `json:"id"`
	Expires model.Time `json:"expires"`
}

// bindRequest asks to bind a key. It succeeds if the key is free, has expired, or is bound to
// Instead.
type bindRequest struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	TTLMs   int64  `json:"ttlMs"`
	Instead string `json:"instead,omitempty"`
}

// keyWorker has the code of the keys of a tenant, and of the record of its organization.
type keyWorker struct {
	d      *Door
	tenant string

	mu      sync.Mutex // held while the worker joins or leaves
	session api.EntitySession
	gone    bool
	joined  chan struct{} // closed when session is known
}

// keyAddress is the address of a key.
func keyAddress(tenant, key string) model.Address {
	if len(key) > maxText {
		sum := sha256.Sum256([]byte(key))
		key = "sha256:" + hex.EncodeToString(sum[:])
	}
	return model.Address{Tenant: tenant, Type: keyType, Key: key}
}

// keysOf joins the engine as the worker of a tenant's keys, once. After an error, the next call
// tries again.
func (d *Door) keysOf(ctx context.Context, tenant string) error {
	d.mu.Lock()
	if d.keys == nil {
		d.mu.Unlock()
		return errClosed
	}
	k := d.keys[tenant]
	if k == nil {
		k = &keyWorker{d: d, tenant: tenant, joined: make(chan struct{})}
		d.keys[tenant] = k
	}
	d.mu.Unlock()
	return k.join(ctx)
}

func (k *keyWorker) join(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		return errClosed
	}
	if k.session != nil {
		return nil
	}

	s, err := k.d.backend.JoinEntities(context.WithoutCancel(ctx), k, model.EntityOffer{Name: "flovyn", Tenant: k.tenant, Types: []model.EntityType{{Type: keyType}, {Type: orgType}}})
	if err != nil {
		return err
	}
	k.session = s
	close(k.joined)
	return nil
}

func (k *keyWorker) leave(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone = true
	if k.session != nil {
		_ = k.session.Leave(ctx) // calls that it has not reported run again
	}
}

// Operate runs calls of one key, or of the record of the organization.
func (k *keyWorker) Operate(o model.Operations) {
	k.d.beside(func() {
		select {
		case <-k.joined:
			// Ignore errors of the report: calls without a report run again.
			done := operateKey
			if o.Entity.Type == orgType {
				done = operateOrg
			}
			_ = k.session.FinishCalls(k.d.open, done(&o))
		case <-k.d.open.Done():
		}
	})
}

// operateKey applies calls to a key.
func operateKey(o *model.Operations) model.Operated {
	out := model.Operated{Entity: o.Entity, Generation: o.Generation, State: o.State, Exists: o.Exists}
	for i := range o.Calls {
		var now binding
		if out.Exists && json.Unmarshal(out.State.Data, &now) != nil {
			out.Results = append(out.Results, model.OperationResult{Failure: &model.Failure{Message: "the state of the key cannot be read"}, Unmade: true})
			continue
		}
		expired := out.Exists && now.Expires <= o.Now

		switch o.Calls[i].Name {
		case opSweep:
			if expired {
				out.State, out.Exists, out.Changed = model.Payload{}, false, true
			}
			out.Results = append(out.Results, model.OperationResult{Output: jsonPayload(nil)})
		case opBind:
			var r bindRequest
			if json.Unmarshal(o.Calls[i].Input.Data, &r) != nil {
				out.Results = append(out.Results, model.OperationResult{Failure: &model.Failure{Kind: model.FailureInvalid, Message: "the request cannot be read"}})
				continue
			}
			if !out.Exists || expired || r.Instead != "" && now.ID == r.Instead {
				now = binding{Type: r.Type, ID: r.ID, Expires: o.Now.Add(time.Duration(r.TTLMs) * time.Millisecond)}
				out.State, out.Exists, out.Changed = mustJSON(now), true, true
			}
			out.Results = append(out.Results, model.OperationResult{Output: mustJSON(now)})
		default:
			out.Results = append(out.Results, model.OperationResult{Failure: &model.Failure{Kind: model.FailureInvalid, Message: "the operation is not known"}, Unmade: true})
		}
	}
	return out
}

// mustJSON encodes a value of ours, which always works.
func mustJSON(v any) model.Payload {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return model.Payload{Data: data}
}

// bind binds a key, and returns what the key is bound to. That differs from the request if the key
// was taken.
func (d *Door) bind(ctx context.Context, tenant, key string, r bindRequest) (binding, error) {
	if err := checkText("the idempotency key", key, 4096); err != nil {
		return binding{}, err
	}
	if err := d.keysOf(ctx, tenant); err != nil {
		return binding{}, err
	}
	out, err := d.backend.Call(ctx, api.CallRequest{Address: keyAddress(tenant, key), Name: opBind, Input: mustJSON(r), RequestID: uuid.NewString()})
	if err != nil {
		return binding{}, err
	}
	var b binding
	if err := json.Unmarshal(out.Data, &b); err != nil {
		return b, fault.New(fault.Corrupt, "idempotency key: %w", err)
	}
	return b, nil
}

// keyTTL is how long a key is kept.
func keyTTL(seconds *int64) (int64, error) {
	if seconds == nil {
		return defaultKeyTTL.Milliseconds(), nil
	}
	if *seconds <= 0 {
		return 0, fault.New(fault.Invalid, "the idempotency key is kept for %d s, must be > 0", *seconds)
	}
	return min(*seconds, int64(longestKeyTTL/time.Second)) * 1000, nil
}

// bindKeys binds the keys of the tasks and promises that a submission creates.
func (q *flowQueue) bindKeys(ctx context.Context, r *run, commands []*pb.WorkflowCommand) (map[int]binding, error) {
	var bound map[int]binding
	bind := func(i int, key string, ttl *int64, req bindRequest, free func(binding) bool) error {
		ms, err := keyTTL(ttl)
		if err != nil {
			return err
		}
		req.TTLMs = ms

		b, err := q.d.bind(ctx, q.at.tenant, key, req)
		if err == nil && b.ID != req.ID && free(b) {
			req.Instead = b.ID
			b, err = q.d.bind(ctx, q.at.tenant, key, req)
		}

		if err != nil {
			return err
		}
		if bound == nil {
			bound = map[int]binding{}
		}
		bound[i] = b

		return nil
	}

	q.mu.Lock()
	promises := len(r.journal.promises)
	q.mu.Unlock()
	for i, c := range commands {
		if t := c.GetScheduleTask(); t != nil && t.GetIdempotencyKey() != "" {
			id, err := parseID("task", t.GetTaskExecutionId())
			if err == nil {
				err = bind(i, t.GetIdempotencyKey(), t.IdempotencyKeyTtlSeconds, bindRequest{Type: model.TaskPrefix + t.GetKind(), ID: id},
					func(b binding) bool { return q.d.isFree(ctx, q.at.tenant, b) })
			}
			if err != nil {
				return nil, err
			}
		}

		if p := c.GetCreatePromise(); p != nil {
			promises++
			if p.GetIdempotencyKey() == "" {
				continue
			}
			err := bind(i, p.GetIdempotencyKey(), p.IdempotencyKeyTtlSeconds, bindRequest{Type: "promise", ID: promiseID(r.address().Key, promises)},
				func(binding) bool { return false })
			if err != nil {
				return nil, err
			}
		}
	}
	return bound, nil
}

// isFree reports whether the execution or task of a key has failed or was cancelled, which frees
// the key.
func (d *Door) isFree(ctx context.Context, tenant string, b binding) bool {
	info, err := d.backend.Describe(ctx, api.Target{Address: model.Address{Tenant: tenant, Type: b.Type, Key: b.ID}})
	if err != nil {
		return false
	}
	s := info.Outcome.Status
	return s == model.Failed || s == model.Canceled || s == model.Terminated
}

// sweepKeys removes expired keys of the tenants that the door serves.
func (d *Door) sweepKeys() {
	d.mu.Lock()
	var tenants []string
	for tenant := range d.keys {
		tenants = append(tenants, tenant)
	}
	d.mu.Unlock()

	now := model.TimeOf(time.Now())
	for _, tenant := range tenants {
		for cursor := ""; d.open.Err() == nil; {
			page, err := d.backend.ListEntities(d.open, api.EntityListRequest{Tenant: tenant, Type: keyType, Cursor: cursor})
			if err != nil {
				d.log.Warn("expired idempotency keys are not swept", "tenant", tenant, "error", err)
				break
			}

			for i := range page.Entities {
				var b binding
				n := &page.Entities[i]
				if n.Exists && json.Unmarshal(n.State.Data, &b) == nil && b.Expires <= now {
					_, err = d.backend.Call(d.open, api.CallRequest{Address: n.Address, Name: opSweep, Input: jsonPayload(nil), RequestID: uuid.NewString()})
				}
				if err != nil {
					d.log.Warn("an expired idempotency key is not removed; the next sweep tries again", "tenant", tenant, "error", err)
					break
				}
			}

			if cursor = page.Cursor; cursor == "" || err != nil {
				break
			}
		}
	}
}
