package model

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode/utf8"
)

// DeadTask is a task that failed for good: everything that is needed to see why, and to try it
// again when its run is long gone.
type DeadTask struct {
	// Address is that of the run that the task was a step of.
	Address Address  `cbor:"1,keyasint,omitzero"`
	Spec    TaskSpec `cbor:"2,keyasint"`
	Input   Payload  `cbor:"3,keyasint,omitzero"`
	// Scheduled is when the task came into being, At when it died.
	Scheduled Time `cbor:"4,keyasint,omitempty"`
	At        Time `cbor:"5,keyasint,omitempty"`
	// Attempts is how many were made, the last one included.
	Attempts int `cbor:"6,keyasint,omitempty"`
	// Failed are the attempts that failed, oldest first: all of them, or the first and the last
	// ones with LeftOut others in between. See Add.
	Failed  []FailedAttempt `cbor:"7,keyasint,omitempty"`
	LeftOut int             `cbor:"8,keyasint,omitempty"`
	// Failure is why it died, and Fingerprint what it has in common with others of its kind: see
	// [Failure.Fingerprint]. It is kept as it was computed, so that a later build which computes it
	// differently still finds the row.
	Failure     *Failure `cbor:"9,keyasint,omitempty"`
	Fingerprint string   `cbor:"10,keyasint,omitempty"`
	// Requeued is how it was given another chance, the last time.
	Requeued Requeue `cbor:"11,keyasint,omitzero"`
}

// FailedAttempt is an attempt of a task that failed.
type FailedAttempt struct {
	Attempt int     `cbor:"1,keyasint,omitempty"`
	At      Time    `cbor:"2,keyasint,omitempty"`
	Worker  string  `cbor:"3,keyasint,omitempty"` // empty when nobody had claimed it
	Failure Failure `cbor:"4,keyasint"`
}

// Requeue is when and as which run a dead task was scheduled anew.
type Requeue struct {
	At      Time    `cbor:"1,keyasint,omitempty"`
	Address Address `cbor:"2,keyasint,omitzero"`
	Run     RunID   `cbor:"3,keyasint,omitzero"`
}

// IsZero reports whether there was none.
func (r Requeue) IsZero() bool { return r == Requeue{} }

// Bounds of what a dead task keeps of its failed attempts. A task may fail for weeks, and its
// errors may quote whole documents.
const (
	MaxFailedAttempts = 100     // the first half of them and the last
	MaxFailedText     = 4 << 10 // bytes of the message and of the stack of each
)

// Add adds the next failed attempt. Beyond MaxFailedAttempts the one in the middle makes room; the
// texts of an attempt are cut to MaxFailedText, those of Failure are whole.
func (d *DeadTask) Add(a FailedAttempt) {
	a.Failure.Message, a.Failure.Stack = cut(a.Failure.Message, MaxFailedText), cut(a.Failure.Stack, MaxFailedText)
	if len(d.Failed) < MaxFailedAttempts {
		d.Failed = append(d.Failed, a)
		return
	}
	const half = MaxFailedAttempts / 2
	copy(d.Failed[half:], d.Failed[half+1:])
	d.Failed[len(d.Failed)-1] = a
	d.LeftOut++
}

// cut is at most the first so many bytes of a text, and no half character at its end.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const ellipsis = "…"
	end := most - len(ellipsis)
	for range utf8.UTFMax - 1 { // more of them in a row are no character
		if !utf8.RuneStart(s[end]) {
			end--
		}
	}
	return s[:end] + ellipsis
}

// LetterVerb says what is to be done with a dead letter. The numbers are stored.
type LetterVerb uint8

// What is done with dead letters.
const (
	LetterRequeue LetterVerb = 1 // schedule the task anew, if it was requeued Count times so far
	// end the run that a requeue has begun, if nobody has begun it; goes to that run
	LetterUndo   LetterVerb = 2
	LetterUndone LetterVerb = 3 // that has been done: the letter is as it was before
	LetterPurge  LetterVerb = 4 // remove it, if it was requeued Count times
)

// LetterOrder is what is to be done with a dead letter.
type LetterOrder struct {
	Do LetterVerb `cbor:"1,keyasint"`
	// Ref names the letter: the task that died.
	Ref TaskRef `cbor:"2,keyasint,omitzero"`
	// Count is how often it has been requeued, as far as whoever asks knows: of several who ask at
	// the same time, one is right.
	Count int64 `cbor:"3,keyasint,omitempty"`
	// Input of the requeued task; nil for the one that it had.
	Input *Payload `cbor:"4,keyasint,omitempty"`
	// Run is the one that the last requeue has begun, as far as whoever asks knows.
	Run RunID `cbor:"5,keyasint,omitzero"`
}

// Alone reports whether the task stands alone, and is no step of a workflow.
func (r TaskRef) Alone() bool {
	return r.ID == TaskStep && strings.HasPrefix(r.Address.Type, TaskPrefix)
}

// RequeueAddress is where a dead task is scheduled anew for the n-th time: one that stood alone
// under its own key; a step of a workflow under a key that is made of the run and the step, because
// the workflow has heard of the failure and does not wait any more.
func (r TaskRef) RequeueAddress(kind string, n int64) Address {
	if r.Alone() {
		return r.Address
	}
	sum := sha256.Sum256([]byte(r.ID))
	return Address{Tenant: r.Address.Tenant, Type: TaskPrefix + kind, Key: fmt.Sprintf("%s-%x-%d", r.Run, sum[:4], n)}
}
