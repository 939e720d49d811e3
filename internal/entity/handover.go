package entity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// longTogether is how long a worker runs calls for one commit. When the calls of a hand-over have
// taken this long, the worker starts no further call and reports. So quick calls share a commit.
// After a slow call the engine stores the results so far: their callers do not wait for further
// calls, and a crash during a further call does not lose them.
const longTogether = 20 * time.Millisecond

// handover is a set of Operations while the worker runs their calls.
type handover struct {
	o    *model.Operations
	code Type
	name string          // the name of the entity or service, for errors
	ctx  context.Context //nolint:containedctx // it is the unit of work
	stop func() bool     // reports that the worker must start no further call
	time limits

	streams *streams
	// freed says that the hand-over has given up its slot although its code still runs. gone says
	// that the code has returned after the worker abandoned the call. See Worker.leave.
	freed, gone bool

	results []model.OperationResult
	sent    int           // messages of the calls so far
	was     model.Payload // the encoded state at the start of the hand-over
	// plain is the encoded state after the last successful call. It means nothing if exists is
	// false.
	plain  model.Payload
	exists bool
	state  any // plain, decoded for the next call; nil if it must be decoded first
}

// run executes the calls.
func (h *handover) run() {
	if h.stop() {
		return
	}

	if f := h.open(); f != nil {
		// If the worker is closing, report no results. The closing may have caused the failure, and
		// another worker may be able to read the state.
		if h.ctx.Err() == nil {
			h.results = allUnmade(h.o, f)
		}
		return
	}

	began := time.Now()
	for i := range h.o.Calls {
		// Start no further call when the calls so far have sent MaxMessages messages or have taken
		// longTogether, so that the commit stays small. The engine hands the other calls over
		// again.
		if i > 0 && (h.stop() || h.sent >= MaxMessages || h.time.hasExceeded() || time.Since(began) >= longTogether) {
			return
		}
		result, ok := h.call(h.o.Calls[i])
		if !ok {
			return
		}
		h.results = append(h.results, result)
	}
}

// answerInterrupted answers the call whose code has ended its goroutine. The worker has not run the
// calls after it.
func (h *handover) answerInterrupted() {
	if c, ok := h.time.end(); ok && c != nil {
		c.end()
		h.results = append(h.results, model.OperationResult{Failure: replay.ExitFailure(c.Name + " of " + h.name)})
	}
}

// allUnmade answers every call with the same failure. The failure has nothing to do with the calls
// themselves.
func allUnmade(o *model.Operations, f *model.Failure) []model.OperationResult {
	return slices.Repeat([]model.OperationResult{{Failure: f, Unmade: true}}, len(o.Calls))
}

// catchPanic turns a panic in user code into a failure. User code is handlers, encoders of values,
// and payload settings.
func catchPanic(f **model.Failure) {
	if v := recover(); v != nil {
		*f = replay.PanicFailure(v)
	}
}

// open reads the state that the engine handed over.
func (h *handover) open() (f *model.Failure) {
	defer catchPanic(&f)
	if h.code.State == nil || !h.o.Exists {
		return nil
	}
	plain, err := h.code.State.Open(h.ctx, h.o.State)
	if err != nil {
		return h.corruptFailure(err)
	}
	h.was, h.plain = plain, plain
	return h.load()
}

// load decodes the state for the next call, unless it is decoded already.
func (h *handover) load() *model.Failure {
	switch {
	case h.code.State == nil || h.state != nil:
	case !h.exists:
		h.state = h.code.State.New()
	default:
		state, err := h.code.State.Decode(h.plain)
		if err != nil {
			return h.corruptFailure(err)
		}
		h.state = state
	}
	return nil
}

// corruptFailure returns the failure for a state that cannot be read.
func (h *handover) corruptFailure(err error) *model.Failure {
	return replay.FailureOf(fault.New(fault.Corrupt, "the state of %s/%s cannot be read by this build, so it is not changed: %w", h.name, h.o.Entity.Key, err))
}

