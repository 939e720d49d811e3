package model

import "fmt"

// Answer is what the owner says to a request: that it took effect, on which run, or why not.
type Answer struct {
	Run    RunID  `cbor:"1,keyasint,omitzero"`
	Status Status `cbor:"2,keyasint,omitempty"`
	// Existing tells that a start found the execution already there.
	Existing bool `cbor:"3,keyasint,omitempty"`
	// Failure is why the request was refused; nil when it took effect.
	Failure *Failure `cbor:"4,keyasint,omitempty"`
	// Output is what the code answered, to an update or a query.
	Output Payload `cbor:"5,keyasint,omitzero"`
	// For is what the request id was used for, in an answer that is remembered; nil in those that
	// older builds stored.
	For *Use `cbor:"6,keyasint,omitempty"`
}

// DecodeAnswer reads a stored answer.
func DecodeAnswer(body []byte) (Answer, error) {
	var a Answer
	if err := decMode.Unmarshal(body, &a); err != nil {
		return a, fmt.Errorf("answer: %w", err)
	}
	return a, nil
}
