// Package perdure is a stub of the public API for tests of the checks. It was written before the
// root package had all these features. TestStubIsFaithful compares the two.
package perdure

import (
	"context"
	"time"
)

// Void is the input or output of something that has none.
type Void = struct{}

// Definition is anything Open and Dial accept: a workflow, activity, entity, service, schedule,
// Binding or Group.
type Definition interface{ define(*registry) error }

// Group is a reusable bundle of definitions.
type Group []Definition

// Binding joins a declared handle and the code that serves it.
type Binding struct{ name string }

type registry struct{}

func (Group) define(*registry) error   { return nil }
func (Binding) define(*registry) error { return nil }

// Sender may send: start, signal, resolve. EntityCtx, Client, WorkflowCtx and a caller's
// transaction are Senders.
type Sender interface{ sender() }

// Caller may also wait for an answer. Client and WorkflowCtx are Callers; EntityCtx and
// transactions are not.
type Caller interface {
	Sender
	caller()
}

// ---- workflows

// Workflow is the typed name of a workflow; safe for package-level variables and for concurrent
// use.
type Workflow[I, O any] struct {
	name string
	fn   func(WorkflowCtx, I) (O, error)
	key  func(I) Key
}

// NewWorkflow defines a workflow whose code is here.
func NewWorkflow[I, O any](name string, fn func(WorkflowCtx, I) (O, error), opts ...WorkflowOption) *Workflow[I, O] {
	return &Workflow[I, O]{name: name, fn: fn}
}

// DeclareWorkflow names a workflow whose code is elsewhere, or is bound later.
func DeclareWorkflow[I, O any](name string, opts ...WorkflowOption) *Workflow[I, O] {
	return &Workflow[I, O]{name: name}
}

// KeyedBy returns a copy that derives the key of an execution from its input.
func (w *Workflow[I, O]) KeyedBy(key func(I) Key) *Workflow[I, O] { c := *w; c.key = key; return &c }

// Bind joins a declared workflow with its code, for Open or Dial.
func (w *Workflow[I, O]) Bind(fn func(WorkflowCtx, I) (O, error)) Binding { return Binding{w.name} }

// Run starts (or attaches to) the execution of the key and waits for its result. From a workflow it
// is a child.
func (w *Workflow[I, O]) Run(c Caller, in I, opts ...StartOption) (O, error) { var o O; return o, nil }

// Start starts (or attaches to) the execution of the key and returns at once.
func (w *Workflow[I, O]) Start(s Sender, in I, opts ...StartOption) (Execution[O], error) {
	return Execution[O]{}, nil
}

// Execution refers to the execution of a key without touching the store.
func (w *Workflow[I, O]) Execution(key Key) Execution[O] { return Execution[O]{} }

// ContinueAsNew is returned as error to end this run and begin the next with in.
func (w *Workflow[I, O]) ContinueAsNew(in I) error { return nil }

// Job is one start of the workflow, for a Schedule.
func (w *Workflow[I, O]) Job(in I, opts ...StartOption) Job { return Job{} }

func (w *Workflow[I, O]) define(*registry) error { return nil }

// Ref is the address of an execution; a comparable, serialisable value.
type Ref struct{ Workflow, Key, Run string }

// ParseRef reads the text form of a Ref.
func ParseRef(s string) (Ref, error) { return Ref{}, nil }

func (Ref) target() {}

// Target is an execution that may be signalled, asked, updated or cancelled: Execution or Ref.
type Target interface{ target() }

// Execution is a Ref that knows its result type; a serialisable value.
type Execution[O any] struct{ Ref Ref }

func (Execution[O]) target() {}

// Result waits for the result.
func (e Execution[O]) Result(c Caller) (O, error) { var o O; return o, nil }

// Future is the result as a future of the calling workflow.
func (e Execution[O]) Future(ctx WorkflowCtx) *Future[O] { return nil }

// Poll tells how the execution stands; it does not wait.
func (e Execution[O]) Poll(c Caller) (Outcome[O], error) { return Outcome[O]{}, nil }

// Cancel asks the execution to end; clean-up runs.
func (e Execution[O]) Cancel(s Sender, reason string) error { return nil }

// Status is the state of an execution.
type Status string

// Outcome is the state of an execution and, once closed, its value or error.
type Outcome[O any] struct {
	Status Status
	Value  O
	Err    error
	Reason string
}

// ---- activities

// Activity is the typed name of an activity.
type Activity[I, O any] struct{ name string }

// NewActivity defines an activity whose code is here.
func NewActivity[I, O any](name string, fn func(context.Context, I) (O, error), opts ...ActivityOption) *Activity[I, O] {
	return &Activity[I, O]{name}
}

// DeclareActivity names an activity whose code is bound later or runs in another process.
func DeclareActivity[I, O any](name string, opts ...ActivityOption) *Activity[I, O] {
	return &Activity[I, O]{name}
}

// Bind joins a declared activity with its code.
func (a *Activity[I, O]) Bind(fn func(context.Context, I) (O, error)) Binding { return Binding{a.name} }

// StepKeyedBy returns a copy whose steps are identified by key(in) instead of by equal arguments
// and occurrence.
func (a *Activity[I, O]) StepKeyedBy(key func(I) string) *Activity[I, O] { c := *a; return &c }

// Run executes the activity as a step and waits.
func (a *Activity[I, O]) Run(ctx WorkflowCtx, in I, opts ...CallOption) (O, error) {
	var o O
	return o, nil
}

// Go begins the activity as a step.
func (a *Activity[I, O]) Go(ctx WorkflowCtx, in I, opts ...CallOption) *Future[O] { return nil }

// Submit makes a task of its own, outside any workflow.
func (a *Activity[I, O]) Submit(s Sender, in I, opts ...StartOption) (Execution[O], error) {
	return Execution[O]{}, nil
}

// Job is one submission, for a Schedule.
func (a *Activity[I, O]) Job(in I, opts ...StartOption) Job { return Job{} }

// Schedule is the action of an event-driven workflow that begins the activity under id.
func (a *Activity[I, O]) Schedule(id string, in I, opts ...CallOption) Action { return Action{} }

// Result decodes the outcome carried by an event.
func (a *Activity[I, O]) Result(e ActivityCompleted) (O, error) { var o O; return o, nil }

func (a *Activity[I, O]) define(*registry) error { return nil }

// IdempotencyKey is stable over all attempts of the current step.
func IdempotencyKey(ctx context.Context) string { return "" }

// Attempt counts from 1.
func Attempt(ctx context.Context) int { return 1 }

// Heartbeat reports progress of a queued activity and returns an error once it is cancelled.
func Heartbeat[T any](ctx context.Context, progress T) error { return nil }

// ---- schedules

// Job is what a Schedule begins.
type Job struct{ name string }

// Cadence says when a Schedule fires.
type Cadence struct{ cron string }

// Cron fires by a cron line in an IANA zone.
func Cron(line, zone string) Cadence { return Cadence{line} }

// Every fires at fixed intervals.
func Every(d time.Duration) Cadence { return Cadence{} }

// Schedule is a named, durable cadence.
type Schedule struct{ name string }

// NewSchedule defines a schedule; applied when the app opens.
func NewSchedule(name string, when Cadence, job Job, opts ...ScheduleOption) *Schedule {
	return &Schedule{name}
}

// Trigger fires now.
func (s *Schedule) Trigger(c Caller) error { return nil }

// Pause stops firing until Resume.
func (s *Schedule) Pause(c Caller, why string) error { return nil }

// Resume undoes Pause.
func (s *Schedule) Resume(c Caller) error  { return nil }
func (s *Schedule) define(*registry) error { return nil }
