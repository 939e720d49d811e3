package core

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// fewSignals is the largest number of signals that needs no index by name.
const fewSignals = 64

// Signals returns the number of signals that the code has not taken.
func (x *Execution) Signals() int { return len(x.signals) }

// addSignal adds a signal that the code has not taken.
func (x *Execution) addSignal(e *model.Event) {
	x.signals = append(x.signals, *e)
	switch {
	case x.named != nil:
		x.named[e.Name]++
	case len(x.signals) > fewSignals:
		x.named = map[string]int{}
		for i := range x.signals {
			x.named[x.signals[i].Name]++
		}
	}
}

// dropSignal removes the signal at an index.
func (x *Execution) dropSignal(i int) {
	if x.named != nil {
		name := x.signals[i].Name
		if x.named[name]--; x.named[name] == 0 {
			delete(x.named, name)
		}
	}
	x.signals = slices.Delete(x.signals, i, i+1)
}

// signal returns the index of the signal at a position of the history, or -1.
// Signals are sorted by position.
func (x *Execution) signal(seq int64) int {
	i, found := slices.BinarySearchFunc(x.signals, seq, func(e model.Event, seq int64) int { return cmp.Compare(e.Seq, seq) })
	if !found {
		return -1
	}

	return i
}

// signalsOf counts the signals of a name that the code has not taken.
func (x *Execution) signalsOf(name string) (n int) {
	if x.named != nil {
		return x.named[name]
	}
	for i := range x.signals {
		if x.signals[i].Name == name {
			n++
		}
	}

	return n
}

// allSignals bounds the signals of all names together: half of the events of a history, or
// lim.Signals if that is more. When the code continues as new, the history of the next run begins
// with these signals, and must have room for more events.
func (lim Limits) allSignals() int { return max(lim.Signals, int(lim.Events/2)) }

// floodReason returns why the run may not hold further signals; empty when it may. Each name has
// its own bound, so that signals that the code never takes do not block signals of other names.
func (x *Execution) floodReason(further []model.Event, lim Limits) string {
	for i := range further {
		name, n := further[i].Name, 0
		for j := range further[:i+1] {
			if further[j].Name == name {
				n++
			}
		}
		if have := x.signalsOf(name); have+n > lim.Signals {
			return fmt.Sprintf("execution %s holds %d unread signals %q: at most %d of one name may wait", x.Start.Address, have, name, lim.Signals)
		}
	}
	if len(x.signals)+len(further) > lim.allSignals() {
		return fmt.Sprintf("execution %s holds %d unread signals: at most %d of all names may wait", x.Start.Address, len(x.signals), lim.allSignals())
	}

	return x.nameFullReason(further, lim)
}

// bytesPerName bounds the bytes of unread signals of one name: three quarters of what may wait.
func (lim Limits) bytesPerName() int { return lim.Unread / 4 * 3 }

// nameFullReason returns why the unread signals of a name would have too many bytes together with
// the further signals; empty when they would not. It adds up the bytes of a name only when many
// bytes wait in all. If a name has no unread signals yet, only the bound for all messages applies
// to it.
func (x *Execution) nameFullReason(further []model.Event, lim Limits) string {
	if lim.Unread == 0 || x.unread+bytesOf(further) <= lim.bytesPerName() {
		return ""
	}
	for i := range further {
		name := further[i].Name
		have := bytesNamed(x.signals, name)
		if size := bytesNamed(further[:i+1], name); have > 0 && have+size > lim.bytesPerName() {
			return fmt.Sprintf("execution %s holds %d bytes of unread signals %q: at most %d of one name may wait", x.Start.Address, have, name, lim.bytesPerName())
		}
	}
	return ""
}

// bytesNamed returns the bytes of the signals of a name.
func bytesNamed(signals []model.Event, name string) (n int) {
	for i := range signals {
		if signals[i].Name == name {
			n += signals[i].Size()
		}
	}
	return n
}

// overflowReason returns why a run may not begin with the signals that it has; empty when it may.
func (x *Execution) overflowReason(lim Limits) string {
	if n := len(x.signals); n > lim.allSignals() {
		return fmt.Sprintf("the past of %s has %d signals that were not taken: a run may hold %d", x.Start.Address, n, lim.allSignals())
	}
	if len(x.signals) <= lim.Signals {
		return ""
	}
	for i := range x.signals {
		if name := x.signals[i].Name; x.signalsOf(name) > lim.Signals {
			return fmt.Sprintf("the past of %s has %d signals %q that were not taken: a run may hold %d of one name",
				x.Start.Address, x.signalsOf(name), name, lim.Signals)
		}
	}

	return ""
}

// receive records a signal, or refuses it.
func (x *Execution) receive(d *Decision, now model.Time, e model.Event, lim Limits) {
	e.Kind = model.EventSignalReceived
	if why := x.floodReason([]model.Event{e}, lim); why != "" {
		d.refuse(fault.Exhausted, why)
		return
	}
	if x.admit(d, &e, lim) {
		x.append(d, now, e)
	}
}
