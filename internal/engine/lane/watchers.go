package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

const (
	// watchFor is how long the lane tells another node of changes. The node says again that it
	// listens before that.
	watchFor        = 2 * time.Minute
	fewestListeners = 64 // addresses below which the lane does not look for nodes to forget
)

// watcher wants to hear of each commit that has something of an address. A caller of this process
// hears it once.
type watcher struct {
	token any
	node  model.NodeID
	until model.Time // when the lane forgets a node
}

// watchers knows who listens to which address. What its methods tell goes to the given output.
type watchers struct {
	at      map[model.Address][]watcher
	sweepAt int // at this number of addresses the lane looks for nodes to forget
}

// add lets a caller of this process listen.
func (ws *watchers) add(a model.Address, w watcher) {
	if ws.at == nil {
		ws.at = map[model.Address][]watcher{}
	}
	ws.at[a] = append(ws.at[a], w)
}

// addNode lets another node listen for a while.
func (ws *watchers) addNode(now model.Time, a model.Address, node model.NodeID) {
	ws.keep(a, func(w *watcher) bool { return w.node != node })
	ws.sweep(now)
	ws.add(a, watcher{node: node, until: now.Add(watchFor)})
}

// remove lets a caller listen no longer.
func (ws *watchers) remove(a model.Address, token any) {
	ws.keep(a, func(w *watcher) bool { return w.token != token })
}

// sweep forgets nodes that no longer listen. Without it, a node would stay for ever that listened
// to an address without further commits. It looks when there are twice as many addresses as the
// last time left.
func (ws *watchers) sweep(now model.Time) {
	if len(ws.at) < ws.sweepAt {
		return
	}
	for a := range ws.at {
		ws.keep(a, func(w *watcher) bool { return w.token != nil || w.until > now })
	}
	ws.sweepAt = max(2*len(ws.at), fewestListeners)
}

// keep forgets the watchers of an address that the function does not keep.
func (ws *watchers) keep(a model.Address, keep func(*watcher) bool) {
	all := ws.at[a]
	if len(all) == 0 {
		return
	}

	left := all[:0]
	for i := range all { // by index: a copy of each watcher would be an allocation
		if keep(&all[i]) {
			left = append(left, all[i])
		}
	}

	clear(all[len(left):])
	if len(left) == 0 {
		delete(ws.at, a)
	} else {
		ws.at[a] = left
	}
}

// tell tells the watchers that something of the address is durable.
func (ws *watchers) tell(out *Output, now model.Time, a model.Address) {
	ws.keep(a, func(w *watcher) bool {
		if w.token != nil {
			out.answer(Answer{Token: w.token})
			return false
		}
		if w.until > now {
			out.Hints = append(out.Hints, Hint{Node: w.node, Address: a})
		}
		return w.until > now
	})
}

// fail lets the watchers of the picked addresses look which node owns them now.
func (ws *watchers) fail(out *Output, now model.Time, pick func(model.Address) bool) {
	for _, a := range pickAddresses(ws.at, pick) {
		ws.tell(out, now, a)
		delete(ws.at, a)
	}
}
