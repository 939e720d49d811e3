package feed

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// topic has the recent changes of one tenant. The lock of the hub protects it. Watchers only read,
// so they share the lock.
type topic struct {
	id     uint64
	tenant string
	// kept[from:] are the changes at the positions first to next-1.
	kept        []model.Change
	from        int
	first, next int64
	bytes       int
	watchers    int
	queues      taskQueues
	rung        chan struct{} // closed when something changes

	since time.Duration // when the last watcher left
}

// add appends a change. It drops the oldest changes beyond the bounds.
func (t *topic) add(c model.Change, most, bytes int) {
	t.kept = append(t.kept, c)
	t.bytes += c.Size()
	t.next++
	t.trim(most, bytes)
}

// trim drops the oldest changes beyond the bounds.
func (t *topic) trim(most, bytes int) {
	for t.next > t.first && (t.next-t.first > int64(most) || t.bytes > bytes) {
		t.bytes -= t.kept[t.from].Size()
		t.kept[t.from] = model.Change{} // so that the garbage collector can free its texts
		t.from++
		t.first++
	}
	// Move the remaining changes when more than half of the memory is unused, so that each change
	// moves once on average.
	if t.from > 64 && t.from > len(t.kept)/2 {
		n := copy(t.kept, t.kept[t.from:])
		clear(t.kept[n:])
		t.kept, t.from = t.kept[:n], 0
	}
}

// skip drops all changes and leaves a gap: all positions before the gap are too old.
func (t *topic) skip() {
	t.kept, t.from, t.bytes, t.queues = nil, 0, 0, taskQueues{}
	t.next++
	t.first = t.next
}

// at returns the change at a position, which must be kept.
func (t *topic) at(position int64) *model.Change { return &t.kept[t.from+int(position-t.first)] }

// ring wakes the watchers that wait.
func (t *topic) ring() {
	if t.watchers > 0 {
		close(t.rung)
		t.rung = make(chan struct{})
	}
}
