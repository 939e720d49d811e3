package perdure

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// WorkflowCtx is what workflow code may do. It is deliberately not a context.Context.
type WorkflowCtx struct{ x *int }

func (WorkflowCtx) sender() {}
func (WorkflowCtx) caller() {}

// Self is the address of this execution.
func (ctx WorkflowCtx) Self() Ref { return Ref{} }

// Sleep parks until d has passed or the scope ends.
func (ctx WorkflowCtx) Sleep(d time.Duration) error { return nil }

// Timer is a durable timer as future.
func (ctx WorkflowCtx) Timer(d time.Duration) *Future[time.Time] { return nil }

// Now is the time of the history position, equal on replay.
func (ctx WorkflowCtx) Now() time.Time { return time.Time{} }

// Rand is seeded by the execution, equal on replay.
func (ctx WorkflowCtx) Rand() *rand.Rand { return nil }

// Log is silent on replay.
func (ctx WorkflowCtx) Log() *slog.Logger { return nil }

// WithTimeout limits every wait under the returned scope; they end with ErrTimeout.
func (ctx WorkflowCtx) WithTimeout(d time.Duration) WorkflowCtx { return ctx }

// Detached survives cancellation of the execution, for clean-up.
func (ctx WorkflowCtx) Detached() WorkflowCtx { return ctx }

// Err is ErrCanceled or ErrTimeout once the scope has ended.
func (ctx WorkflowCtx) Err() error { return nil }

// OnFailure adds a compensation; compensations run in reverse when the workflow fails or is
// cancelled.
func (ctx WorkflowCtx) OnFailure(undo func(WorkflowCtx) error) {}

// Version is the chosen version of a change in this execution.
func (ctx WorkflowCtx) Version(change string, min, max int) int { return max }

// Lock holds the set while fn runs; released in the commit that ends the section.
func (ctx WorkflowCtx) Lock(set LockSet, fn func(WorkflowCtx) error) error { return nil }

// Do runs fn as a step.
func Do[T any](ctx WorkflowCtx, name string, fn func(context.Context) (T, error), opts ...CallOption) (T, error) {
	return fn(context.Background())
}

// Go runs fn as a coroutine of this execution.
func Go[T any](ctx WorkflowCtx, fn func(WorkflowCtx) (T, error)) *Future[T] { return nil }

// Future is a result to come, within one execution.
type Future[T any] struct{ v T }

// Get waits for the value.
func (f *Future[T]) Get(ctx WorkflowCtx) (T, error) { return f.v, nil }

// Cancel withdraws the work behind the future; Get then returns ErrCanceled.
func (f *Future[T]) Cancel(ctx WorkflowCtx) {}
func (f *Future[T]) ready() bool            { return false }

// Waitable is a *Future of any type.
type Waitable interface{ ready() bool }

// Select waits for the first of the futures and returns it; on scope end it returns nil and the
// error.
func Select(ctx WorkflowCtx, fs ...Waitable) (Waitable, error) { return fs[0], nil }

// Wait waits for all futures, of any types.
func Wait(ctx WorkflowCtx, fs ...Waitable) error { return nil }

// All waits for all and returns the values in order, or the first error; the rest is then
// cancelled.
func All[T any](ctx WorkflowCtx, fs ...*Future[T]) ([]T, error) { return nil, nil }

// Race returns the first to finish and cancels the rest.
func Race[T any](ctx WorkflowCtx, fs ...*Future[T]) (T, error) { return fs[0].v, nil }

// FirstN returns the first n successes and cancels the rest.
func FirstN[T any](ctx WorkflowCtx, n int, fs ...*Future[T]) ([]T, error) { return nil, nil }

// ---- messages

// Signal is the typed name of a message to an execution.
type Signal[T any] struct{ name string }

// NewSignal names a signal.
func NewSignal[T any](name string) *Signal[T] { return &Signal[T]{name} }

// Send delivers v once, in order per sender.
func (s *Signal[T]) Send(from Sender, to Target, v T, opts ...CallOption) error { return nil }

// Receive waits for the next.
func (s *Signal[T]) Receive(ctx WorkflowCtx) (T, error) { var v T; return v, nil }

// TryReceive takes one if it is there.
func (s *Signal[T]) TryReceive(ctx WorkflowCtx) (T, bool) { var v T; return v, false }

// Next is the pending receive; until its Get it is the same future, so a lost Select loses no
// signal.
func (s *Signal[T]) Next(ctx WorkflowCtx) *Future[T] { return nil }

// Promise is the typed name of a value that is resolved once.
type Promise[T any] struct{ name string }

// NewPromise names a promise.
func NewPromise[T any](name string) *Promise[T] { return &Promise[T]{name} }

// Await waits for the value.
func (p *Promise[T]) Await(ctx WorkflowCtx) (T, error) { var v T; return v, nil }

// Future is the value as future.
func (p *Promise[T]) Future(ctx WorkflowCtx) *Future[T] { return nil }

// Resolve sets the value; the first one wins.
func (p *Promise[T]) Resolve(from Sender, to Target, v T) error { return nil }

// Reject sets an error; the first one wins.
func (p *Promise[T]) Reject(from Sender, to Target, err error) error { return nil }

