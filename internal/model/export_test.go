package model

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// sortedMode writes the keys of each map in order. The order of the fields in a Go type is no part
// of the stored form: it is chosen for the size of the type. golden_test.go compares the order that
// append.go writes.
var sortedMode = must(cbor.EncOptions{Sort: cbor.SortBytewiseLexical, IndefLength: cbor.IndefLengthForbidden}.EncMode())

// Sorted returns an encoded value with the keys of each map in order.
func Sorted(body []byte) ([]byte, error) {
	var v any
	if err := decMode.Unmarshal(body, &v); err != nil {
		return nil, err
	}
	return sortedMode.Marshal(v)
}

// MarshalByTags encodes by reflection, as the tags of the types say, with the keys of each map in
// order.
func MarshalByTags(v any) ([]byte, error) {
	mode := sortedMode
	switch v := v.(type) {
	case *Event, *Message, []Reason, *Answer, *DeadTask, *Payload:
		return mode.Marshal(v)
	case *Start:
		b := startBody{
			Input: v.Input, RequestID: v.RequestID, Parent: v.Parent, OnParentClose: v.OnParentClose,
			First: v.First, Previous: v.Previous, Origin: v.Origin, Carried: PastOf(v.Carried),
			Began: v.Began, Seeds: v.Seeds, Identity: v.Identity, Replaced: v.Replaced, Earlier: v.Earlier, Source: v.Source, Labels: v.Labels, Task: v.Task, Worker: v.Worker,
			Trace: v.Trace, Begins: v.Begins, Expires: v.Expires, Terms: v.Terms, Attempt: v.Attempt, Cause: v.Cause,
		}
		return mode.Marshal(&b)
	case *Outcome:
		return mode.Marshal(&outcomeBody{v.Output, v.Failure, v.Seen, v.Next, v.Leaves})
	}

	return nil, fmt.Errorf("%T is not stored", v)
}
