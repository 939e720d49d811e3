package pool

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// How much the pool collects before it writes, and for how long.
const (
	linesAfter = time.Second            // a log line waits at most this long for further lines
	itemsAfter = 100 * time.Millisecond // the same for streamed items, which a reader may wait for

	fullItems = 64 // with this many in the queue, the pool writes without waiting
	fullBytes = 64 << 10
	mostItems = 1024 // limit in memory: further log lines are dropped, and Stream blocks
	mostBytes = 1 << 20
)

// notes holds, in order, what a task has written and the engine has not stored yet. It also holds
// the states of the task. A task has no notes before its first write or its first call of State.
// The mutex of the pool guards them.
type notes struct {
	queue  []note
	first  int64 // the number of the first note in the queue
	bytes  int
	flying int // how many notes at the front of the queue are being written
	// tried is how many notes at the front the engine may have stored already. They keep their
	// numbers even if their callers stop waiting.
	tried int
	// single is how many notes at the front the pool writes one by one, because the engine refused
	// them in one write.
	single  int
	sending chan struct{}
	timer   *time.Timer
	due     time.Time     // when the timer fires; zero if it is not armed
	room    chan struct{} // closed when there is room again; nil while no caller waits for it

	mute    bool // the engine refuses further lines of this task
	dropped int  // lines that were dropped

	// states has the states that the task has changed. If read is true, it has all states.
	states map[string]model.Payload
	read   bool
}

// note is one item to write.
type note struct {
	item model.TaskItem
	done chan error // receives the outcome; nil if no caller waits
}

// notesLocked returns the notes of a task, if the task may still write.
func (t *Task) notesLocked() (*notes, error) {
	if t.state != running || t.pool.closed {
		return nil, ErrLost
	}
	if t.notes == nil {
		t.notes = &notes{first: 1}
	}
	return t.notes, nil
}

func (n *notes) add(it model.TaskItem, done chan error) {
	n.queue = append(n.queue, note{it, done})
	n.bytes += it.Size()
}

func (n *notes) full() bool { return len(n.queue) >= mostItems || n.bytes >= mostBytes }

// Log queues a log line. It never blocks. When the engine is too slow, the pool drops lines, and
// the log of the process says how many.
func (t *Task) Log(it model.TaskItem) {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := t.notesLocked()
	if err != nil {
		return // the claim is lost
	}
	// The code of a task must not wait for its log.
	if n.mute || n.full() {
		n.dropped++
		return
	}
	n.add(it, nil)
	t.tellNotesLocked(linesAfter)
}

