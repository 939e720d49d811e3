package lane

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
)

const (
	// how long the lane informs another node about an address; the node also checks the store every
	// second
	awaitFor = 10 * time.Minute
	// with fewer addresses than this, the lane does not look for nodes to forget
	fewestSweep = 1024
)

// waiter waits for the end of an execution, or for an answer of its code. The waiter is either a
// caller of this process, or another node.
type waiter struct {
	token any
	node  model.NodeID
	run   model.RunID // a certain run; zero for the end of the chain of runs
	// reply is the id of the request whose answer the waiter waits for. It is empty if the waiter
	// waits for the end.
	reply string
	drawn bool // no other caller knows that id
	// early says that the start or update of the waiter itself is not committed yet. So the waiter
	// must not get the end of an earlier run.
	early bool
	begun model.RunID // the run that its own start has begun, once that is committed; else zero
	until model.Time  // when the lane forgets another node; zero for a caller of this process
}

// tell gives the waiter an answer. A node gets a hint instead, and looks at the store.
func (w *waiter) tell(out *Output, a model.Address, run model.RunID, answer Answer) {
	if w.node.IsZero() {
		answer.Token = w.token
		out.answer(answer)
		return
	}
	out.Hints = append(out.Hints, Hint{Node: w.node, Address: a, Run: run})
}

// moved returns the answer to a waiter that must ask elsewhere for the end of a run.
func (w *waiter) moved(err error) Answer {
	return Answer{Begun: !w.begun.IsZero(), Answer: model.Answer{Run: w.begun}, Err: err}
}

// waiters knows which callers wait for which address. Its methods add answers to the given output.
type waiters struct {
	at      map[model.Address][]waiter
	sweepAt int // at this number of addresses the lane looks for nodes to forget
}

func newWaiters() waiters { return waiters{at: map[model.Address][]waiter{}} }

// add lets a caller of this process wait.
func (ws *waiters) add(a model.Address, w waiter) { ws.at[a] = append(ws.at[a], w) }

// addNode lets another node wait. Its callers come and go unnoticed, so the lane forgets the node
// after a while.
func (ws *waiters) addNode(now model.Time, a model.Address, w waiter) {
	w.until = now.Add(awaitFor)
	for i := range ws.at[a] {
		if o := &ws.at[a][i]; o.node == w.node && o.run == w.run && o.reply == w.reply {
			o.until = w.until
			return
		}
	}
	ws.sweep(now)
	ws.add(a, w)
}

// sweep forgets nodes whose time is over. It runs when there are twice as many addresses as the
// last sweep left.
func (ws *waiters) sweep(now model.Time) {
	if len(ws.at) < ws.sweepAt {
		return
	}
	for a := range ws.at {
		ws.remove(a, func(w *waiter) bool { return w.until != 0 && w.until <= now })
	}
	ws.sweepAt = max(2*len(ws.at), fewestSweep)
}

// remove forgets the waiters of an address that the function picks.
func (ws *waiters) remove(a model.Address, pick func(*waiter) bool) {
	all := ws.at[a]
	if len(all) == 0 {
		return
	}

	left := all[:0]
	for i := range all { // by index: a copy of each waiter would be an allocation
		if !pick(&all[i]) {
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

// forget ends the wait of a caller. If the caller waited for the answer to a request, forget
// returns the id of that request, and whether another caller waits for the same answer.
func (ws *waiters) forget(a model.Address, token any) (request string, shared bool) {
	ws.remove(a, func(w *waiter) bool {
		if w.token != token {
			return false
		}
		request = w.reply
		return true
	})
	if request != "" {
		shared = slices.ContainsFunc(ws.at[a], func(w waiter) bool { return w.reply == request })
	}
	return request, shared
}

// find returns the waiter with the token, or nil if the caller has cancelled the wait.
func (ws *waiters) find(a model.Address, token any) *waiter {
	all := ws.at[a]
	for i := range all {
		if all[i].token == token {
			return &all[i]
		}
	}
	return nil
}

// end answers the waiters for the end of a run. If the run was the last of its chain, it also
// answers the waiters for the end of the chain.
func (ws *waiters) end(out *Output, a model.Address, run model.RunID, o *model.Outcome) {
	ws.remove(a, func(w *waiter) bool {
		if w.early || w.reply != "" || w.run != run && (!w.run.IsZero() || o.Status == model.Continued) {
			return false
		}
		w.tell(out, a, run, Answer{Result: &Result{Run: run, Outcome: *o}})
		return true
	})
}

// reply answers the waiters for the answer to a request. It returns true if one of them is the only
// caller that knows the request id, so that no caller can ask for the answer again.
func (ws *waiters) reply(out *Output, a model.Address, id string, answer Answer) (last bool) {
	ws.remove(a, func(w *waiter) bool {
		if w.early || w.reply != id {
			return false
		}
		w.tell(out, a, answer.Answer.Run, answer)
		if w.token != nil {
			last = w.drawn
		}
		return true
	})
	return last
}

// stop tells all waiters of a run why they get neither the end of the run nor an answer of its
// code. Other nodes get a hint, and look at the store again.
func (ws *waiters) stop(out *Output, a model.Address, err error) {
	ws.remove(a, func(w *waiter) bool {
		if w.early {
			return false
		}
		w.tell(out, a, w.run, Answer{Err: err})
		return true
	})
}

// endRemoved answers the waiters of an address that an operator removed. If again is set, another
// run may be the current one. In that case waiters for the end also get this answer, and ask again.
func (ws *waiters) endRemoved(out *Output, a model.Address, err error, again bool) {
	ws.remove(a, func(w *waiter) bool {
		if w.early || w.reply == "" && !again {
			return false
		}
		w.tell(out, a, model.RunID{}, w.moved(err))
		return true
	})
}

// fail tells the waiters of the picked addresses that this lane will not answer them. A waiter
// whose start is not committed learns this from the answer to the start. A request whose sender
// waits for an answer is already stored. So when the sender repeats the request with the same id,
// it waits for the same answer.
func (ws *waiters) fail(out *Output, pick func(model.Address) bool, err error) {
	for _, a := range pickAddresses(ws.at, pick) {
		ws.remove(a, func(w *waiter) bool {
			switch {
			case w.early:
				return false
			case w.reply != "":
				out.answer(Answer{Token: w.token, Err: ErrNotOwner})
			default:
				answer := w.moved(err)
				answer.Token = w.token
				out.answer(answer)
			}
			return true
		})
	}
}

// pickAddresses returns the picked keys of a map in a deterministic order.
func pickAddresses[V any](m map[model.Address]V, pick func(model.Address) bool) []model.Address {
	var picked []model.Address
	for a := range m {
		if pick(a) {
			picked = append(picked, a)
		}
	}
	slices.SortFunc(picked, compareAddresses)
	return picked
}
