package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// applyWrite puts data that a claim writes into the open batch. The lane answers when the data is
// durable. It answers a repetition of a write when the first write is durable.
func (l *Lane) applyWrite(now model.Time, e *entry, in *messageInput) {
	var d core.Decision
	if err := l.writeData(now, e, in.origin.message.Write); err != nil {
		d.Answer.Failure = &model.Failure{Kind: fault.KindOf(err).String(), Message: err.Error()}
	}
	l.record(e, in, &d)
}

// writeData adds the values, items and log lines of a write to the open batch, with the mark that
// makes a repetition of the write harmless.
func (l *Lane) writeData(now model.Time, e *entry, write *model.TaskWrite) error {
	ref := &write.Ref
	w := e.tasks.written[ref.ID]
	switch {
	case !e.isClaimOf(ref, write.By) || w == nil:
		return fault.New(fault.NotOwned, "%s: the claim has ended, or another worker has it", ref.TaskRef)
	case w.err != nil:
		return w.err
	}

	c, news, err := w.Write(write, now)
	if err != nil || !news {
		return err
	}

	b, key := l.open, e.key()
	l.touch(b, e)
	for i := range c.States {
		s := &c.States[i]
		b.putDatum(store.TaskDatum{RunKey: key, Task: ref.ID, Name: s.Name, Value: s.Value, Deleted: s.Removed})
	}
	for i := range c.Items {
		b.putDatum(store.NewStreamed(key, ref.ID, &c.Items[i]))
	}
	for _, position := range c.Dropped {
		b.putDatum(store.DropStreamed(key, ref.ID, position))
	}
	for i := range c.Lines {
		it := &c.Lines[i]
		b.batch.Logs = append(b.batch.Logs, store.LogRow{RunKey: key, Task: ref.ID, At: it.At, N: int32(len(b.batch.Logs)), Level: it.Level, Text: it.Text})
		b.bytes += rowBytes + len(it.Text)
	}

	mark := store.TaskMark{Claim: w.Claim, Seq: w.Seq, Lines: w.Lines, Items: w.Items, At: w.At}
	b.putDatum(mark.Datum(key, ref.ID))
	return nil
}
