package perdure

import (
	"fmt"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// Execution is a Ref that knows the type of its result. It can be stored and sent as JSON.
type Execution[O any] struct {
	Ref Ref
	// Started is the run that a start with a RequestID has begun or found. Otherwise it is empty.
	// In ordinary code, Result and Poll follow this run through the runs that continue, retry or
	// reset it, and not a later start of the key.
	Started string `json:",omitempty"`
}

// executionOf returns the execution that a start has begun or found. If the Ref names a run, that
// is the run of the start.
func executionOf[O any](ref Ref) Execution[O] {
	x := Execution[O]{Ref: ref, Started: ref.Run}
	x.Ref.Run = ""
	return x
}

func (e Execution[O]) target() Ref { return e.Ref }

// String returns the text form of the Ref.
func (e Execution[O]) String() string { return e.Ref.String() }

// Result waits until the execution ends and returns its result or its error. If the Ref names a
// run, Result waits for that run. If not, Result waits for the last run of the execution, or for
// the last run that continues Started.
func (e Execution[O]) Result(c Caller) (out O, err error) {
	defer publish(&err)
	from := c.caller()
	p, err := from.result(e.Ref, e.Started)
	if err != nil {
		return out, err
	}
	return decode[O](from, "output of workflow", e.Ref.Workflow, p)
}

// Future returns the result as a future of the calling workflow.
func (e Execution[O]) Future(ctx WorkflowCtx) *Future[O] {
	run, err := e.Ref.run()
	to := e.Ref.address(ctx.host())
	if err == nil {
		err = checkTarget(to)
	}
	if err != nil {
		return failedFuture[O](err)
	}
	return payloadFuture[O]("output of workflow", e.Ref.Workflow, ctx.x.Outcome(to, run))
}

// Poll returns the state of the execution without waiting.
func (e Execution[O]) Poll(c Caller) (out Outcome[O], err error) {
	defer publish(&err)
	from := c.caller()
	st, err := from.poll(e.Ref, e.Started)
	if err != nil {
		return out, err
	}

	out = Outcome[O]{Status: Status(st.Status), Reason: st.Reason}
	if st.Failure != nil {
		out.Err = remote(st.Failure)
	} else if len(st.Output) > 0 {
		out.Value, err = decode[O](from, "output of workflow", e.Ref.Workflow, model.Payload{Data: st.Output, Encoding: st.Format})
	}
	return out, err
}

// Cancel asks the execution to end. Its waits return ErrCanceled, and its clean-up runs. A second
// Cancel does nothing. Cancel of a closed execution returns ErrConflict.
func (e Execution[O]) Cancel(s Sender, reason string) error { return cancel(s, e.Ref, reason) }

func cancel(s Sender, to Ref, reason string) error {
	out := s.sender()
	t, err := to.api(out.host())
	if err != nil {
		return err
	}
	return remote(out.send(&api.CancelRequest{Target: t, Reason: reason}, &noOptions))
}

// Status is the state of an execution.
type Status string

// Statuses.
const (
	Running    Status = "running"
	Completed  Status = "completed"
	Failed     Status = "failed"
	Canceled   Status = "canceled"
	Continued  Status = "continued"  // ended by ContinueAsNew; the next run has the same key
	Terminated Status = "terminated" // ended by Terminate, without clean-up
)

// Open reports whether the execution has not ended.
func (s Status) Open() bool { return s == Running }

// Outcome is the state of an execution and, once it is closed, its value or error.
type Outcome[O any] struct {
	Status Status
	Value  O
	Err    error
	Reason string // why it makes no progress, while it is open
}

// String returns a short text for people.
func (o Outcome[O]) String() string {
	switch {
	case o.Err != nil:
		return fmt.Sprintf("%s: %v", o.Status, o.Err)
	case o.Status.Open():
		return fmt.Sprintf("%s: %s", o.Status, o.Reason)
	}
	return fmt.Sprintf("%s: %v", o.Status, o.Value)
}
