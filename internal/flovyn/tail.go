package flovyn

import (
	"context"
	"sync"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of what the door remembers about the logs of executions that get signals.
const (
	// maxTails is how many executions the door remembers.
	maxTails = 10_000
	// maxTailEvents is how many events the logs of these executions may have together.
	maxTailEvents = 200_000
)

// tail follows the log of an execution that gets signals. It computes the number of a signal, and
// the size of the log, from the events since the last signal. If it read the whole log for each
// signal, many signals would take longer and longer.
type tail struct {
	address model.Address
	events  int // how many events the journal has taken; guarded by the lock of tails

	mu      sync.Mutex
	run     model.RunID
	last    int64 // the position up to which the journal has the history
	journal *journal
	// wanted has the number of each signal that callers have sent, by request id. It is 0 while the
	// door does not know the number.
	wanted map[string]int64
	// reserved are the bytes of signals on their way to the log.
	reserved int64
}

// tails remembers tails in the two maps now and old. When now is full, its tails move to old, and
// tails forgets the tails that were in old.
type tails struct {
	mu       sync.Mutex
	now, old map[model.Address]*tail
	events   int // how many events the tails in the map now have together
}

func newTails() *tails { return &tails{now: map[model.Address]*tail{}} }

// get returns the tail of an execution.
func (s *tails) get(a model.Address) *tail {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.now[a]; t != nil {
		return t
	}
	t := s.old[a]
	if t == nil {
		t = &tail{address: a, last: -1, wanted: map[string]int64{}}
	}
	if len(s.now) >= maxTails/2 {
		s.turn()
	}
	delete(s.old, a)
	s.now[a] = t
	s.count(t, t.events)
	return t
}

// grew notes that a tail has taken events.
func (s *tails) grew(t *tail, events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.events += events
	if s.now[t.address] == t {
		s.count(t, events)
	}
}

// count counts further events of a tail in now. When there are too many, all other tails move to
// old. The caller holds the lock.
func (s *tails) count(t *tail, events int) {
	if s.events += events; s.events > maxTailEvents/2 {
		delete(s.now, t.address)
		s.turn()
		s.now[t.address], s.events = t, t.events
	}
}

// turn moves all tails from now to old, and drops the tails that were in old. The caller holds the
// lock.
func (s *tails) turn() { s.now, s.old, s.events = map[model.Address]*tail{}, s.now, 0 }

// reserve reserves room for a signal in the log, or returns why there is none.
func (t *tail) reserve(ctx context.Context, d *Door, request string, size int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	most := d.cfg.MaxLog
	// A small signal fits into the part of the log that is kept free, so there is no need to read
	// the log.
	if t.journal == nil && size > most/8 {
		if err := t.follow(ctx, d); err != nil {
			return err
		}
	}
	have := t.reserved
	if t.journal != nil {
		have += t.journal.bytes
	}
	if err := roomFor(t.address, have, size, most); err != nil {
		return err
	}

	t.reserved += size
	t.wanted[request] = 0
	return nil
}

// roomFor refuses a signal that would leave the workflow no room to end: an eighth of the log is
// kept free.
func roomFor(a model.Address, have, size, most int64) error {
	if room := most / 8 * 7; have+size > room {
		return fault.New(fault.Exhausted, "the event log of workflow execution %s has %d bytes, and a signal of %d more would exceed the limit of %d: clients read at most %d",
			a.Key, have, size, room, most)
	}
	return nil
}

// release ends a reservation.
func (t *tail) release(request string, size int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reserved -= size
	delete(t.wanted, request)
}

// number returns the number of a signal that is stored.
func (t *tail) number(ctx context.Context, d *Door, request string) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wanted[request] == 0 {
		if err := t.follow(ctx, d); err != nil {
			return 0, err
		}
	}
	if n := t.wanted[request]; n > 0 {
		return n, nil
	}
	return int64(t.journal.count), nil // another run has started in the meantime
}

// follow reads the events that came since the last look. The caller holds the lock.
func (t *tail) follow(ctx context.Context, d *Door) error {
	taken := 0
	defer func() { d.tails.grew(t, taken) }()
	r := api.HistoryRequest{Target: api.Target{Address: t.address}, After: t.last}
	for {
		page, err := d.backend.History(ctx, r)
		if err != nil {
			return err
		}
		if t.journal == nil || page.Run != t.run {
			t.run, t.last, t.journal = page.Run, -1, newJournal(t.address.Key, false)
			t.journal.bare = true
			if r.After != -1 { // another run has started in the meantime
				r.After = -1
				continue
			}
		}

		for i := range page.Events {
			t.add(&page.Events[i])
		}
		taken += len(page.Events)
		if !page.More || len(page.Events) == 0 {
			return nil
		}
		r.Target.Run, r.After = t.run, t.last
	}
}

// add takes an event. The caller holds the lock.
func (t *tail) add(e *model.Event) {
	before := t.journal.count
	t.journal.add(e)
	t.journal.records = t.journal.records[:0] // only the number of records is needed here
	t.last = e.Seq
	if _, waits := t.wanted[e.RequestID]; waits && t.journal.count > before {
		t.wanted[e.RequestID] = int64(t.journal.count)
	}
}

// sendSignal stores a signal and returns its sequence number.
func (d *Door) sendSignal(ctx context.Context, a model.Address, name string, value model.Payload) (int64, error) {
	t, id := d.tails.get(a), newID()
	size := eventSize(1<<20, signalReceived, len(name)+len(value.Data)+len(`{"signalName":"","signalValue":}`))
	if err := t.reserve(ctx, d, id, size); err != nil {
		return 0, err
	}
	defer t.release(id, size)

	if err := d.backend.Signal(ctx, api.SignalRequest{Target: api.Target{Address: a}, Name: name, Input: value, RequestID: id}); err != nil {
		return 0, err
	}
	return t.number(ctx, d, id)
}