// Query is the typed name of a read of live workflow state.
type Query[I, O any] struct{ name string }

// NewQuery names a query.
func NewQuery[I, O any](name string) *Query[I, O] { return &Query[I, O]{name} }

// Handle answers the query; fn may not wait.
func (q *Query[I, O]) Handle(ctx WorkflowCtx, fn func(I) (O, error)) {}

// Ask asks an execution.
func (q *Query[I, O]) Ask(c Client, to Target, in I) (O, error) { var o O; return o, nil }

// Update is the typed name of a validated, durable request with an answer.
type Update[I, O any] struct{ name string }

// NewUpdate names an update.
func NewUpdate[I, O any](name string) *Update[I, O] { return &Update[I, O]{name} }

// Handle serves the update in a coroutine; validators run first and must not wait.
func (u *Update[I, O]) Handle(ctx WorkflowCtx, fn func(WorkflowCtx, I) (O, error), validate ...func(I) error) {
}

// Call sends the update and waits for its answer.
func (u *Update[I, O]) Call(c Caller, to Target, in I, opts ...CallOption) (O, error) {
	var o O
	return o, nil
}

// Key identifies an execution of a workflow.
type Key struct{ id string }

// RawKey is the text itself.
func RawKey(s string) Key { return Key{s} }

// HashKey is the SHA-256 of the canonical encoding of v.
func HashKey[K any](v K) Key { return Key{} }

// ---- options

type (
	// WorkflowOption configures a workflow definition.
	WorkflowOption interface{ applyWorkflow() }
	// ActivityOption configures an activity definition.
	ActivityOption interface{ applyActivity() }
	// StartOption configures one start or submission.
	StartOption interface{ applyStart() }
	// CallOption configures one step, call or send.
	CallOption interface{ applyCall() }
	// EntityOption configures an entity or a service.
	EntityOption interface{ applyEntity() }
	// RPCOption configures one RPC of a service.
	RPCOption interface{ applyRPC() }
	// ScheduleOption configures a schedule.
	ScheduleOption interface{ applySchedule() }
)

func (Key) applyStart() {}

// RetryPolicy says when a failed attempt is repeated. The zero value never gives up: 1 s, doubled,
// at most 1 min.
type RetryPolicy struct {
	MaxAttempts         int
	Initial, Max        time.Duration
	Coefficient, Jitter float64
	If                  func(error) bool
}

func (RetryPolicy) applyActivity() {}
func (RetryPolicy) applyCall()     {}

// Exponential is 1 s doubled up to 60 s, at most n attempts.
func Exponential(n int) RetryPolicy { return RetryPolicy{MaxAttempts: n} }

// Constant is every d, at most n attempts.
func Constant(n int, d time.Duration) RetryPolicy { return RetryPolicy{MaxAttempts: n} }

type queueOption struct{}

func (queueOption) applyActivity() {}
func (queueOption) applyStart()    {}
func (queueOption) applyCall()     {}

// TaskOption says how tasks of an activity are carried out.
type TaskOption interface {
	ActivityOption
	CallOption
	StartOption
}

// OnQueue sends the work to a queue; an activity thereby becomes a task.
func OnQueue(name string) TaskOption { return queueOption{} }

type timeoutOption struct{}

func (timeoutOption) applyActivity() {}
func (timeoutOption) applyCall()     {}
func (timeoutOption) applyStart()    {}

// AttemptTimeout limits one attempt.
func AttemptTimeout(d time.Duration) TaskOption { return timeoutOption{} }

// HeartbeatTimeout fails an attempt that is silent for d.
func HeartbeatTimeout(d time.Duration) TaskOption { return timeoutOption{} }

type stepKey struct{}

func (stepKey) applyCall() {}

// StepKey names a step explicitly; needed for Do in a loop.
func StepKey(k string) CallOption { return stepKey{} }

type usesOption struct{}

func (usesOption) applyWorkflow() {}

// Uses makes Open fail, naming it, when an activity the workflow needs has no code here and no
// queue.
func Uses(defs ...Definition) WorkflowOption { return usesOption{} }

type entOpt struct{}

func (entOpt) applyEntity() {}

// Concurrency is how many handlers of one service address overlap.
func Concurrency(n int) EntityOption { return entOpt{} }

// MaxIdle is when an idle address leaves memory.
func MaxIdle(d time.Duration) EntityOption { return entOpt{} }

type rpcOpt struct{}

func (rpcOpt) applyRPC() {}

// Persisted stores requests before dispatch: at least once, deduplicated.
func Persisted() RPCOption { return rpcOpt{} }

// ParentClose says what happens to a child when its parent closes.
type ParentClose int

func (ParentClose) applyStart() {}

// Policies of ParentClose.
const (
	CancelChild ParentClose = iota
	AbandonChild
)

// Reuse says what a start does when the key was used by a closed execution.
type Reuse int

func (Reuse) applyStart() {}

// Policies of Reuse.
const (
	ReturnExisting Reuse = iota
	ReuseIfFailed
	ReuseAlways
)

// Overlap says what a schedule does when the last run is still open.
type Overlap int

func (Overlap) applySchedule() {}

// Policies of Overlap.
const (
	OverlapSkip Overlap = iota
	OverlapQueue
	OverlapAllow
)
