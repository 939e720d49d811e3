package model

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// MarshalByTags encodes by reflection, as the tags of the types say.
func MarshalByTags(v any) ([]byte, error) {
	mode, err := cbor.EncOptions{Sort: cbor.SortNone, IndefLength: cbor.IndefLengthForbidden}.EncMode()
	if err != nil {
		return nil, err
	}

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
