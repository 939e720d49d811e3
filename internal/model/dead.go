package model

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode/utf8"
)

// DeadTask is a task that has failed permanently. It has everything that an operator needs to see
// why it failed, and to run it again, even when its run has long been removed.
type DeadTask struct {
	// Address is the address of the run that the task was a step of.
	Address Address  `cbor:"1,keyasint,omitzero"`
	Spec    TaskSpec `cbor:"2,keyasint"`
	Input   Payload  `cbor:"3,keyasint,omitzero"`
	// Scheduled is when the task was scheduled, At when it failed.
	Scheduled Time `cbor:"4,keyasint,omitempty"`
	At        Time `cbor:"5,keyasint,omitempty"`
	// Attempts is how many attempts were made, including the last one.
	Attempts int `cbor:"6,keyasint,omitempty"`
	// Failed are the failed attempts, oldest first: all of them, or the first and the last ones
	// with LeftOut others in between. See Add.
	Failed  []FailedAttempt `cbor:"7,keyasint,omitempty"`
	LeftOut int             `cbor:"8,keyasint,omitempty"`
	// Failure is why the task failed. Fingerprint is the same for similar failures, see
	// [Failure.Fingerprint]. The fingerprint is stored, because a later build may compute another
	// one for the same failure and must still find the row.
	Failure     *Failure `cbor:"9,keyasint,omitempty"`
	Fingerprint string   `cbor:"10,keyasint,omitempty"`
	// Requeued is the last requeue.
	Requeued Requeue `cbor:"11,keyasint,omitzero"`
}

// FailedAttempt is a failed attempt of a task.
type FailedAttempt struct {
	Attempt int     `cbor:"1,keyasint,omitempty"`
	At      Time    `cbor:"2,keyasint,omitempty"`
	Worker  string  `cbor:"3,keyasint,omitempty"` // empty when no worker had claimed the task
	Failure Failure `cbor:"4,keyasint"`
}

// Requeue is when, and as which run, a dead task was scheduled again.
type Requeue struct {
	At      Time    `cbor:"1,keyasint,omitempty"`
	Address Address `cbor:"2,keyasint,omitzero"`
	Run     RunID   `cbor:"3,keyasint,omitzero"`
	// Input is a digest of the input that the requeue gave to the task. It is empty if the task
	// kept its own input, if the input cannot be compared (see Payload.Comparable), and if a build
	// without this field requeued the task.
	Input []byte `cbor:"4,keyasint,omitempty"`
}

// IsZero reports whether the task was never requeued.
func (r Requeue) IsZero() bool { return r.Equal(Requeue{}) }

// Equal reports whether two requeues are the same.
func (r Requeue) Equal(o Requeue) bool {
	return r.At == o.At && r.Address == o.Address && r.Run == o.Run && bytes.Equal(r.Input, o.Input)
}

// SetInput notes the input that the requeue gives to the task.
func (r *Requeue) SetInput(in Payload) {
	if r.Input = nil; in.Comparable() {
		r.Input = in.Digest()
	}
}

// HasInput reports whether the requeue certainly gave this input to the task.
func (r Requeue) HasInput(in Payload) bool {
	return len(r.Input) > 0 && in.Comparable() && bytes.Equal(r.Input, in.Digest())
}

// Bounds of the failed attempts that a dead task keeps. A task may fail for weeks, and its errors
// may quote whole documents.
const (
	MaxFailedAttempts = 100     // half of them are the first attempts, half the last
	MaxFailedText     = 4 << 10 // bytes of the message and of the stack of each attempt
)

// Add adds the next failed attempt. If there are more than MaxFailedAttempts, it drops one from the
// middle. It cuts the texts of an attempt to MaxFailedText; the texts of Failure are not cut.
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

// cut returns the text with at most this many bytes. A text that is cut ends with an ellipsis,
// without a partial character before it.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const ellipsis = "…"
	end := most - len(ellipsis)
	for range utf8.UTFMax - 1 { // a longer sequence is not a character
		if !utf8.RuneStart(s[end]) {
			end--
		}
	}
	return s[:end] + ellipsis
}

// DeadTaskVerb is an operation on a dead task. The numbers are stored.
type DeadTaskVerb uint8

// Operations on dead tasks.
const (
	// Schedule the task again, if it was requeued Count times so far.
	DeadTaskRequeue DeadTaskVerb = 1
	// End the run that a requeue has begun, unless a worker has begun the task. The order goes to
	// the address of that run.
	DeadTaskUndo   DeadTaskVerb = 2
	DeadTaskUndone DeadTaskVerb = 3 // the dead task forgets its last requeue, which was undone
	DeadTaskPurge  DeadTaskVerb = 4 // remove the dead task, if it was requeued Count times so far
)

// DeadTaskOrder is an operation on a dead task, with its parameters.
type DeadTaskOrder struct {
	Do DeadTaskVerb `cbor:"1,keyasint"`
	// Ref is the dead task.
	Ref TaskRef `cbor:"2,keyasint,omitzero"`
	// Count is how often the task was requeued, as far as the sender knows. If several senders act
	// at the same time, only the first one has the right count.
	Count int64 `cbor:"3,keyasint,omitempty"`
	// Input is the input of the requeued task; nil for the original input.
	Input *Payload `cbor:"4,keyasint,omitempty"`
	// Run is the run that the last requeue has begun, as far as the sender knows.
	Run RunID `cbor:"5,keyasint,omitzero"`
	// Damaged says that the sender cannot read the dead task that it removes. In that case the
	// sender does not know the address of the task, and Ref has any address of the right shard.
	Damaged bool `cbor:"6,keyasint,omitempty"`
}

// Alone reports whether the task stands alone, which means that it is not a step of a workflow.
func (r TaskRef) Alone() bool {
	return r.ID == TaskStep && strings.HasPrefix(r.Address.Type, TaskPrefix)
}

// RequeueAddress returns the address at which a dead task is requeued for the n-th time. A task
// that stands alone keeps its key. A step of a workflow gets an address of its own, because the
// workflow has received the failure and no longer waits. Its key is made of the run and the step.
func (r TaskRef) RequeueAddress(kind string, n int64) Address {
	if r.Alone() {
		return r.Address
	}
	sum := sha256.Sum256([]byte(r.ID))
	return Address{Tenant: r.Address.Tenant, Type: TaskPrefix + kind, Key: fmt.Sprintf("%s-%x-%d", r.Run, sum[:4], n)}
}
