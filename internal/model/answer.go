package model

import "fmt"

// Answer is the owner's answer to a request. It names the run on which the request took effect, or
// has the reason why the owner refused the request.
type Answer struct {
	Run    RunID  `cbor:"1,keyasint,omitzero"`
	Status Status `cbor:"2,keyasint,omitempty"`
	// Existing says that a start found the execution already there.
	Existing bool `cbor:"3,keyasint,omitempty"`
	// Failure is why the request was refused; nil when it took effect.
	Failure *Failure `cbor:"4,keyasint,omitempty"`
	// Output is the answer of the code to an update or a query.
	Output Payload `cbor:"5,keyasint,omitzero"`
	// For says which request the request id was used for. Only answers that the engine remembers
	// have it. It is nil in answers that older builds stored.
	For *Use `cbor:"6,keyasint,omitempty"`
	// Requeue says which requeue of a dead task has begun Run: 1 for the first one. With it,
	// TaskRef.RequeueAddress returns the address of that run. It is 0 in answers to other requests,
	// and in answers of builds without this field.
	Requeue int64 `cbor:"7,keyasint,omitempty"`
}

// DecodeAnswer reads a stored answer.
func DecodeAnswer(body []byte) (Answer, error) {
	var a Answer
	if err := decMode.Unmarshal(body, &a); err != nil {
		return a, fmt.Errorf("answer: %w", err)
	}
	return a, nil
}
