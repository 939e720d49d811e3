package model

import (
	"hash/maphash"
	"slices"
)

// CallsKey identifies the calls of a hand-over and the state that they begin with, without keeping
// their inputs. A process compares the keys of two hand-overs with it, and does not store it.
type CallsKey struct {
	calls []callKey
	state uint64 // hash of the state that the calls begin with
}

// callKey is a call of a hand-over. The number alone does not identify the call: the call may run
// before its owner has stored it (see lane/ahead.go). If the owner dies in that moment, the next
// owner may get another call with the same number. The sender may send another input after it has
// repeated a step, and the position in the mailbox may belong to another call.
type callKey struct {
	number int64
	name   string
	input  string // digest of the input; empty if the call has no number
}

var stateSeed = maphash.MakeSeed()

// Key returns the key of the calls. It is empty if no call has a number.
func (o *Operations) Key() CallsKey {
	if !slices.ContainsFunc(o.Calls, func(c OperationCall) bool { return c.Number != 0 }) {
		return CallsKey{}
	}
	k := CallsKey{calls: make([]callKey, len(o.Calls))}
	for i := range o.Calls {
		c := &o.Calls[i]
		k.calls[i] = callKey{number: c.Number, name: c.Name}
		if c.Number != 0 {
			k.calls[i].input = string(c.Input.Digest())
		}
	}
	if o.Exists {
		k.state = maphash.Bytes(stateSeed, o.State.Data)
	}
	return k
}

// Begins reports whether a later hand-over starts with the same calls, on the same state. In that
// case the results of the calls answer the later hand-over too. Calls without a number are not
// stored, so they are lost with their owner.
func (k CallsKey) Begins(later CallsKey) bool {
	isLost := func(c callKey) bool { return c.number == 0 }
	return len(k.calls) > 0 && len(k.calls) <= len(later.calls) && !slices.ContainsFunc(k.calls, isLost) &&
		slices.Equal(k.calls, later.calls[:len(k.calls)]) && k.state == later.state
}

// Shares reports whether the two hand-overs may have a call in common. Owners of different kinds
// number the same call differently, so Shares compares only names and inputs.
func (k CallsKey) Shares(other CallsKey) bool {
	return slices.ContainsFunc(k.calls, func(c callKey) bool {
		return c.number != 0 && slices.ContainsFunc(other.calls, func(d callKey) bool {
			return d.number != 0 && d.name == c.name && d.input == c.input
		})
	})
}
