package model

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Events, messages, starts and outcomes are stored as CBOR with integer keys. This file reads that
// form; append.go writes it.

var decMode = must(cbor.DecOptions{
	DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden,
	MaxNestedLevels: 16, MaxArrayElements: 1 << 20, MaxMapPairs: 1 << 16,
	// Error texts of user code may be any bytes. Refusing them here would make a stored history
	// unreadable.
	UTF8: cbor.UTF8DecodeInvalid,
}.DecMode())

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// DecodeEvent reads a stored event.
func DecodeEvent(seq int64, at Time, kind EventKind, body []byte) (Event, error) {
	var e Event
	if !kind.Known() {
		return e, fmt.Errorf("event %d has kind %d, which this build does not know: %w", seq, kind, ErrNewer)
	}
	if err := decMode.Unmarshal(body, &e); err != nil {
		return e, fmt.Errorf("event %d (%s): %w", seq, kind, err)
	}
	e.Seq, e.At, e.Kind = seq, at, kind
	return e, nil
}

// DecodeMessage reads a stored message. If the error is ErrNewer, the message has the fields that
// this build knows.
func DecodeMessage(body []byte) (Message, error) {
	var m Message
	if err := decMode.Unmarshal(body, &m); err != nil {
		return m, fmt.Errorf("message: %w", err)
	}
	if !m.Kind.Known() {
		return m, fmt.Errorf("message of kind %d, which this build does not know: %w", m.Kind, ErrNewer)
	}
	if m.Past != nil {
		return m, knownEvents(m.Past.Events, "message to "+m.To.String())
	}
	return m, nil
}

// startBody has the fields of a Start that are not stored as columns.
type startBody struct {
	Input         Payload           `cbor:"1,keyasint,omitzero"`
	RequestID     string            `cbor:"2,keyasint,omitempty"`
	Parent        Link              `cbor:"3,keyasint,omitzero"`
	OnParentClose ParentClosePolicy `cbor:"4,keyasint,omitempty"`
	First         RunID             `cbor:"5,keyasint,omitzero"`
	Previous      RunID             `cbor:"6,keyasint,omitzero"`
	Carried       []PastEvent       `cbor:"7,keyasint,omitempty"`
	Origin        []byte            `cbor:"8,keyasint,omitempty"`
	Labels        []Label           `cbor:"12,keyasint,omitempty"`
	Began         Time              `cbor:"16,keyasint,omitempty"`
	Seeds         []Seed            `cbor:"17,keyasint,omitempty"`
	Identity      RunID             `cbor:"18,keyasint,omitzero"`
	Source        Source            `cbor:"19,keyasint,omitzero"`
	Task          *TaskSpec         `cbor:"20,keyasint,omitempty"`
	Worker        string            `cbor:"21,keyasint,omitempty"`
	Replaced      RunID             `cbor:"22,keyasint,omitzero"`
	Earlier       []RunID           `cbor:"23,keyasint,omitempty"`
	Trace         string            `cbor:"24,keyasint,omitempty"`
	Begins        Time              `cbor:"25,keyasint,omitempty"`
	Expires       Time              `cbor:"26,keyasint,omitempty"`
	Terms         *Terms            `cbor:"27,keyasint,omitempty"`
	Attempt       int               `cbor:"28,keyasint,omitempty"`
	Cause         *Failure          `cbor:"29,keyasint,omitempty"`
}

// DecodeStart reads a stored start.
func DecodeStart(a Address, run RunID, at Time, body []byte) (Start, error) {
	var b startBody
	if err := decMode.Unmarshal(body, &b); err != nil {
		return Start{}, fmt.Errorf("start of %s: %w", run, err)
	}
	s := Start{
		Address: a, Run: run, At: at, Input: b.Input, RequestID: b.RequestID, Parent: b.Parent,
		OnParentClose: b.OnParentClose, First: b.First, Previous: b.Previous, Origin: b.Origin, Labels: b.Labels,
		Carried: EventsOf(b.Carried), Began: b.Began, Seeds: b.Seeds, Identity: b.Identity, Replaced: b.Replaced, Earlier: b.Earlier, Source: b.Source, Task: b.Task, Worker: b.Worker,
		Trace: b.Trace, Begins: b.Begins, Expires: b.Expires, Terms: b.Terms, Attempt: b.Attempt, Cause: b.Cause,
	}
	return s, knownEvents(b.Carried, "start of "+run.String())
}

// knownEvents returns ErrNewer if an event has a kind that this build does not know.
func knownEvents(events []PastEvent, what string) error {
	for i := range events {
		if k := events[i].Kind; !k.Known() {
			return fmt.Errorf("%s carries an event of kind %d, which this build does not know: %w", what, k, ErrNewer)
		}
	}
	return nil
}

// outcomeBody has the fields of an Outcome that are not stored as columns.
type outcomeBody struct {
	Output  Payload  `cbor:"1,keyasint,omitzero"`
	Failure *Failure `cbor:"2,keyasint,omitempty"`
	Seen    int64    `cbor:"3,keyasint,omitempty"`
	Next    RunID    `cbor:"4,keyasint,omitzero"`
	Leaves  Time     `cbor:"5,keyasint,omitzero"`
}

// DecodeOutcome reads a stored outcome.
func DecodeOutcome(status Status, at Time, body []byte) (Outcome, error) {
	var b outcomeBody
	if err := decMode.Unmarshal(body, &b); err != nil {
		return Outcome{}, fmt.Errorf("outcome: %w", err)
	}
	return Outcome{Status: status, At: at, Output: b.Output, Failure: b.Failure, Seen: b.Seen, Next: b.Next, Leaves: b.Leaves}, nil
}

// DecodeReasons reads the reasons why a run waits.
func DecodeReasons(body []byte) ([]Reason, error) {
	if len(body) == 0 {
		return nil, nil
	}
	var rs []Reason
	if err := decMode.Unmarshal(body, &rs); err != nil {
		return nil, fmt.Errorf("reasons: %w", err)
	}
	return rs, nil
}

// DecodePayload reads a payload that is not part of another value.
func DecodePayload(body []byte) (Payload, error) {
	var p Payload
	if err := decMode.Unmarshal(body, &p); err != nil {
		return p, fmt.Errorf("payload: %w", err)
	}
	return p, nil
}

// DecodeDeadTask reads a dead task.
func DecodeDeadTask(body []byte) (DeadTask, error) {
	var d DeadTask
	if err := decMode.Unmarshal(body, &d); err != nil {
		return d, fmt.Errorf("dead task: %w", err)
	}
	return d, nil
}
