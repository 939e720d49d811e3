package replay_test

import (
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// unread returns the positions of the signals that the code has not taken.
func (e *engine) unread() (all []int64) {
	for i := range e.events {
		switch ev := &e.events[i]; ev.Kind {
		case model.EventSignalReceived:
			all = append(all, ev.Seq)
		case model.EventSignalTaken, model.EventSignalDropped:
			all = slices.DeleteFunc(all, func(seq int64) bool { return seq == ev.Ref })
		default:
		}
	}

	return all
}

// quiet reports whether the worker can only wait for the engine. The real engine drops a signal
// only then.
func (e *engine) quiet() bool {
	return e.held && len(e.reports) == 0 && len(e.bodies) == 0 && !e.busy && e.seen >= e.news && e.told == len(e.events)
}

// drop drops a signal as an operator does.
func (e *engine) drop(seq int64) {
	e.inject(model.Event{Kind: model.EventSignalDropped, Name: e.events[seq-1].Name, Ref: seq, Seen: e.fed >= seq})
}

// dropsBehind reports whether a signal among the first k events was dropped by a later event.
func (e *engine) dropsBehind(k int64) bool {
	return slices.ContainsFunc(e.events, func(ev model.Event) bool {
		return ev.Kind == model.EventSignalDropped && ev.Ref <= k && ev.Seq > k
	})
}

// Code that runs after the drop of a signal never sees the signal: it selects the next one.
func TestDroppedSignalIsNotSelected(t *testing.T) {
	bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
		s, tt := x.Next("s"), x.Next("t")
		i, err := x.Select([]*replay.Future{s, tt})
		_, more := x.TryReceive("s")
		return say(i, err, more), nil
	}, func(e *engine) {
		e.crash()
		e.signal("s", "bad")
		e.signal("t", "good")
		e.drop(1)
		e.activate(-1)
		e.settle()
		e.wantClosed(t, model.Completed, "1 <nil> false")
	})
}

// If a signal was dropped before the code ran, no receive gets it. Two receives get the next two
// signals, in order.
func TestDroppedSignalResolvesNoReceive(t *testing.T) {
	bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
		f, g := x.Next("s"), x.Next("t")
		other := x.Go(func(x replay.Ctx) (any, error) {
			h := x.Next("s")
			err := x.Get(h)
			return string(h.Payload().Data), err
		})
		err := x.All([]*replay.Future{f, g, other})
		return say(err, string(f.Payload().Data), string(g.Payload().Data), other.Value()), nil
	}, func(e *engine) {
		e.crash()
		for _, v := range []string{"bad", "1", "2"} {
			e.signal("s", v)
		}
		e.drop(1)
		e.activate(-1)
		e.signal("t", "3")
		e.settle()
		e.wantClosed(t, model.Completed, "<nil> 1 3 2")
	})
}

// If the code has noticed a signal, it loses the signal at the place where the signal was dropped.
// Another receive got a later signal because of the dropped one, and keeps it. A replay gives the
// same result.
func TestDroppedSignalWasNoticed(t *testing.T) {
	bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
		f, g := x.Next("s"), x.Next("t")
		other := x.Go(func(x replay.Ctx) (any, error) {
			h := x.Next("s")
			err := x.Get(h)
			return string(h.Payload().Data), err
		})
		err := x.All([]*replay.Future{f, g, other})
		return say(err, string(f.Payload().Data), string(g.Payload().Data), other.Value()), nil
	}, func(e *engine) {
		for _, v := range []string{"1", "2"} { // for f, and for the other coroutine
			e.signal("s", v)
			e.deliver(1)
			e.applyAll()
		}
		e.drop(1)
		e.deliver(1)
		e.applyAll()
		e.crash()
		e.activate(-1)
		e.signal("t", "3")
		e.signal("s", "4")
		e.settle()
		e.wantClosed(t, model.Completed, "<nil> 4 3 2")
	})
}

// A worker took a signal, and its turn was lost. The signal is dropped, and the next worker
// continues without it.
func TestDroppedSignalWasTakenInALostTurn(t *testing.T) {
	bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
		tick := x.Next("tick")
		if err := x.Get(tick); err != nil {
			return "", err
		}
		s := x.Next("s")
		err := x.Get(s)
		return say(err, string(s.Payload().Data)), nil
	}, func(e *engine) {
		e.signal("s", "bad")
		e.deliver(1)
		e.applyAll() // the code has seen the signal and not taken it
		e.signal("tick", "")
		e.deliver(1) // the code takes both; the turn is lost
		e.crash()
		e.drop(1)
		e.signal("s", "good")
		e.activate(-1)
		e.settle()
		e.wantClosed(t, model.Completed, "<nil> good")
	})
}
