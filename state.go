package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
)

// State is the typed name of a value that an execution shows to the outside. Reading the value
// needs no worker. The value stays when the execution continues as new and when the execution ends.
type State[T any] struct{ name string }

// NewState names a state.
func NewState[T any](name string) *State[T] { return &State[T]{name} }

// Set writes the value with the next commit of the execution.
func (s *State[T]) Set(ctx WorkflowCtx, v T) error {
	if err := checkName("state", s.name); err != nil {
		return Permanent(err)
	}
	h := ctx.host()
	p, err := encodeFor(h, "value of state", s.name, v)
	if err != nil {
		return err
	}
	return remote(ctx.x.SetState(s.name, p, h.sealer("value of state", s.name)))
}

// Clear removes the value with the next commit of the execution.
func (s *State[T]) Clear(ctx WorkflowCtx) error {
	if err := checkName("state", s.name); err != nil {
		return Permanent(err)
	}
	return remote(ctx.x.SetState(s.name, model.Payload{}, nil))
}

// Get returns the value inside the workflow: the value that this run set last, or else the value of
// the previous run.
func (s *State[T]) Get(ctx WorkflowCtx) (v T, ok bool) {
	p, ok := ctx.x.State(s.name)
	if !ok {
		return v, false
	}
	return decodeRecorded[T](ctx, "value of state", s.name, p), true
}

// Read returns the committed value. ok is false if there is none. From a workflow, Read is a step.
func (s *State[T]) Read(c Caller, from Target) (v T, ok bool, err error) {
	defer publish(&err)
	who := c.caller()
	p, ok, err := who.read(from.target(), s.name)
	if err != nil || !ok {
		return v, false, err
	}
	v, err = decode[T](who, "value of state", s.name, p)
	return v, err == nil, err
}

// Save sets the value for the task that ctx belongs to. A task is an activity on a queue. When Save
// returns nil, the value is durable: the next attempt loads it, on any worker, and Read returns it.
// The engine removes the value together with the execution.
//
// Save returns ErrConflict and writes nothing if another worker has the task. It returns
// ErrExhausted if the states of the task are too many or too large. If ctx ends during the call,
// the value may or may not have been written. An activity without a queue has no task, so Save
// returns ErrInvalid there. Set the state in the workflow instead.
func (s *State[T]) Save(ctx context.Context, v T) error {
	t, h, err := s.taskFor(ctx)
	if err != nil {
		return err
	}
	p, err := encode(h, "value of state", s.name, v)
	if err == nil {
		err = h.limit("value of state", s.name, p)
	}
	if err == nil {
		err = t.Set(ctx, model.TaskItem{Kind: model.ItemSet, Name: s.name, Value: p})
	}
	return public(err)
}

// Load returns the value that Save set in this attempt or in an earlier attempt. The first Load
// reads all states of the task.
func (s *State[T]) Load(ctx context.Context) (v T, ok bool, err error) {
	t, h, err := s.taskFor(ctx)
	if err != nil {
		return v, false, err
	}
	p, ok, err := t.State(ctx, s.name)
	if err == nil && ok {
		v, err = decode[T](callReader{h, ctx}, "value of state", s.name, p)
	}
	return v, ok && err == nil, public(err)
}

// Remove deletes the value that Save set. When Remove returns, the removal is durable.
func (s *State[T]) Remove(ctx context.Context) error {
	t, _, err := s.taskFor(ctx)
	if err != nil {
		return err
	}
	return public(t.Set(ctx, model.TaskItem{Kind: model.ItemRemove, Name: s.name}))
}

// taskFor returns the task that a context belongs to.
func (s *State[T]) taskFor(ctx context.Context) (*pool.Task, *host, error) {
	if err := checkName("state", s.name); err != nil {
		return nil, nil, Permanent(err)
	}
	t := pool.From(ctx)
	if t == nil {
		return nil, nil, Permanent(fault.New(fault.Invalid,
			"state %s: only a task keeps state between its attempts: give the activity a queue with OnQueue, or set the state in the workflow", s.name))
	}
	return t, t.Owner().(*host), nil
}
