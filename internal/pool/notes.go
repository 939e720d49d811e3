package pool

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// What waits before it is told, and for how long.
const (
	linesAfter = time.Second            // a line waits at most so long for others
	itemsAfter = 100 * time.Millisecond // a streamed item, for which somebody may wait, less

	fullItems = 64 // as many are told at once
	fullBytes = 64 << 10
	mostItems = 1024 // more are not kept in memory: lines are dropped, and whoever streams waits
	mostBytes = 1 << 20
)

// notes are what a task has written and the engine has not taken yet, in order. A task that writes
// nothing has none. Guarded by the mutex of the pool.
type notes struct {
	queue  []note
	first  int64 // the number of the first one
	bytes  int
	flying int // how many of the first are being told
	// how many of the first may have been written: their numbers are theirs, whatever becomes of
	// those who wait
	tried   int
	single  int // how many of the first are told one by one, because together they were refused
	sending chan struct{}
	timer   *time.Timer
	due     time.Time     // when the timer fires; zero when it does not
	room    chan struct{} // closed when there is room again; nil while nobody waits for it

	mute    bool // the engine keeps no more lines
	dropped int  // lines that were not kept

	states map[string]model.Payload // as they were read, or set since
	read   bool
}

// note is one thing that is to be told.
type note struct {
	item model.TaskItem
	done chan error // told what became of it; nil when nobody waits
}

// notesLocked are the notes of a task that may write.
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

// Log has a line told soon. It never waits: when the engine takes nothing, lines are dropped, and
// the log of the process says how many.
func (t *Task) Log(it model.TaskItem) {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := t.notesLocked()
	if err != nil {
		return // nobody has the claim any more
	}
	if n.mute || n.full() {
		n.dropped++
		return
	}
	n.add(it, nil)
	t.tellNotesLocked(linesAfter)
}

// Stream has an item told soon. It waits while too many wait already.
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

// Set changes the state of the task, and returns when that is durable. Everything that was written
// before it is told before it. When ctx ends first, it may or may not be so.
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
	// else it has a number that the engine may know
	if i := slices.IndexFunc(n.queue, func(o note) bool { return o.done == done }); i >= n.tried {
		n.bytes -= n.queue[i].item.Size()
		n.queue = slices.Delete(n.queue, i, i+1)
	}

	return context.Cause(ctx)
}

// State is the value of a state: what an earlier attempt has set, or this one.
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

		if !n.read {
			n.read = true
			earlier := n.states
			n.states = make(map[string]model.Payload, len(states))
			for i := range states {
				n.states[states[i].Name] = states[i].Value
			}
			for name, v := range earlier { // set while that was read: what was read may be older
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

// remember notes a state that has changed. One that is removed stays as an empty value, so that it
// is told from one that was not read.
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

// tellNotesLocked has notes told after a while, or at once when there are enough of them.
func (t *Task) tellNotesLocked(after time.Duration) {
	n := t.notes
	if n.sending != nil {
		return // whoever tells looks for what is next
	}

	if after == 0 || len(n.queue) >= fullItems || n.bytes >= fullBytes {
		t.sendLocked()
		return
	}

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

// sendLocked begins to tell what there is.
func (t *Task) sendLocked() {
	n, p := t.notes, t.pool
	if n.sending != nil || p.closed || len(n.queue) == 0 {
		return
	}
	n.sending = make(chan struct{})
	p.helpers.Go(t.send)
}

// send tells notes until there are none, or nobody takes them any more. It is the only one who does
// for the task, so that they stay in order.
func (t *Task) send() {
	p, n := t.pool, t.notes
	p.mu.Lock()
	defer p.mu.Unlock()

	pause := 100 * time.Millisecond
	for len(n.queue) > 0 && t.state != gone && p.ctx.Err() == nil {
		items, first := n.next(), n.first
		p.mu.Unlock()
		err := t.write(items, first)
		p.mu.Lock()

		switch kind := fault.KindOf(err); {
		case err == nil:
			n.took(nil)
			pause = 100 * time.Millisecond
		case t.state == gone || kind == fault.NotOwned:
			n.giveUp(ErrLost)
		case kind == fault.Unavailable || kind == fault.Timeout || kind == fault.Canceled:
			n.flying = 0 // it is told again: what was written is left out by its number
			p.mu.Unlock()
			select {
			case <-time.After(pause):
			case <-p.ctx.Done():
			}
			p.mu.Lock()
			pause = min(2*pause, 5*time.Second)
		case n.flying > 1: // one of them is too much: the others are not to suffer from it
			n.single, n.flying = n.flying, 0
		default:
			if last := n.queue[0]; last.done == nil {
				n.mute = n.mute || last.item.Kind == model.ItemLog && kind == fault.Exhausted
				p.log.Warn("what a task has written is not kept", "activity", t.claim.Spec.Kind, "kind", last.item.Kind.String(), "error", err)
			}
			n.took(err)
		}
	}

	if len(n.queue) > 0 {
		n.giveUp(ErrLost)
	}

	if n.dropped > 0 {
		p.log.Warn("lines that a task has logged are dropped", "activity", t.claim.Spec.Kind, "lines", n.dropped)
		n.dropped = 0
	}

	close(n.sending)
	n.sending = nil
}

// next takes those that are told together: somebody who waits for the outcome is told alone.
func (n *notes) next() []model.TaskItem {
	most := min(len(n.queue), model.MaxTaskItems)
	if n.single > 0 {
		most = 1
	}

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

// took forgets those that were told.
func (n *notes) took(err error) {
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

// giveUp forgets everything: nobody takes it any more.
func (n *notes) giveUp(err error) {
	n.flying = len(n.queue)
	n.took(err)
}

// write gives values their stored form and has the engine write them.
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
			sealed, err := t.sealed(ctx, items[i].Value)
			if err != nil {
				return err
			}
			items[i].Value = sealed
		}
	}

	return p.session.Write(ctx, model.TaskWrite{Ref: t.claim.Ref, First: first, Items: items})
}

// tellNotes tells what the task has written before its report does away with the claim. What cannot
// be told in time is left out.
func (p *Pool) tellNotes(t *Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := t.notes
	if n.timer != nil {
		n.timer.Stop()
	}
	t.sendLocked()
	if n.sending == nil {
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
		p.log.Warn("what a task has written is not heard; it is left out", "activity", t.claim.Spec.Kind, "items", left)
	}
}
