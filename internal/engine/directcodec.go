package engine

import (
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// askKind is what a node asks the owner of an address to do.
type askKind uint8

// The kinds of requests between nodes.
const (
	askSend  askKind = iota + 1 // deliver a message
	askRun                      // deliver a start, and answer when the execution has ended
	askQuery                    // deliver a message that changes nothing
	askBrief                    // deliver a call that runs at most once
	askAwait                    // answer when an execution has ended
	askItems                    // take or send items of a stream
	askFeed                     // answer when there are changes that the sender wants
)

// ask is a request to the owner of an address.
type ask struct {
	Kind askKind `cbor:"1,keyasint"`
	// Epoch is the epoch of the owner, as the sender knows it.
	Epoch int64 `cbor:"2,keyasint"`
	// Fresh says that the request id was never used before.
	Fresh bool `cbor:"3,keyasint,omitempty"`
	// Message is the stored form of the message. It is empty for askAwait.
	Message []byte `cbor:"4,keyasint,omitempty"`
	// Address and Run name the execution or run that askAwait waits for.
	Address model.Address `cbor:"5,keyasint,omitzero"`
	Run     model.RunID   `cbor:"6,keyasint,omitzero"`
	// Take or Send is the request of askItems.
	Take *model.ItemsTake `cbor:"7,keyasint,omitempty"`
	Send *model.ItemsSend `cbor:"8,keyasint,omitempty"`
	// Feed is the request of askFeed.
	Feed *feed.Demand `cbor:"9,keyasint,omitempty"`

	message *model.Message
}

// to returns the address that the request is for.
func (q *ask) to() model.Address {
	switch {
	case q.message != nil:
		return q.message.To
	case q.Take != nil:
		return q.Take.Entity
	case q.Send != nil:
		return q.Send.Entity
	}
	return q.Address
}

func (q *ask) String() string {
	switch {
	case q.message != nil:
		return "send " + q.message.Kind.String() + " to " + q.message.To.String()
	case q.Kind == askItems:
		return "stream of " + q.to().String()
	}
	return "wait for " + q.Address.String()
}

func (q *ask) encode() []byte {
	if q.message != nil && q.Message == nil {
		q.Message = model.AppendMessage(nil, q.message)
	}
	return mustEncode(q)
}

func decodeAsk(body []byte) (q ask, err error) {
	if err := linkDecoding.Unmarshal(body, &q); err != nil {
		return q, fault.New(fault.Invalid, "read a request of another node: %w", err)
	}
	if q.Kind < askSend || q.Kind > askFeed {
		return q, fault.New(fault.Invalid, "a request of kind %d, which this build does not know", q.Kind)
	}
	switch {
	case q.Kind == askAwait:
		return q, nil
	case q.Kind == askItems && (q.Take == nil) == (q.Send == nil):
		return q, fault.New(fault.Invalid, "a request for a stream must either take items or send items")
	case q.Kind == askFeed && q.Feed == nil:
		return q, fault.New(fault.Invalid, "a request for changes that does not say which")
	case q.Kind == askItems, q.Kind == askFeed:
		return q, nil
	}
	m, err := model.DecodeMessage(q.Message)
	q.message = &m
	return q, err
}

// told is the answer of an owner.
type told struct {
	// Moved says that the node does not answer the request, in most cases because it does not own
	// the shard. Taken says that the request may have been applied, so that the sender must not
	// treat its id as fresh. Begun says that the node has started the execution, but cannot wait
	// for its end. In that case Run is the run that it has started, unless the node has an older
	// build.
	Moved bool `cbor:"1,keyasint,omitempty"`
	Taken bool `cbor:"2,keyasint,omitempty"`
	Begun bool `cbor:"3,keyasint,omitempty"`
	// Answer is the stored form of an answer. Run, Status, At and Outcome say how an execution
	// ended.
	Answer  []byte       `cbor:"4,keyasint,omitempty"`
	Run     model.RunID  `cbor:"5,keyasint,omitzero"`
	Status  model.Status `cbor:"6,keyasint,omitempty"`
	At      model.Time   `cbor:"7,keyasint,omitempty"`
	Outcome []byte       `cbor:"8,keyasint,omitempty"`
	Err     *toldError   `cbor:"9,keyasint,omitempty"`
	// Changes is the answer to askFeed.
	Changes *feed.Portion `cbor:"10,keyasint,omitempty"`
}

// toldError is an error of the owner.
type toldError struct {
	Kind string `cbor:"1,keyasint,omitempty"`
	Text string `cbor:"2,keyasint,omitempty"`
	Hint string `cbor:"3,keyasint,omitempty"`
	// If callers compare with the error, Known is its index in knownErrors, plus one.
	Known int `cbor:"4,keyasint,omitempty"`
}

// knownErrors are errors that callers compare with. The order is part of the protocol.
var knownErrors = []error{lane.ErrAskAgain, lane.ErrInterrupted, lane.ErrLater}

// tellError returns an error in the form in which nodes send it. It returns nil if there is no
// error, or if the error is the refusal that the answer itself contains.
func tellError(a *lane.Answer) *toldError {
	if a.Err == nil {
		return nil
	}
	if refusal := core.RefusalOf(a.Answer); refusal != nil && refusal.Error() == a.Err.Error() {
		return nil
	}
	for i, known := range knownErrors {
		if errors.Is(a.Err, known) {
			return &toldError{Known: i + 1}
		}
	}

	t := &toldError{Kind: fault.KindOf(a.Err).String(), Text: a.Err.Error()}
	var e *fault.Error
	if errors.As(a.Err, &e) && e == a.Err { //nolint:errorlint // only the outermost error ends with its hint
		bare := *e
		bare.Hint, t.Hint = "", e.Hint
		t.Text = bare.Error()
	}
	return t
}

// err returns the error of an answer.
func (t *toldError) err() error {
	if t.Known > 0 && t.Known <= len(knownErrors) {
		return knownErrors[t.Known-1]
	}
	return &fault.Error{Kind: fault.ParseKind(t.Kind), Text: t.Text, Hint: t.Hint}
}

// tell returns an answer in the form in which nodes send it.
func tell(a *lane.Answer) *told {
	t := &told{Begun: a.Begun, Err: tellError(a)}
	if r := a.Result; r != nil {
		t.Run, t.Status, t.At, t.Outcome = r.Run, r.Outcome.Status, r.Outcome.At, model.AppendOutcome(nil, &r.Outcome)
		return t
	}
	t.Answer = model.AppendAnswer(nil, &a.Answer)
	return t
}

// size returns the size of the encoded answer, roughly.
func (t *told) size() int {
	n := len(t.Answer) + len(t.Outcome)
	if t.Err != nil {
		n += len(t.Err.Text) + len(t.Err.Hint)
	}
	return n
}

// answer returns the answer as the caller gets it.
func (t *told) answer() (a lane.Answer, err error) {
	a.Begun = t.Begun
	if t.Moved {
		if t.Begun {
			a.Answer.Run = t.Run
		}
		return a, lane.ErrNotOwner
	}

	if len(t.Answer) > 0 {
		if a.Answer, err = model.DecodeAnswer(t.Answer); err != nil {
			return a, fault.New(fault.Internal, "read the answer of another node: %w", err)
		}
		a.Err = core.RefusalOf(a.Answer)
	}

	if t.Status != 0 {
		o, err := model.DecodeOutcome(t.Status, t.At, t.Outcome)
		if err != nil {
			return a, fault.New(fault.Internal, "read the answer of another node: %w", err)
		}
		a.Result = &lane.Result{Run: t.Run, Outcome: o}
	}

	if t.Err != nil {
		a.Err = t.Err.err()
	}
	return a, a.Err
}

func decodeTold(body []byte) (*told, error) {
	t := &told{}
	if err := linkDecoding.Unmarshal(body, t); err != nil {
		return nil, fmt.Errorf("read the answer of another node: %w", err)
	}
	return t, nil
}

var linkDecoding = func() cbor.DecMode {
	// Texts of user code may be any bytes.
	m, err := cbor.DecOptions{IndefLength: cbor.IndefLengthForbidden, MaxNestedLevels: 16, UTF8: cbor.UTF8DecodeInvalid}.DecMode()
	if err != nil {
		panic(err)
	}
	return m
}()

// mustEncode encodes a value of a type that can always be encoded.
func mustEncode(v any) []byte {
	b, err := cbor.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
