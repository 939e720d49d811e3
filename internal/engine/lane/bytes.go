package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

const (
	inputBytes  = 256      // what an input costs beside what it carries
	rowBytes    = 64       // what a row costs beside what it carries
	fewestBytes = 64 << 10 // a batch may always carry so many, however slow the path to the store is
)

// hold counts an input against the budget of the lane. Calling it again counts the input anew, because it has changed.
func (l *Lane) hold(in *input) {
	l.unhold(in)
	in.held = in.size()
	l.bytes += in.held
}

// unhold takes an input out of the budget.
func (l *Lane) unhold(in *input) {
	if in.kept {
		l.kept -= in.held
	} else {
		l.bytes -= in.held
	}
	in.held, in.kept = 0, false
}

// size is roughly what the input costs in memory.
func (in *input) size() int {
	n := inputBytes
	switch in.kind {
	case inMessage:
		n += in.message.Size()
	case inAnswered:
		n += in.message.Size() + in.answer.Output.Size()
	case inTurn:
		for i := range in.turn.Commands {
			c := &in.turn.Commands[i]
			n += c.Event.Size()
			if c.Message != nil {
				n += c.Message.Size()
			}
		}
		if c := in.turn.Close; c != nil {
			n += c.Output.Size() + c.Input.Size()
		}
	case inReport:
		n += in.task.report.Output.Size()
	case inProgress:
		n += in.task.progress.Size()
	case inExpired:
		n += 16 * len(in.runs)
	case inOperated:
		n += in.job.size
	case inTimer, inRelease, inQuarantine, inClaim, inExpire, inAttach, inSettle, inAside, inNote:
	}
	return n
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
