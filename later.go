package perdure

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/delayed"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/schedule"
)

// SendLater stores a call and sends it at a later time, given by StartDelay or StartAt. It returns
// when the call is durable. Until the call is sent, it is an execution of the built-in workflow
// perdure.send. To withdraw the call, cancel the returned execution. That has no effect if the call
// has already been sent. The method Result of the execution reports what happened: it returns
// ErrCanceled if the operation will never run, and nil if the call is in the mailbox or has run.
//
// A Key names the call: until a day after the call was sent, a second SendLater with the same key
// stores no second call, and LaterCall(key) refers to the call. A RequestID prevents a second call
// for the same entity and operation in the same way. Without a Key and a RequestID, every SendLater
// is a new call. In a workflow, SendLater is a step, and the engine makes the call even if the
// workflow ends before the call is sent.
//
// Of the options of starts, SendLater accepts StartDelay, StartAt, Key, RequestID and Labels. Any
// other option is an ErrInvalid.
//
// If the mailbox of the entity is full, the call waits and tries again. If the engine refuses the
// call for another reason, the execution fails with that reason.
func (o *Operation[I, O]) SendLater(s Sender, key string, in I, opts ...StartOption) (Execution[Void], error) {
	return sendLater(s, laterCall{&o.to, key, opts}, in)
}

// SendLater stores a call and sends it at a later time, like [Operation.SendLater]. The engine
// stores the call even if the RPC is not Persisted.
func (r *RPC[I, O]) SendLater(s Sender, key string, in I, opts ...StartOption) (Execution[Void], error) {
	return sendLater(s, laterCall{&r.to, key, opts}, in)
}

// LaterCall refers to the call that SendLater stored under a key. It does not read the store.
func LaterCall(key Key) Execution[Void] {
	return Execution[Void]{Ref: Ref{Workflow: delayed.Type, Key: key.id}}
}

// laterCall is a call of SendLater: what to call, with which key and options.
type laterCall struct {
	target *callTarget
	key    string
	opts   []StartOption
}

func sendLater[I any](s Sender, later laterCall, in I) (_ Execution[Void], err error) {
	defer publish(&err)
	out := s.sender()
	h := out.host()
	r, err := callRequest(h, later.target, later.key, in)
	if err != nil {
		return Execution[Void]{}, Permanent(err)
	}
	call := delayed.Call{To: r.Address.Type, Key: later.key, Name: later.target.name, Input: schedule.Payload{Payload: r.Input}}
	p, err := call.Encode()
	if err != nil {
		return Execution[Void]{}, err
	}

	o, err := later.options(out)
	if err != nil {
		return Execution[Void]{}, Permanent(err)
	}
	same := func(_ any, p model.Payload) ([]byte, error) { return p.Data, nil }
	ref, err := out.start(Ref{Workflow: delayed.Type, Key: o.key.id}, p, o, same)
	return executionOf[Void](ref), err
}

// options applies the options of a delayed call and finds its key.
func (l *laterCall) options(out outlet) (*startOptions, error) {
	o, t := &startOptions{policy: model.AbandonChild}, l.target
	for _, opt := range l.opts {
		opt.applyStart(o)
	}
	what := "later call of " + t.kind.call + " " + t.name
	switch {
	case o.err != nil:
		return nil, o.err
	case o.key.err != nil:
		return nil, o.key.err
	case l.unsuitable(o) != "":
		return nil, fault.New(fault.Invalid, "%s: it does not accept %s: only StartDelay, StartAt, Key, RequestID and Labels are allowed", what, l.unsuitable(o))
	}
	if err := o.checkTerms(what); err != nil {
		return nil, err
	}

	_, inWorkflow := out.(WorkflowCtx)
	switch {
	case o.keyed:
	case o.requestID != "":
		o.key, o.keyed = HashKey([]string{t.kind.prefix + t.of, l.key, t.name, o.requestID}), true
	case !inWorkflow: // a workflow derives the key from its run and the step
		o.key, o.keyed = RawKey(uuid.NewString()), true
	}
	if o.keyed {
		if err := checkText(what+": the key", o.key.id, maxKey); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// unsuitable returns the name of an option that means nothing for a call, or "".
func (l *laterCall) unsuitable(o *startOptions) string {
	for _, opt := range l.opts {
		switch opt.(type) {
		case Reuse:
			return "Reuse"
		case ParentClose:
			return "ParentClose"
		}
	}

	switch {
	case slices.Contains(o.timed, "ExecutionTimeout"):
		return "ExecutionTimeout"
	case len(o.task) > 0:
		return o.task[0].name
	case len(o.with) > 0:
		return "Signal.With"
	case o.retry != nil:
		return "RetryPolicy"
	}
	return ""
}

// sealLater gives the value inside a delayed call its stored form. The call itself stays plain
// JSON.
func (h *host) sealLater(ctx context.Context, pt patience, p model.Payload) (model.Payload, error) {
	call, err := delayed.Decode(p)
	if err != nil {
		return p, err
	}
	if call.Input.Payload, err = h.seal(ctx, pt, model.MessageCall.String(), call.Name, call.Input.Payload); err != nil {
		return p, err
	}
	return call.Encode()
}