// Stream queues an item. It blocks while too many items are queued.
func (t *Task) Stream(ctx context.Context, it model.TaskItem) error {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()

	for {
		n, err := t.notesLocked()
		if err != nil {
			return err
		}

		if !n.full() {
			n.add(it, nil)
			t.tellNotesLocked(itemsAfter)
			return nil
		}

		// All blocked callers share one channel, which settle closes when there is room again.
		if n.room == nil {
			n.room = make(chan struct{})
		}
		room := n.room
		p.mu.Unlock()

		select {
		case <-room:
		case <-ctx.Done():
		}

		p.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Set changes a state of the task and returns once the change is durable. Everything that the task
// wrote earlier is written first. If ctx ends first, the change may or may not take place.
func (t *Task) Set(ctx context.Context, it model.TaskItem) error {
	p := t.pool
	done := make(chan error, 1)
	p.mu.Lock()

	n, err := t.notesLocked()
	if err == nil {
		n.add(it, done)
		t.tellNotesLocked(0)
	}

	p.mu.Unlock()
	if err != nil {
		return err
	}

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	// Remove the item if it was never sent. An item that was sent must stay, because the engine may
	// have stored it. The engine would then skip another item with the same number.
	if i := slices.IndexFunc(n.queue, func(o note) bool { return o.done == done }); i >= n.tried {
		n.bytes -= n.queue[i].item.Size()
		n.queue = slices.Delete(n.queue, i, i+1)
	}

	return context.Cause(ctx)
}

// State returns the value of a state as an earlier attempt or this one has set it.
func (t *Task) State(ctx context.Context, name string) (v model.Payload, ok bool, err error) {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := t.notesLocked()
	if err != nil {
		return v, false, err
	}

	if !n.read {
		p.mu.Unlock()
		states, err := t.readStates(ctx)
		p.mu.Lock()
		if err != nil {
			return v, false, lostOr(err)
		}

		// Another call may have read the states while this one had no lock.
		if !n.read {
			n.read = true
			earlier := n.states
			n.states = make(map[string]model.Payload, len(states))
			for i := range states {
				n.states[states[i].Name] = states[i].Value
			}
			for name, v := range earlier { // changed before or during the read, so never older
				n.remember(&model.TaskItem{Kind: model.ItemSet, Name: name, Value: v})
			}
		}
	}

	v, ok = n.states[name]
	return v, ok && v.Size() > 0, nil
}

func (t *Task) readStates(ctx context.Context) ([]api.TaskState, error) {
	select {
	case <-t.pool.joined:
		return t.pool.session.States(ctx, t.claim.Ref)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// remember records a changed state. A removed state stays in the map as an empty value. Until read
// is set, the engine may have further states that are not in the map.
func (n *notes) remember(it *model.TaskItem) {
	if it.Kind > model.ItemClear {
		return
	}
	if n.states == nil {
		n.states = map[string]model.Payload{}
	}

	switch it.Kind {
	case model.ItemSet:
		n.states[it.Name] = it.Value
	case model.ItemRemove:
		n.states[it.Name] = model.Payload{}
	case model.ItemClear:
		clear(n.states)
		n.read = true
	default:
	}
}

func lostOr(err error) error {
	if fault.Is(err, fault.NotOwned) {
		return ErrLost
	}
	return err
}

// tellNotesLocked schedules a write after the given time, or immediately if there are enough notes.
func (t *Task) tellNotesLocked(after time.Duration) {
	n := t.notes
	if n.sending != nil {
		return // the sender looks for more before it ends
	}

	if after == 0 || len(n.queue) >= fullItems || n.bytes >= fullBytes {
		t.sendLocked()
		return
	}

	// Wait a little for more lines or items, and write them together, because each write is one
	// commit.
	due := time.Now().Add(after)
	if !n.due.IsZero() && !due.Before(n.due) {
		return
	}
	n.due = due

	if n.timer == nil {
		n.timer = time.AfterFunc(after, t.notesDue)
	} else {
		n.timer.Reset(after)
	}
}

func (t *Task) notesDue() {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	t.notes.due = time.Time{}
	t.sendLocked()
}

// sendLocked starts the sender, unless it runs.
func (t *Task) sendLocked() {
	n, p := t.notes, t.pool
	if n.sending != nil || p.closed || len(n.queue) == 0 {
		return
	}
	n.sending = make(chan struct{})
	p.helpers.Go(t.send)
}

// send writes notes until none are left, the claim is lost, or the pool is closed. A task has one
// sender at a time, so the notes stay in order.
func (t *Task) send() {
	p, n := t.pool, t.notes
	p.mu.Lock()
	defer p.mu.Unlock()

	pause := 100 * time.Millisecond
	// The loop writes from the front of the queue. It keeps items until the engine has stored them,
	// so a failed write is repeated with the same numbers and stores nothing twice.
	for len(n.queue) > 0 && t.state != gone && p.ctx.Err() == nil {
		items, first := n.next(), n.first
		p.mu.Unlock()
		err := t.write(items, first)
		p.mu.Lock()

		switch kind := fault.KindOf(err); {
		case err == nil:
			n.settle(nil)
			pause = 100 * time.Millisecond
		case t.state == gone || kind == fault.NotOwned:
			n.giveUp(ErrLost)
		case kind == fault.Unavailable || kind == fault.Timeout || kind == fault.Canceled:
			n.flying = 0 // write again: the engine skips notes whose numbers it already has
			p.mu.Unlock()
			select {
			case <-time.After(pause):
			case <-p.ctx.Done():
			}
			p.mu.Lock()
			pause = min(2*pause, 5*time.Second)
		case n.flying > 1:
			// the engine refused several items: write them one by one, so that only the bad one
			// fails
			n.single, n.flying = n.flying, 0
		default:
			if last := n.queue[0]; last.done == nil {
				n.mute = n.mute || last.item.Kind == model.ItemLog && kind == fault.Exhausted
				p.log.Warn("the engine refused what a task wrote; it is dropped", "activity", t.claim.Spec.Kind, "kind", last.item.Kind.String(), "error", err)
			}
			n.settle(err)
		}
	}

	if len(n.queue) > 0 {
		n.giveUp(ErrLost)
	}

	t.logDroppedLocked()
	close(n.sending)
	n.sending = nil
}

// logDroppedLocked says in the log of the process how many lines the pool has dropped since the
// last call. The caller holds the lock of the pool.
func (t *Task) logDroppedLocked() {
	n := t.notes
	if n.dropped == 0 {
		return
	}
	why := "the engine was too slow"
	if n.mute {
		why = "the task has as many lines as it may have"
	}
	t.pool.log.Warn("the pool dropped log lines of a task", "activity", t.claim.Spec.Kind, "lines", n.dropped, "reason", why)
	n.dropped = 0
}

// next returns the items to write together. An item with a waiting caller is written alone.
func (n *notes) next() []model.TaskItem {
	most := min(len(n.queue), model.MaxTaskItems)
	if n.single > 0 {
		most = 1
	}

	// A caller of Set waits for its own item. Write that item alone, so that an error belongs only
	// to it.
	var items []model.TaskItem
	for size := 0; len(items) < most && size < mostBytes/2; {
		o := &n.queue[len(items)]
		if o.done != nil && len(items) > 0 {
			break
		}
		items = append(items, o.item)
		size += o.item.Size()
		if o.done != nil {
			break
		}
	}

	n.flying = len(items)
	n.tried = max(n.tried, n.flying)
	return items
}

// settle removes the items that were just written, or refused with err.
func (n *notes) settle(err error) {
	k := n.flying
	for i := range n.queue[:k] {
		o := &n.queue[i]
		n.bytes -= o.item.Size()
		if err == nil {
			n.remember(&o.item)
		}
		if o.done != nil {
			o.done <- err
		}
	}

	n.queue = slices.Delete(n.queue, 0, k)
	n.first += int64(k)
	n.flying, n.single, n.tried = 0, max(n.single-k, 0), max(n.tried-k, 0)
	if len(n.queue) == 0 {
		n.queue = nil
	}

	if n.room != nil && !n.full() {
		close(n.room)
		n.room = nil
	}
}

// giveUp drops all notes, because the claim is lost or the pool is closed.
func (n *notes) giveUp(err error) {
	n.flying = len(n.queue)
	n.settle(err)
}

// write seals the values and asks the engine to write them.
func (t *Task) write(items []model.TaskItem, first int64) error {
	p := t.pool
	select {
	case <-p.joined:
	case <-p.ctx.Done():
		return ErrShutdown
	}

	ctx, cancel := context.WithTimeout(p.ctx, beatTimeout)
	defer cancel()
	if p.cfg.Seal != nil {
		for i := range items {
			if items[i].Kind == model.ItemLog || items[i].Value.Size() == 0 {
				continue
			}
			sealed, err := t.sealValue(ctx, items[i].Value)
			if err != nil {
				return err
			}
			items[i].Value = sealed
		}
	}

	return p.session.Write(ctx, model.TaskWrite{Ref: t.claim.Ref, First: first, Items: items})
}

// flushNotes writes the remaining notes before the report ends the claim. Notes that cannot be
// written within beatTimeout are dropped.
func (p *Pool) flushNotes(t *Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := t.notes
	if n.timer != nil {
		n.timer.Stop()
	}
	t.sendLocked()
	if n.sending == nil {
		t.logDroppedLocked() // lines that the pool dropped after the last write
		return
	}

	sending := n.sending
	p.mu.Unlock()
	timeout := time.NewTimer(beatTimeout)

	select {
	case <-sending:
	case <-timeout.C:
	}

	timeout.Stop()
	p.mu.Lock()
	if left := len(n.queue); left > 0 {
		p.log.Warn("the engine did not accept in time what a task wrote; it is dropped", "activity", t.claim.Spec.Kind, "items", left)
	}
}