// call runs one call. It returns false if the worker has abandoned the call. In that case the
// goroutine that reports the call owns the hand-over.
func (h *handover) call(oc model.OperationCall) (model.OperationResult, bool) {
	handler, known := h.code.Calls[oc.Name]
	if !known {
		f := replay.FailureOf(fault.New(fault.NotFound, "%s has no %q in this build: it has %s", h.name, oc.Name, listNames(h.code.Calls)))
		return model.OperationResult{Failure: f, Unmade: true}, true
	}

	c := &Call{OperationCall: oc, Entity: h.o.Entity, Exists: h.exists, streams: h.streams}
	c.ctx = h.time.begin(h.ctx, c, handler.Limit)
	out, left, made, f := h.attempt(c, handler)
	if _, ok := h.time.end(); !ok {
		return model.OperationResult{}, false
	}
	messages, deleted := c.end()

	if f != nil {
		h.state = nil // drop the changes that the call has made to the state
		return model.OperationResult{Failure: f, Unmade: !made}, true
	}

	switch {
	case handler.View:
		h.state = nil // drop the copy of the view
	case deleted:
		h.state, h.exists = nil, false
	default:
		h.plain, h.exists = left, true
	}

	h.sent += len(messages)
	return model.OperationResult{Output: out, Messages: messages}, true
}

// attempt runs the code of a call, and encodes the state after it. made says whether this build
// could run the call.
func (h *handover) attempt(c *Call, handler Handler) (out, left model.Payload, made bool, f *model.Failure) {
	defer catchPanic(&f)
	if f = h.load(); f != nil {
		return out, left, false, f
	}
	made = true
	out, err := handler.Run(c, h.state)
	if err == nil && h.code.State != nil && !handler.View {
		left, err = h.code.State.Encode(h.state)
	}
	if err != nil && h.time.cause() != nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrInterrupted) {
			return out, left, true, h.lateFailure(c, handler.Limit)
		}
	}

	// Read the error here, where a panic is caught, because the methods of the error are user code.
	if err != nil {
		_, not := errors.AsType[unmade](err)
		made = !not
		f = replay.FailureOf(err)
	}

	return out, left, made, f
}

// lateFailure returns the failure for a call that has exceeded its limit, or that an operator has
// interrupted.
func (h *handover) lateFailure(c *Call, limit time.Duration) *model.Failure {
	left := "and has changed nothing"
	if h.code.State == nil {
		// The worker does not know what an RPC has done.
		left = "and may have done its work or a part of it; check before you call it again"
	}
	if h.time.cause() == ErrInterrupted { //nolint:errorlint // it is not wrapped
		return &model.Failure{
			Kind: model.FailureInterrupted, Permanent: true,
			Message: fmt.Sprintf("%s of %s/%s was interrupted by an operator %s", c.Name, h.name, h.o.Entity.Key, left),
		}
	}
	return replay.FailureOf(fault.New(fault.Timeout, "%s of %s/%s has exceeded its time limit of %s (OperationTimeout) %s", c.Name, h.name, h.o.Entity.Key, limit, left))
}

// leave ends the hand-over while the code of a call still runs. The earlier calls keep their
// results. The code has its own copy of the state, which is dropped.
func (h *handover) leave(c *Call, limit time.Duration) model.Operated {
	c.end()
	h.results = append(h.results, model.OperationResult{Failure: h.lateFailure(c, limit)})
	return h.report()
}

// report returns the results of the calls, and the state if it has changed.
func (h *handover) report() model.Operated {
	r := model.Operated{Entity: h.o.Entity, Generation: h.o.Generation, Results: h.results}
	if h.code.State == nil || h.exists == h.o.Exists && (!h.exists || same(h.plain, h.was)) {
		return r
	}
	state, f := h.seal()

	switch {
	case f == nil:
		r.Changed, r.Exists, r.State = true, h.exists, state
	case h.ctx.Err() != nil: // the worker shuts down, and the engine hands the calls out again
		r.Results = nil
	default: // the state cannot be stored, so all calls that succeeded fail
		for i := range r.Results {
			if r.Results[i].Failure == nil {
				r.Results[i] = model.OperationResult{Failure: f}
			}
		}
	}

	return r
}

// seal returns the new state in its stored form.
func (h *handover) seal() (p model.Payload, f *model.Failure) {
	defer catchPanic(&f)
	if !h.exists {
		return p, nil
	}
	p, err := h.code.State.Seal(h.ctx, h.plain)
	if err != nil {
		f = replay.FailureOf(err)
	}
	return p, f
}

// same reports whether two encoded states are equal.
func same(a, b model.Payload) bool { return a.Encoding == b.Encoding && bytes.Equal(a.Data, b.Data) }

// listNames lists names in an error.
func listNames[V any](m map[string]V) string {
	if len(m) == 0 {
		return "nothing"
	}
	names := slices.Sorted(maps.Keys(m))
	for i, name := range names { // without the prefixes, as users write the names
		names[i] = strings.TrimPrefix(strings.TrimPrefix(name, model.EntityPrefix), model.ServicePrefix)
	}
	return strings.Join(names, ", ")
}
