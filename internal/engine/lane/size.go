package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

const (
	inputBytes = 256 // memory of an input without its contents
	rowBytes   = 64  // size of a row without its contents
	// a batch may always have this many bytes, however slow the store is
	fewestBytes = 64 << 10
)

// decisionSize returns roughly how many bytes the rows of a decision have. It leaves out the row of
// an entity and remembered answers. The code that adds these rows counts them.
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

// deadSize returns roughly how many bytes a dead task has.
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
