package sqlite

import (
	"fmt"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// bodies are the stored bodies of a batch, in the order in which they are written.
type bodies struct {
	data    []byte
	ends    []int // the end of each body in data; -1 for a body that is null
	at, pos int   // the next body to be written: its index, and its position in data
	columns []byte
}

// maxBody bounds one stored value. SQLite could store more, but not within the memory that a
// connection gets.
const maxBody = 64 << 20

// reset forgets all bodies and makes room for about size bytes. It keeps a large buffer only as
// long as batches need it. Otherwise the pool would keep the memory of the largest batch ever seen.
func (e *bodies) reset(size int) {
	const small, most = 1 << 20, 16 << 20
	if have := cap(e.data); have > most || have > small && len(e.data) < have/4 {
		e.data = nil
	}
	e.data, e.ends, e.at, e.pos = slices.Grow(e.data[:0], min(size+size/8, most)), e.ends[:0], 0, 0
}

// next returns the next body, nil for null.
func (e *bodies) next() []byte {
	end := e.ends[e.at]
	e.at++
	if end < 0 {
		return nil
	}
	body := e.data[e.pos:end]
	e.pos = end
	return body
}

// null adds a body that is stored as null.
func (e *bodies) null() { e.ends = append(e.ends, -1) }

// add appends one body. The caller appends an encoded value to e.data and passes the result as
// data. add then appends the checksum of that value. Before the call, the caller puts the columns
// of the row into e.columns.
func (e *bodies) add(data []byte) error {
	begin := len(e.data)
	if n := len(data) - begin; n > maxBody {
		return fmt.Errorf("%d bytes are too large, the limit is %d", n, maxBody)
	}
	e.data = seal(data, begin, e.columns)
	e.ends = append(e.ends, len(e.data))
	return nil
}

// reasons seals reasons, or adds null if there are none.
func (e *bodies) reasons(rs []model.Reason) error {
	if len(rs) == 0 {
		e.null()
		return nil
	}
	return e.add(model.AppendReasons(e.data, rs))
}

// encode encodes every body of a batch.
func (e *bodies) encode(b *store.Batch) error {
	// Encode the bodies in the order in which batchWriter.apply writes them, because next returns
	// them one after the other. The checksum of each body includes the columns of its row, so a
	// reader notices a body under the wrong key.
	e.reset(b.Bytes)
	for i := range b.Starts {
		r := &b.Starts[i]
		e.columns = startColumns(e.columns[:0], store.RunKey{Shard: r.Shard, Run: r.Start.Run}, r.Start.Address, r.Start.At)
		if err := e.add(model.AppendStart(e.data, &r.Start)); err != nil {
			return fmt.Errorf("start of %s: %w", r.Start.Run, err)
		}
	}

	for i := range b.Closes {
		r := &b.Closes[i]
		e.columns = outcomeColumns(e.columns[:0], r.RunKey, r.Outcome.Status, r.Outcome.At)
		if err := e.add(model.AppendOutcome(e.data, &r.Outcome)); err != nil {
			return fmt.Errorf("close of %s: %w", r.Run, err)
		}
	}

	for i := range b.Marks {
		if err := e.mark(&b.Marks[i]); err != nil {
			return fmt.Errorf("mark of %s: %w", b.Marks[i].Run, err)
		}
	}

	for i := range b.Events {
		r := &b.Events[i]
		e.columns = eventColumns(e.columns[:0], r.RunKey, &r.Event)
		if err := e.add(model.AppendEvent(e.data, &r.Event)); err != nil {
			return fmt.Errorf("event %d of %s: %w", r.Event.Seq, r.Run, err)
		}
	}

	if err := e.encodeTasks(b); err != nil {
		return err
	}
	if err := e.encodeEntities(b); err != nil {
		return err
	}

	return e.encodeMail(b)
}

// encodeTasks encodes dead tasks, data of tasks and log lines.
func (e *bodies) encodeTasks(b *store.Batch) error {
	for i := range b.Dead {
		r := &b.Dead[i]
		if err := e.dead(r.DeadKey, r.Requeued, &r.Body); err != nil {
			return err
		}
	}

	for i := range b.DeadMarks {
		r := &b.DeadMarks[i]
		if err := e.dead(r.DeadKey, r.Next, &r.Body); err != nil {
			return err
		}
	}

	for i := range b.TaskData {
		r := &b.TaskData[i]
		if r.Deleted {
			continue
		}
		e.columns = datumSum(e.columns[:0], r)
		if err := e.add(model.AppendPayload(e.data, &r.Value)); err != nil {
			return fmt.Errorf("data %q of task %q of %s: %w", r.Name, r.Task, r.Run, err)
		}
	}

	for i := range b.Logs {
		// Set the epoch and the batch number in a copy of the row, because the batch belongs to the
		// lane.
		r := b.Logs[i]
		r.Epoch, r.Batch = b.Lane.Epoch, b.Number
		e.columns = logSum(e.columns[:0], &r)
		if err := e.add(append(e.data, r.Text...)); err != nil {
			return fmt.Errorf("log line %d of task %q of %s: %w", r.N, r.Task, r.Run, err)
		}
	}

	return nil
}

// dead encodes a dead task.
func (e *bodies) dead(k store.DeadKey, requeued int64, d *model.DeadTask) error {
	e.columns = deadSum(e.columns[:0], k, requeued, store.ColumnsOf(d))
	if err := e.add(model.AppendDeadTask(e.data, d)); err != nil {
		return fmt.Errorf("dead task %q of %s: %w", k.Task, k.Run, err)
	}
	return nil
}

// mark encodes what a run waits for, and why it is blocked.
func (e *bodies) mark(r *store.MarkRow) error {
	e.columns = waitsColumns(e.columns[:0], r.RunKey)
	if err := e.reasons(r.Waits); err != nil {
		return err
	}
	e.columns = blockedColumns(e.columns[:0], r.RunKey)
	if r.Blocked == nil {
		e.null()
		return nil
	}
	return e.reasons([]model.Reason{*r.Blocked})
}

// encodeMail encodes messages, requests and answers.
func (e *bodies) encodeMail(b *store.Batch) error {
	for i := range b.Messages {
		r := &b.Messages[i]
		e.columns = messageColumns(e.columns[:0], r.To, r.From, r.Seq)
		if err := e.add(model.AppendBody(e.data, &r.Message, r.Damaged)); err != nil {
			return fmt.Errorf("message %d from shard %d to shard %d: %w", r.Seq, r.From, r.To, err)
		}
	}

	for i := range b.Deferred {
		r := &b.Deferred[i]
		e.columns = inboxColumns(e.columns[:0], r.Shard, r.ID)
		if err := e.add(model.AppendBody(e.data, &r.Message, r.Damaged)); err != nil {
			return fmt.Errorf("request %s to shard %d: %w", r.ID, r.Shard, err)
		}
	}

	for i := range b.Requests {
		r := &b.Requests[i]
		e.columns = requestColumns(e.columns[:0], r.RequestKey, r.At)
		if err := e.add(append(e.data, r.Body...)); err != nil {
			return fmt.Errorf("answer to request %q of %s: %w", r.ID, r.Address, err)
		}
	}

	return nil
}

// bodyPool keeps the memory of encoded batches.
var bodyPool = sync.Pool{New: func() any { return new(bodies) }}
