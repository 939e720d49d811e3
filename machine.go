package perdure

// Machine is an event-driven workflow: it has one method per kind of event, and each method returns
// what to do next. Embed [Events] and override the methods that you need.
//
// The engine calls the methods one at a time, in the order of the history, and in the same order on
// replay. So the methods must depend only on the input, the events and the fields of the machine. A
// panic fails the execution.
type Machine interface {
	// The engine calls OnStart first.
	OnStart() Actions
	// The engine calls OnActivityCompleted when a scheduled activity has completed.
	OnActivityCompleted(ActivityCompleted) Actions
	// The engine calls OnActivityFailed when a scheduled activity has failed and has no further
	// attempts.
	OnActivityFailed(ActivityFailed) Actions
	// The engine calls OnTimerFired when a timer fires.
	OnTimerFired(TimerFired) Actions
	// The engine calls OnSignal for every signal, whatever its name.
	OnSignal(SignalReceived) Actions
	// The engine calls OnChildClosed when a child has ended, whether it completed or not.
	OnChildClosed(ChildClosed) Actions
	// The engine calls OnCancel at most once, when a caller cancels the execution. Pending
	// activities, timers and children continue. The machine may undo what it did and end with
	// Fail(ErrCanceled), or it may continue.
	OnCancel(reason string) Actions
}

// NewMachine defines an event-driven workflow. The engine calls newM once per run, and again on
// every replay. newM must return a new value each time. Callers start, signal and await a machine
// like any other workflow.
func NewMachine[I, O any, M Machine](name string, newM func(I) M, opts ...WorkflowOption) *Workflow[I, O] {
	w := &Workflow[I, O]{name: name, fn: machineCode[I, O](name, newM), bound: true, at: callerPosition()}
	w.apply(opts)
	return w
}

// BindMachine joins a declared workflow with a machine. Use it if the machine needs dependencies or
// is in another package than the declaration.
func BindMachine[I, O any, M Machine](w *Workflow[I, O], newM func(I) M) Binding {
	return Binding{w.definition(machineCode[I, O](w.name, newM), true, callerPosition())}
}

// Events has the default methods of a Machine. A machine that embeds it fails when an activity
// fails, ends as cancelled when a caller cancels it, and ignores all other events. Embed Events and
// write OnStart.
type Events struct{}

// OnActivityCompleted does nothing.
func (Events) OnActivityCompleted(ActivityCompleted) Actions { return nil }

// OnActivityFailed fails the execution with the error of the activity.
func (Events) OnActivityFailed(e ActivityFailed) Actions { return Actions{Fail(e.Err)} }

// OnTimerFired does nothing.
func (Events) OnTimerFired(TimerFired) Actions { return nil }

// OnSignal ignores the signal. The machine has received the signal and does not get it again.
func (Events) OnSignal(SignalReceived) Actions { return nil }

// OnChildClosed does nothing.
func (Events) OnChildClosed(ChildClosed) Actions { return nil }

// OnCancel ends the execution as cancelled.
func (Events) OnCancel(string) Actions { return Actions{Fail(ErrCanceled)} }
