package perdure

// Machine is an event-driven workflow: it has one method per kind of event, and each returns what
// to do next. Embed [Events] and override the methods that you need.
//
// The engine calls the methods one at a time, in the order of the history, and again in that order
// on replay. So they must depend only on the input, the events and the fields of the machine. A
// panic fails the execution.
type Machine interface {
	// OnStart is called first.
	OnStart() Actions
	// OnActivityCompleted is called when an activity that was scheduled has its output.
	OnActivityCompleted(ActivityCompleted) Actions
	// OnActivityFailed is called when an activity that was scheduled has failed and is not tried
	// again.
	OnActivityFailed(ActivityFailed) Actions
	// OnTimerFired is called when the time of a timer has come.
	OnTimerFired(TimerFired) Actions
	// OnSignal is called for every signal, of whatever name.
	OnSignal(SignalReceived) Actions
	// OnChildClosed is called when a child that was started has ended, in whatever way.
	OnChildClosed(ChildClosed) Actions
	// OnCancel is called at most once, when the execution is asked to end. Nothing that is pending
	// is withdrawn by that: the machine may undo what it did, then end with Fail(ErrCanceled), or
	// go on.
	OnCancel(reason string) Actions
}

// NewMachine defines an event-driven workflow. The engine calls newM once per execution, and again
// on every replay; it must return a new value each time. Callers start, signal and await a machine
// like any other workflow.
func NewMachine[I, O any, M Machine](name string, newM func(I) M, opts ...WorkflowOption) *Workflow[I, O] {
	w := &Workflow[I, O]{name: name, fn: machineCode[I, O](name, newM), bound: true, at: callerPosition()}
	w.apply(opts)
	return w
}

// BindMachine joins a declared workflow with a machine, for one that needs dependencies or is
// elsewhere.
func BindMachine[I, O any, M Machine](w *Workflow[I, O], newM func(I) M) Binding {
	return Binding{w.definition(machineCode[I, O](w.name, newM), true, callerPosition())}
}

// Events are the defaults of a Machine: it fails when an activity fails and when it is cancelled,
// and ignores all other events. Embed it and write OnStart.
type Events struct{}

// OnActivityCompleted does nothing.
func (Events) OnActivityCompleted(ActivityCompleted) Actions { return nil }

// OnActivityFailed fails the execution with the error of the activity.
func (Events) OnActivityFailed(e ActivityFailed) Actions { return Actions{Fail(e.Err)} }

// OnTimerFired does nothing.
func (Events) OnTimerFired(TimerFired) Actions { return nil }

// OnSignal does nothing, but the signal still counts as taken.
func (Events) OnSignal(SignalReceived) Actions { return nil }

// OnChildClosed does nothing.
func (Events) OnChildClosed(ChildClosed) Actions { return nil }

// OnCancel ends the execution as cancelled.
func (Events) OnCancel(string) Actions { return Actions{Fail(ErrCanceled)} }
