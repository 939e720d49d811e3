package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// hold counts an input against the budget of the lane. Calling it again counts the input anew, because it has changed.
func (l *Lane) hold(in input) {
	l.unhold(in)
	b := in.base()
	b.held = in.size()
	l.bytes += b.held
}

// unhold takes an input out of the budget.
func (l *Lane) unhold(in input) {
	b := in.base()
	if b.kept {
		l.kept -= b.held
	} else {
		l.bytes -= b.held
	}
	b.held, b.kept = 0, false
}

// decisionSize is roughly how many bytes the rows of a decision have. The row of an entity and the answers to remember are not
// among them: whatever adds those to a batch counts them.
func decisionSize(d *core.Decision) int {
	n := rowBytes
	for i := range d.Events {
		n += d.Events[i].Size()
	}
	if s := d.Start; s != nil {
		n += rowBytes + s.Input.Size()
		for i := range s.Carried {
			n += s.Carried[i].Size()
		}
	}
	if d.Close != nil {
		n += rowBytes + d.Close.Output.Size()
	}
	for i := range d.Messages {
		n += d.Messages[i].Size()
	}
	for i := range d.Dead {
		n += deadSize(&d.Dead[i])
	}
	for i := range d.Mailbox {
		n += rowBytes + d.Mailbox[i].Message.Size()
	}
	return n
}

// deadSize is roughly what a dead letter takes.
func deadSize(d *core.DeadTask) int {
	n := rowBytes + d.Task.Input.Size() + failureSize(d.Failure)
	for i := range d.Task.Failures {
		n += failureSize(d.Task.Failures[i].Failure)
	}
	return n
}

func failureSize(f *model.Failure) int {
	if f == nil {
		return 0
	}
	return rowBytes + len(f.Message) + len(f.Type) + len(f.Stack)
}

// batchFull reports whether the open batch takes no further input. The lane asks before it adds an input, so an input that is
// larger than the limit goes as well: a batch has at most as many bytes as the limit and one input more.
func (l *Lane) batchFull() bool {
	return l.open.rows() >= l.cfg.MaxBatchRows || l.open.bytes >= l.batchBytes
}

// narrow makes the next batches smaller: the path to the store did not take one of that many bytes in time.
func (l *Lane) narrow(bytes int) {
	l.batchBytes = min(l.batchBytes, max(fewestBytes, bytes/2))
}

// widen lets batches grow again after the store has taken one, without more time than usual, that was about as large as they may be.
func (l *Lane) widen(b *building) {
	if l.batchBytes < l.cfg.MaxBatchBytes && b.bytes >= l.batchBytes/2 && b.batch.Patience == 0 {
		l.batchBytes = min(2*l.batchBytes, l.cfg.MaxBatchBytes)
	}
}

// Full reports whether the lane has no room: hand in nothing but results until it has.
func (l *Lane) Full() bool {
	return l.bytes >= l.cfg.MaxBytes || l.batchFull() || l.recovery.careful()
}

// Held is the number of bytes of inputs that wait or are not committed yet.
func (l *Lane) Held() int { return l.bytes + l.kept }
