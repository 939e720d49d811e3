package model

import (
	"strconv"
	"strings"
)

// stateMark separates the encoding of a state from the version of its type.
const stateMark = ";v="

// StateVersion returns the version of the type that a state was written with; 1 if it has no mark.
func (p Payload) StateVersion() int {
	_, text, ok := strings.Cut(p.Encoding, stateMark)
	if !ok {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return MaxStateVersion + 1 // this build did not write it, so no code can read it
	}
	return n
}

// MaxStateVersion is the largest version of a state.
const MaxStateVersion = 1_000_000

// WithStateVersion returns a state with the mark of a version. The mark is part of the encoding, so
// that every copy of the state has it. Builds that do not know versions refuse to read such a
// state. Otherwise they could write it back without the mark. Version 1 has no mark.
func (p Payload) WithStateVersion(version int) Payload {
	p = p.Bare()
	if version > 1 {
		p.Encoding += stateMark + strconv.Itoa(version)
	}
	return p
}

// Bare returns a state without the mark of its version.
func (p Payload) Bare() Payload {
	p.Encoding, _, _ = strings.Cut(p.Encoding, stateMark)
	return p
}

// ReadsState reports whether a worker with this offer can read a version of the state.
func (t *EntityType) ReadsState(version int) bool { return version <= max(1, t.StateVersion) }
