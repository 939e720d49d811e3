package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Written counts the states, log lines and streamed items of a task, which are stored outside the
// history of its run. The zero value belongs to a task that has written nothing.
type Written struct {
	Claim int64          // the last claim that wrote
	Seq   int64          // the number of the last item of that claim
	Lines int64          // lines that the task has logged
	Items int64          // items that it has streamed; also the position of the last one
	At    model.Time     // time of the last line or item
	Sizes map[string]int // bytes of each state, including its name
	Bytes int            // bytes of all states
}

// TaskChange is what a write changes.
type TaskChange struct {
	States  []StateChange    // in order; the last change of a name wins
	Lines   []model.TaskItem // log lines, with their stored times
	Items   []model.StreamItem
	Dropped []int64 // positions of streamed items that are no longer kept
}

// StateChange sets a state to a value, or removes it.
type StateChange struct {
	Name    string
	Value   model.Payload
	Removed bool
}

// Write applies the items that a claim writes, except the items that it has applied before. If an
// item exceeds a bound, Write returns an error and applies none of the items. news says whether
// Write has applied an item. If so, the caller must store the change and w together.
func (w *Written) Write(in *model.TaskWrite, now model.Time) (c TaskChange, news bool, err error) {
	next := *w
	next.Sizes = maps.Clone(w.Sizes)

	// A later claim numbers its items from the beginning again. An earlier claim has lost the task
	// and must not write.
	switch {
	case in.Ref.Claim < w.Claim:
		return c, false, fault.New(fault.NotOwned, "%s: a later claim has written already", in.Ref.TaskRef)
	case in.Ref.Claim > w.Claim:
		next.Claim, next.Seq = in.Ref.Claim, 0
	}

	// If First is zero, the items have no numbers, and none of them is a repetition.
	for i := range in.Items {
		number := next.Seq + 1
		if in.First != 0 {
			number = in.First + int64(i)
		}
		if number <= next.Seq {
			continue
		}
		next.Seq, news = number, true
		if err := next.add(&c, &in.Items[i], now); err != nil {
			return TaskChange{}, false, fmt.Errorf("%s: %w", in.Ref.TaskRef, err)
		}
	}

	if news {
		*w = next
	}
	return c, news, nil
}

// add applies one item.
func (w *Written) add(c *TaskChange, it *model.TaskItem, now model.Time) error {
	switch it.Kind {
	case model.ItemSet:
		return w.set(c, it)
	case model.ItemRemove:
		w.remove(c, it.Name)
	case model.ItemClear:
		for _, name := range slices.Sorted(maps.Keys(w.Sizes)) {
			w.remove(c, name)
		}
	case model.ItemLog:
		if w.Lines++; w.Lines > model.MaxLogLines {
			return fault.New(fault.Exhausted, "the task has logged %d lines, more are not kept", model.MaxLogLines)
		}
		line := *it
		line.At = w.time(it.At, now)
		c.Lines = append(c.Lines, line)
	case model.ItemToken, model.ItemProgress, model.ItemData, model.ItemError:
		w.Items++
		c.Items = append(c.Items, model.StreamItem{Position: w.Items, Kind: it.Kind, At: w.time(it.At, now), Value: it.Value})
		if w.Items > model.KeptStreamItems {
			c.Dropped = append(c.Dropped, w.Items-model.KeptStreamItems)
		}
	}

	return nil
}

// time returns the time of an item: the time that its worker gives, but never before the last item
// and never in the future. The store orders log lines by time, and lines of the same time by
// commit. So a line never comes before a line that a reader has already seen.
func (w *Written) time(at, now model.Time) model.Time {
	if at == 0 || at > now {
		at = now
	}
	w.At = max(w.At, at)
	return w.At
}

// set gives a state a value, within the bounds of the task.
func (w *Written) set(c *TaskChange, it *model.TaskItem) error {
	size := len(it.Name) + it.Value.Size()
	was, there := w.Sizes[it.Name]
	switch {
	case !there && len(w.Sizes) >= model.MaxTaskStates:
		return fault.New(fault.Exhausted, "the task has %d states already, more are not kept", len(w.Sizes))
	case w.Bytes-was+size > model.MaxTaskStateBytes:
		return fault.New(fault.Exhausted, "with state %q all states of the task would have %d bytes, at most %d are kept", it.Name, w.Bytes-was+size, model.MaxTaskStateBytes)
	}
	if w.Sizes == nil {
		w.Sizes = map[string]int{}
	}
	w.Sizes[it.Name] = size
	w.Bytes += size - was
	c.States = append(c.States, StateChange{Name: it.Name, Value: it.Value})
	return nil
}

// remove removes a state if it exists.
func (w *Written) remove(c *TaskChange, name string) {
	if was, there := w.Sizes[name]; there {
		delete(w.Sizes, name)
		w.Bytes -= was
		c.States = append(c.States, StateChange{Name: name, Removed: true})
	}
}
