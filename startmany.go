package perdure

import (
	"fmt"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Started is the result of one of many starts.
type Started[O any] struct {
	// Execution is zero when Err is set.
	Execution Execution[O]
	// Existing is true if the key already had an execution.
	Existing bool
	Err      error
}

// StartMany starts an execution for every input, in one call and few commits: thousands of starts
// cost little more than one start. The results have the order of the inputs, and each result has
// its own error.
//
// The starts are independent: a refused start does not stop the other starts, and the starts do not
// share a transaction. If ctx ends, the store cannot be reached or a connection breaks, an
// execution may have started although its start has an error. In that case, repeat the call: a
// start attaches to an execution that already has the key of the start.
//
// The key of each execution is what KeyedBy derives from its input, or the hash of its input. With
// RequestID("r"), the starts have the request ids r, r-1, r-2 and so on, in the order of the
// inputs. All other options apply to every start. A call accepts at most 100,000 inputs, with at
// most 64 MiB in total. A larger call returns ErrExhausted and starts nothing.
func (w *Workflow[I, O]) StartMany(c Client, ins []I, opts ...StartOption) ([]Started[O], error) {
	if err := w.manyAtOnce(opts); err != nil {
		return nil, err
	}
	var (
		results  = make([]Started[O], len(ins))
		requests = make([]api.StartRequest, 0, len(ins))
		plain    = make([]model.Payload, 0, len(ins))
		places   = make([]int, 0, len(ins))
	)

	for i, in := range ins {
		ref, p, o, err := w.resolve(c.host(), in, opts)
		if err == nil && o.requestID != "" && i > 0 {
			o.requestID = fmt.Sprintf("%s-%d", o.requestID, i)
		}
		var r api.StartRequest
		if err == nil {
			r, err = c.startRequest(ref, p, o)
		}
		if err != nil {
			results[i].Err = public(err)
			continue
		}
		results[i].Execution = Execution[O]{Ref: ref}
		requests, plain, places = append(requests, r), append(plain, p), append(places, i)
	}

	if len(requests) == 0 {
		return results, nil
	}
	replies, err := c.host().backend.StartMany(c.ctx, requests)
	if err != nil {
		return nil, public(err)
	}

	for n := range replies {
		i := places[n]
		x := &results[i].Execution
		*x = executionOf[O](x.Ref.startedBy(requests[n].RequestID, &replies[n].StartReply))
		switch err := replies[n].Err; {
		case err == nil:
			results[i].Existing = replies[n].Existing
		case c.canAttach(err, &requests[n], plain[n], normalize[I]):
			results[i].Existing = true
		default:
			results[i] = Started[O]{Err: public(err)}
		}
	}
	return results, nil
}

// manyAtOnce refuses options that cannot apply to more than one start.
func (w *Workflow[I, O]) manyAtOnce(opts []StartOption) error {
	var o startOptions
	for _, opt := range opts {
		opt.applyStart(&o)
	}
	if o.keyed {
		return fault.New(fault.Invalid, "start many executions of workflow %s: they cannot have one key: use KeyedBy", w.name)
	}
	return nil
}
