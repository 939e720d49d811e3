package store

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Names of task data. A task chooses the names of its states, and these names have no control
// characters. So names that start with a control character are free for other data, and each kind
// of data has its own range of names.
const (
	progressName = ""     // the progress of the task
	streamPrefix = "\x01" // a streamed item, by its position
	markName     = "\x02" // how much the task has written
	stateNames   = "\x03" // names of states are greater than this
)

// DataRange selects data of tasks.
type DataRange struct {
	Task string // empty for all tasks of the run
	// From is the first name of the range, and Before is the first name after the range. Empty
	// means no bound.
	From, Before string
	Limit        int // 0 for no limit
}

// ProgressRange selects the progress of a task, or of all tasks of a run if task is empty.
func ProgressRange(task string) DataRange { return DataRange{Task: task, Before: streamPrefix} }

// StateRange selects the states of a task.
func StateRange(task string) DataRange { return DataRange{Task: task, From: stateNames} }

// OneStateRange selects one state of a task.
func OneStateRange(task, name string) DataRange {
	return DataRange{Task: task, From: name, Before: name + "\x01", Limit: 1}
}

// WrittenRange selects the states of a task and its mark, which counts what the task has written.
func WrittenRange(task string) DataRange { return DataRange{Task: task, From: markName} }

// StreamRange selects the streamed items of a task after a position.
func StreamRange(task string, after int64, limit int) DataRange {
	return DataRange{Task: task, From: streamName(after + 1), Before: markName, Limit: limit}
}

// Covers reports whether the name is in the range.
func (r *DataRange) Covers(name string) bool {
	return name >= r.From && (r.Before == "" || name < r.Before)
}

// IsProgress reports whether the datum is the progress of its task.
func (d *TaskDatum) IsProgress() bool { return d.Name == progressName }

// IsState reports whether the datum is a state.
func (d *TaskDatum) IsState() bool { return d.Name > stateNames }

func streamName(position int64) string { return fmt.Sprintf("%s%016x", streamPrefix, max(position, 0)) }

// NewStreamed encodes a streamed item. Its kind and its time are stored in front of the payload.
func NewStreamed(key RunKey, task string, it *model.StreamItem) TaskDatum {
	data := make([]byte, 0, 9+len(it.Value.Data))
	data = binary.BigEndian.AppendUint64(append(data, byte(it.Kind)), uint64(it.At))
	return TaskDatum{RunKey: key, Task: task, Name: streamName(it.Position), Value: model.Payload{Data: append(data, it.Value.Data...), Encoding: it.Value.Encoding}}
}

// DropStreamed removes a streamed item.
func DropStreamed(key RunKey, task string, position int64) TaskDatum {
	return TaskDatum{RunKey: key, Task: task, Name: streamName(position), Deleted: true}
}

// StreamItem decodes a streamed item.
func (d *TaskDatum) StreamItem() (it model.StreamItem, err error) {
	it.Position, err = strconv.ParseInt(d.Name[min(len(streamPrefix), len(d.Name)):], 16, 64)
	if raw := d.Value.Data; err == nil && len(raw) >= 9 {
		it.Kind, it.At = model.ItemKind(raw[0]), model.Time(binary.BigEndian.Uint64(raw[1:]))
		it.Value = model.Payload{Data: raw[9:], Encoding: d.Value.Encoding}
	}
	if err != nil || !it.Kind.Streamed() {
		return it, fault.New(fault.Corrupt, "task %q of run %s has a streamed item %q that cannot be read", d.Task, d.Run, d.Name)
	}
	return it, nil
}

// TaskMark counts what a task has written outside its history. It is stored in the same commit as
// the writes that it counts.
type TaskMark struct {
	Claim int64      // the last claim that wrote
	Seq   int64      // the number of the last item of that claim
	Lines int64      // lines that the task has logged
	Items int64      // number of streamed items, which is also the position of the last one
	At    model.Time // time of the last line or item
}

// Datum encodes the mark.
func (m *TaskMark) Datum(key RunKey, task string) TaskDatum {
	data := make([]byte, 0, 24)
	for _, n := range [...]int64{m.Claim, m.Seq, m.Lines, m.Items, int64(m.At)} {
		data = binary.AppendVarint(data, n)
	}
	return TaskDatum{RunKey: key, Task: task, Name: markName, Value: model.Payload{Data: data, Encoding: "mark"}}
}

// Mark decodes the mark. It returns false if the datum is not a mark.
func (d *TaskDatum) Mark() (m TaskMark, ok bool, err error) {
	if d.Name != markName {
		return m, false, nil
	}
	rest := d.Value.Data
	for _, to := range [...]*int64{&m.Claim, &m.Seq, &m.Lines, &m.Items, (*int64)(&m.At)} {
		v, n := binary.Varint(rest)
		if n <= 0 {
			return m, true, fault.New(fault.Corrupt, "cannot read the row that counts the writes of task %q of run %s", d.Task, d.Run)
		}
		*to, rest = v, rest[n:]
	}
	return m, true, nil
}
