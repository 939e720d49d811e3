package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

const (
	// watchFor is how long the lane informs another node of changes. The node renews its interest
	// before that.
	watchFor = 2 * time.Minute
	// With fewer addresses than this, the lane does not look for nodes to forget.
	fewestListeners = 64
)

// watcher is a caller or a node that the lane informs of commits that change an address. A node is
// informed of each commit, a caller of this process only of the first.
type watcher struct {
	token any
	node  model.NodeID
	until model.Time // when the lane forgets a node
}

// watchers knows which callers and nodes watch which address. Its methods add answers to the given
// output.
type watchers struct {
	at      map[model.Address][]watcher
	sweepAt int // at this number of addresses the lane looks for nodes to forget
}

// add lets a caller of this process watch.
func (ws *watchers) add(a model.Address, w watcher) {
	if ws.at == nil {
		ws.at = map[model.Address][]watcher{}
	}
	ws.at[a] = append(ws.at[a], w)
}

// addNode lets another node watch for a while.
func (ws *watchers) addNode(now model.Time, a model.Address, node model.NodeID) {
	ws.keep(a, func(w *watcher) bool { return w.node != node })
	ws.sweep(now)
	ws.add(a, watcher{node: node, until: now.Add(watchFor)})
}

// remove ends the watch of a caller.
func (ws *watchers) remove(a model.Address, token any) {
	ws.keep(a, func(w *watcher) bool { return w.token != token })
}

// sweep forgets nodes that no longer watch. Without the sweep, a node that watched an address
// without further commits would stay forever. The sweep runs when there are twice as many addresses
// as the last sweep left.
func (ws *watchers) sweep(now model.Time) {
	if len(ws.at) < ws.sweepAt {
		return
	}
	for a := range ws.at {
		ws.keep(a, func(w *watcher) bool { return w.token != nil || w.until > now })
	}
	ws.sweepAt = max(2*len(ws.at), fewestListeners)
}

// keep forgets the watchers of an address for which the function returns false.
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

// tell informs the watchers that a change of the address is durable.
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

// fail makes the watchers of the picked addresses look for the new owner.
func (ws *watchers) fail(out *Output, now model.Time, pick func(model.Address) bool) {
	for _, a := range pickAddresses(ws.at, pick) {
		ws.tell(out, now, a)
		delete(ws.at, a)
	}
}
