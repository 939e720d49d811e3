package perdure

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/replay"
)

// Action is a request of a Machine. An action that starts something has an id, which is in its
// events and in the history. The id must differ from the ids of all pending actions. The machine
// may use the id of a finished action again.
type Action struct {
	verb  verb
	id    string
	name  string        // of the activity or workflow
	arg   func() string // shows the input, for String
	at    uintptr       // program counter of the user code that asked
	begin func(*player) *replay.Future
	out   any   // the *O of Complete
	err   error // of Fail and ContinueWith
}

// Actions is what a method of a Machine returns. The engine carries the actions out in order. With
// nil it does nothing.
type Actions []Action

// String returns the action as one line, such as: schedule charge "c-1" {"Amount":5}. Tests of a
// Machine can compare this text.
func (a Action) String() string {
	text := string(a.verb)
	if a.name != "" {
		text += " " + a.name
	}
	if a.id != "" {
		text += " " + strconv.Quote(a.id)
	}
	if a.arg != nil {
		text += " " + a.arg()
	}
	return text
}

// Schedule starts the activity under id. When the activity ends, the engine calls
// OnActivityCompleted or OnActivityFailed. The id has the role of the option StepKey.
func (a *Activity[I, O]) Schedule(id string, in I, opts ...CallOption) Action {
	act := Action{verb: verbSchedule, id: id, name: a.name, at: callerPC()}
	// The machine may change its input value while the activity runs, so the activity gets a copy.
	was := madeValue("input of activity", a.name, in)
	act.arg = func() string { return string(was.p.Data) }

	act.begin = func(p *player) *replay.Future {
		in, err := valueOf[I](&was, "input of activity", a.name)
		if err != nil {
			return p.inbox.Failed(err)
		}
		s, err := a.step(p.ctx, in, append(slices.Clip(opts), StepKey(id)))
		if err != nil {
			return p.inbox.Failed(err)
		}
		s.Caller = act.at
		return p.inbox.Step(s)
	}

	return act
}

// Child starts a child under id. When the child ends, the engine calls OnChildClosed. Unless opts
// has a Key, the key of the child is derived from the run and the id.
func (w *Workflow[I, O]) Child(id string, in I, opts ...StartOption) Action {
	act := Action{verb: verbChild, id: id, name: w.name, at: callerPC(), arg: argument(in)}
	act.begin = func(p *player) *replay.Future {
		ref, data, o, err := w.resolve(p.ctx.host(), in, opts)
		if err != nil {
			return p.inbox.Failed(err)
		}
		c, err := p.ctx.child(ref, data, o, normalize[I])
		if err != nil {
			return p.inbox.Failed(err)
		}
		c.Step, c.Caller = id, act.at
		return p.inbox.Child(c)
	}
	return act
}

// StartTimer starts a durable timer under id. When d has passed, the engine calls OnTimerFired.
func StartTimer(id string, d time.Duration) Action {
	act := Action{verb: verbTimer, id: id, arg: d.String, at: callerPC()}
	act.begin = func(p *player) *replay.Future { return p.inbox.Timer(id, d, act.at) }
	return act
}

// CancelAction withdraws the activity, timer or child of that id. The machine gets no further event
// of that action. CancelAction does nothing if the action has finished.
func CancelAction(id string) Action { return Action{verb: verbCancel, id: id} }

// Complete ends the execution of a Machine with its output and withdraws everything that is
// pending. Complete must be the last action of its list.
func (w *Workflow[I, O]) Complete(out O) Action {
	return Action{verb: verbComplete, name: w.name, arg: argument(out), out: &out}
}

// ContinueWith ends this run of a Machine and starts the next run, with the input in, under the
// same key. The next run gets the signals that the machine has not handled. ContinueWith must be
// the last action of its list.
func (w *Workflow[I, O]) ContinueWith(in I) Action {
	return Action{verb: verbContinue, name: w.name, arg: argument(in), err: w.ContinueAsNew(in)}
}

// Fail ends the execution of a Machine with an error and withdraws everything that is pending. Fail
// must be the last action of its list. After a cancel request, Fail(ErrCanceled) ends the execution
// as cancelled.
func Fail(err error) Action {
	if err == nil {
		err = fault.New(fault.Invalid, "the machine failed without an error")
	}
	return Action{verb: verbFail, arg: func() string { return fmt.Sprintf("%q", err) }, err: err}
}

type verb string

const (
	verbSchedule verb = "schedule"
	verbChild    verb = "start child"
	verbTimer    verb = "start timer"
	verbCancel   verb = "cancel"
	verbComplete verb = "complete"
	verbContinue verb = "continue"
	verbFail     verb = "fail"
)

// argument returns a function that shows a value as text.
func argument[T any](v T) func() string {
	return func() string {
		text, err := json.Marshal(v)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
}

// callerPC returns the program counter of the code that called the caller of callerPC.
func callerPC() uintptr {
	var pc [1]uintptr
	runtime.Callers(3, pc[:])
	return pc[0]
}
