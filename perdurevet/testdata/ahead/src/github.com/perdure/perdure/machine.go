package perdure

import "time"

// Machine is an event-driven workflow: each method returns what to do next. Embed Events and
// override what you need.
type Machine interface {
	OnStart() Actions
	OnActivityCompleted(ActivityCompleted) Actions
	OnActivityFailed(ActivityFailed) Actions
	OnTimerFired(TimerFired) Actions
	OnSignal(SignalReceived) Actions
	OnChildClosed(ChildClosed) Actions
	OnCancel(reason string) Actions
}

// NewMachine defines an event-driven workflow; newM is called once per execution and again on
// replay.
func NewMachine[I, O any, M Machine](name string, newM func(I) M, opts ...WorkflowOption) *Workflow[I, O] {
	return &Workflow[I, O]{name: name}
}

// BindMachine joins a declared workflow with a machine.
func BindMachine[I, O any, M Machine](w *Workflow[I, O], newM func(I) M) Binding { return Binding{} }

// Action is one thing an event-driven workflow asks for.
type Action struct{ kind string }

// Actions is what a method of a Machine returns; nil means nothing.
type Actions []Action

// Complete ends an event-driven workflow.
func (w *Workflow[I, O]) Complete(out O) Action { return Action{} }

// Child starts a child under id.
func (w *Workflow[I, O]) Child(id string, in I, opts ...StartOption) Action { return Action{} }

// Fail ends an event-driven workflow with an error.
func Fail(err error) Action { return Action{} }

// StartTimer fires id after d.
func StartTimer(id string, d time.Duration) Action { return Action{} }

// CancelAction withdraws the activity, timer or child id.
func CancelAction(id string) Action { return Action{} }

// Value decodes a signal event.
func (s *Signal[T]) Value(e SignalReceived) (T, bool) { var v T; return v, false }

// Events of a Machine.
type (
	ActivityCompleted struct{ ID, Activity string }
	ActivityFailed    struct {
		ID, Activity string
		Err          error
	}
	TimerFired     struct{ ID string }
	SignalReceived struct{ Signal string }
	ChildClosed    struct {
		ID  string
		Err error
	}
)

// Events does nothing on every event but start; embed it.
type Events struct{}

func (Events) OnActivityCompleted(ActivityCompleted) Actions { return nil }
func (Events) OnActivityFailed(e ActivityFailed) Actions     { return Actions{Fail(e.Err)} }
func (Events) OnTimerFired(TimerFired) Actions               { return nil }
func (Events) OnSignal(SignalReceived) Actions               { return nil }
func (Events) OnChildClosed(ChildClosed) Actions             { return nil }
func (Events) OnCancel(reason string) Actions                { return Actions{Fail(ErrCanceled)} }
