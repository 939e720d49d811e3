package perdure

import (
	"context"
	"iter"
	"time"
)

// With starts the execution, if need be, and delivers the signal in the same commit
// (signal-with-start).
func (s *Signal[T]) With(v T) StartOption { return startOption{} }

type startOption struct{}

func (startOption) applyStart() {}

// Labels are searchable.
func Labels(kv map[string]string) StartOption { return startOption{} }

// PastOption says where a past ends.
type PastOption interface{ applyPast() }

// RequeueOption says how a dead task is given another chance.
type RequeueOption interface{ applyRequeue() }

func (requestID) applyPast()    {}
func (requestID) applyRequeue() {}

// RequestID deduplicates one call or send; the default is fresh per call and stable per workflow
// step.
func RequestID(id string) interface {
	CallOption
	StartOption
	PastOption
	RequeueOption
} {
	return requestID{}
}

type requestID struct {
	stepKey
	startOption
}

// Defer runs fn when the execution really ends, in reverse order, never on unload; its steps are
// durable.
func (ctx WorkflowCtx) Defer(fn func(WorkflowCtx) error) {}

// UUID is equal on replay.
func (ctx WorkflowCtx) UUID() string { return "" }

// BindOperation joins a declared operation with its code; needed when operations refer to each
// other.
func BindOperation[S, I, O any](e *Entity[S], op *Operation[I, O], fn func(EntityCtx, *S, I) (O, error)) Binding {
	return Binding{op.name}
}

// Bind joins a declared RPC with its code.
func (r *RPC[I, O]) Bind(fn func(EntityCtx, I) (O, error)) Binding { return Binding{r.name} }

// State is the typed name of workflow-local durable state, readable from outside without a live
// worker.
type State[T any] struct{ name string }

// NewState names workflow-local state.
func NewState[T any](name string) *State[T] { return &State[T]{name} }

// Set writes it with the next commit of the execution.
func (s *State[T]) Set(ctx WorkflowCtx, v T) error { return nil }

// Get reads it inside the workflow.
func (s *State[T]) Get(ctx WorkflowCtx) (v T, ok bool) { return v, false }

// Read reads the committed value from anywhere.
func (s *State[T]) Read(c Caller, from Target) (v T, ok bool, err error) { return v, false, nil }

// Info describes an execution, with the reason why it waits.
type Info struct {
	Ref     Ref
	Status  Status
	Reason  string
	Started time.Time
	Labels  map[string]string
}

// Executions operates executions.
type Executions struct{}

// Executions operates the executions of the store.
func (a *App) Executions() Executions { return Executions{} }

// List lists by query.
func (x Executions) List(ctx context.Context, query string) iter.Seq2[Info, error] { return nil }
