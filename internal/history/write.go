package history

import (
	"bufio"
	"io"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Writer writes a history line by line, so that it need not be in memory as a whole.
type Writer struct{ w *bufio.Writer }

// NewWriter writes the header.
func NewWriter(w io.Writer, s *model.Start) (*Writer, error) {
	out := &Writer{bufio.NewWriter(w)}
	return out, out.line(headerOf(s))
}

// Event writes the next event.
func (w *Writer) Event(e *model.Event) error {
	if !e.Kind.Known() {
		return fault.New(fault.Invalid, "event %d is of a kind that this build does not know", e.Seq)
	}
	return w.line(lineOf(e))
}

// End writes the outcome and flushes. Without the outcome a reader refuses the file.
func (w *Writer) End(o *model.Outcome) error {
	if err := w.line(outcomeOf(o)); err != nil {
		return err
	}
	return w.w.Flush()
}

// line writes one line.
func (w *Writer) line(v any) error {
	data, err := marshal(v)
	if err != nil {
		return fault.New(fault.Invalid, "history: %w", err)
	}
	if _, err := w.w.Write(data); err != nil {
		return err
	}
	return w.w.WriteByte('\n')
}

// Write writes a whole history.
func Write(to io.Writer, h *model.History) error {
	w, err := NewWriter(to, &h.Start)
	if err != nil {
		return err
	}
	for i := range h.Events {
		if err := w.Event(&h.Events[i]); err != nil {
			return err
		}
	}
	return w.End(&h.Outcome)
}
