package perdure

import (
	"encoding/json"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Events of a Machine. At is the time of the event in the history.
type (
	// ActivityCompleted carries the output of an activity: see Activity.Result.
	ActivityCompleted struct {
		ID, Activity string
		At           time.Time
		out          carried
	}
	// ActivityFailed carries the error of an activity that has no further attempts. On replay, the
	// error is the same value.
	ActivityFailed struct {
		ID, Activity string
		At           time.Time
		Err          error
	}
	// TimerFired says that a timer of StartTimer has fired.
	TimerFired struct {
		ID string
		At time.Time
	}
	// SignalReceived carries a signal of any name: see Signal.Value.
	SignalReceived struct {
		Signal string
		At     time.Time
		out    carried
	}
	// ChildClosed carries the output of a child (see Workflow.Result), or the error with which the
	// child ended.
	ChildClosed struct {
		ID, Workflow string
		At           time.Time
		Err          error
		out          carried
	}
)

// Result decodes the output that an event carries. For an event of another activity it returns
// ErrInvalid. A recorded output that does not fit the type blocks the execution.
func (a *Activity[I, O]) Result(e ActivityCompleted) (out O, err error) {
	if e.Activity != a.name {
		return out, fault.New(fault.Invalid, "event %s is of activity %s, not of activity %s", e.ID, e.Activity, a.name)
	}
	return valueOf[O](&e.out, "output of activity", a.name)
}

// Result decodes the output of a child that an event carries, or returns the error with which the
// child ended. For an event of another workflow it returns ErrInvalid.
func (w *Workflow[I, O]) Result(e ChildClosed) (out O, err error) {
	switch {
	case e.Workflow != w.name:
		return out, fault.New(fault.Invalid, "event %s is of workflow %s, not of workflow %s", e.ID, e.Workflow, w.name)
	case e.Err != nil:
		return out, e.Err
	}
	return valueOf[O](&e.out, "output of workflow", w.name)
}

// Value decodes the signal that an event carries. ok is false for a signal of another name. A value
// that does not fit the type fails the execution (ErrWrongType).
func (s *Signal[T]) Value(e SignalReceived) (v T, ok bool) {
	if e.Signal != s.name {
		return v, false
	}
	if e.out.recorded {
		return decodeSent[T](WorkflowCtx{e.out.x}, "signal", s.name, e.out.p), true
	}
	v, err := valueOf[T](&e.out, "signal", s.name)
	return v, err == nil
}

// Completed returns an event which says that the activity has completed. It is for tests of a
// Machine.
func (a *Activity[I, O]) Completed(id string, out O) ActivityCompleted {
	return ActivityCompleted{ID: id, Activity: a.name, out: madeValue("output of activity", a.name, out)}
}

// Closed returns an event which says that a child has completed. It is for tests of a Machine.
func (w *Workflow[I, O]) Closed(id string, out O) ChildClosed {
	return ChildClosed{ID: id, Workflow: w.name, out: madeValue("output of workflow", w.name, out)}
}

// Received returns an event which says that a signal has arrived. It is for tests of a Machine.
func (s *Signal[T]) Received(v T) SignalReceived {
	return SignalReceived{Signal: s.name, out: madeValue("signal", s.name, v)}
}

// carried is the value that an event carries.
type carried struct {
	p model.Payload
	x replay.Ctx
	// recorded is set for events of the history.
	recorded bool
	wrong    error // why a value of a test or an input cannot be encoded
}

// madeValue encodes a value that is not in a history: the value of an event that a test makes, or
// an input that is not recorded yet.
func madeValue[T any](kind, name string, v T) carried {
	data, err := json.Marshal(v)
	if err != nil {
		err = fault.New(fault.Invalid, "%s %s cannot be encoded: %w", kind, name, err)
	}
	return carried{p: model.Payload{Data: data}, wrong: err}
}

// valueOf decodes the value. A recorded value that does not fit the type blocks the execution.
func valueOf[T any](c *carried, kind, name string) (v T, err error) {
	switch {
	case c.recorded:
		return decodeRecorded[T](WorkflowCtx{c.x}, kind, name, c.p), nil
	case c.wrong != nil:
		return v, c.wrong
	case len(c.p.Data) == 0:
		return v, nil
	}
	if err := json.Unmarshal(c.p.Data, &v); err != nil {
		return v, misfit[T](kind, name, err)
	}
	return v, nil
}
