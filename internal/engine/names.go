package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// names keeps the names of the remote workers of this process in the store, so that the next owner
// of its shards knows which workers may come back (see store.Workers). It writes many names in one
// call, and only when workers join or leave. Idle workers and hand-overs cost nothing.
type names struct {
	eng     *Engine
	home    model.NodeID
	trouble *episode.Source

	mu      sync.Mutex
	queue   []naming // in this order: the name of a worker is added before it is removed
	writing bool
	unnamed map[model.NodeID]bool // nodes of older builds that noteUnnamed has added

	written bell // rung when names were written
}

// naming is one change of the stored names. It adds a name, removes names, or removes all names of
// a process. The home identifies the process.
type naming struct {
	add    store.WorkerName
	then   func() // called when the name is durable; may be nil
	remove []string
	drop   model.NodeID
}

const (
	maxNamings  = 1000 // names that are written in one call
	namingPause = 100 * time.Millisecond
	lastNaming  = 2 * time.Second // time limit for the last write of an engine that ends
)

func newNames(e *Engine) *names {
	return &names{
		eng: e, home: model.NodeID(uuid.Must(uuid.NewV7())), trouble: e.trouble.Source("doing", "name remote workers"), unnamed: map[model.NodeID]bool{},
	}
}

// add stores a name of this process. It calls then when the name is durable.
func (n *names) add(name string, then func()) {
	n.put(naming{add: store.WorkerName{Name: name, Home: n.home}, then: then})
}

// remove removes names that this process or other processes have stored. If a name still waits to
// be written, it is not written at all, because its worker was never admitted. So workers that come
// and go while the store cannot be used leave nothing in the queue.
func (n *names) remove(all ...string) {
	waited := map[string]bool{}
	n.mu.Lock()
	n.queue = slices.DeleteFunc(n.queue, func(one naming) bool {
		waits := one.add.Name != "" && slices.Contains(all, one.add.Name)
		if waits {
			waited[one.add.Name] = true
		}
		return waits
	})
	n.mu.Unlock()

	stored := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return waited[name] })
	if len(stored) > 0 {
		n.put(naming{remove: stored})
	}
}

// drop removes all names of processes that are gone.
func (n *names) drop(homes []model.NodeID) {
	for _, home := range homes {
		n.put(naming{drop: home})
	}
}

// noteUnnamed adds one name for each server of an older build, which does not name its workers.
// This one name represents all workers of the server. No worker with that name ever comes back.
func (n *names) noteUnnamed(members []store.Member) {
	for i := range members {
		m := &members[i]
		if !m.Home.IsZero() || !mayServe(m) {
			continue
		}
		n.mu.Lock()
		known := n.unnamed[m.ID]
		n.unnamed[m.ID] = true
		n.mu.Unlock()
		if !known {
			n.put(naming{add: store.WorkerName{Name: unnamedPrefix + m.ID.String(), Home: m.ID}})
		}
	}
}

// unnamedPrefix is the prefix of names that represent all workers of a process.
const unnamedPrefix = "?"

func (n *names) put(one naming) {
	n.mu.Lock()
	n.queue = append(n.queue, one)
	n.mu.Unlock()
	n.wake()
}

// wake starts to write, unless a write is already in progress or the engine does not run yet. The
// number of sessions of the server bounds the queue.
func (n *names) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.writing && len(n.queue) > 0 {
		n.writing = n.eng.beside.run(n.write)
	}
}

// take returns the next change, and the functions to call when the change is durable. ok is false
// if there is no change, and the writing ends.
func (n *names) take() (w store.WorkerNames, then []func(), ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := min(len(n.queue), maxNamings)
	for _, one := range n.queue[:count] {
		switch {
		case one.add.Name != "":
			w.Add = append(w.Add, one.add)
		case len(one.remove) > 0:
			w.Remove = append(w.Remove, one.remove...)
		default:
			w.Drop = append(w.Drop, one.drop)
		}
		if one.then != nil {
			then = append(then, one.then)
		}
	}
	n.queue = slices.Delete(n.queue, 0, count)
	n.writing = count > 0
	return w, then, n.writing
}

// write writes until nothing is left. While the store cannot be used, workers that join get no
// work.
func (n *names) write(ctx context.Context) {
	for {
		w, then, ok := n.take()
		if !ok {
			return
		}
		for pause := namingPause; ; pause = min(2*pause, 5*time.Second) {
			brief, cancel := context.WithTimeout(ctx, n.eng.cfg.CommitTimeout)
			err := n.eng.cfg.Store.NameWorkers(brief, w)
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() == nil {
				n.trouble.Fail(err)
			}
			if !sleep(ctx, pause) {
				n.writeLast(ctx, w)
				return
			}
		}

		n.trouble.OK()
		for _, do := range then {
			do()
		}
		n.written.ring()
	}
}

// writeLast tries once more to remove the names of workers that left before the engine ended. If it
// fails, the next server waits for these workers.
func (n *names) writeLast(ctx context.Context, w store.WorkerNames) {
	n.mu.Lock()
	for _, one := range n.queue {
		w.Remove = append(w.Remove, one.remove...)
	}
	n.queue, w.Add = nil, nil // workers that have not been admitted hold nothing of this server
	n.mu.Unlock()

	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastNaming)
	defer cancel()
	if err := n.eng.cfg.Store.NameWorkers(brief, w); err != nil {
		n.eng.cfg.Log.Warn("cannot remove the names of workers that have left; the next server waits for them", "error", err)
	}
}

// entrance says whether a worker may get work. The name of the worker must be in the store before
// the worker gets work.
type entrance struct {
	// admitting is locked while the worker joins the lanes, so that a leave comes after the join.
	admitting sync.Mutex
	admitted  atomic.Bool
	withdrawn atomic.Bool
}

// isAdmitted reports whether the worker may get work. It takes no lock.
func (a *entrance) isAdmitted() bool { return a.admitted.Load() && !a.withdrawn.Load() }

// withdraw notes that the worker leaves. A worker that is not admitted yet will never be admitted.
func (a *entrance) withdraw() {
	a.admitting.Lock()
	defer a.admitting.Unlock()
	a.withdrawn.Store(true)
}

// admit lets a worker join the lanes. On a server, a remote worker joins only after its name is in
// the store. Other workers have no stored names.
func (e *Engine) admit(a *entrance, r model.RemoteMember, join func(*incarnation)) {
	enter := func() {
		a.admitting.Lock()
		defer a.admitting.Unlock()
		if a.withdrawn.Load() {
			return
		}
		a.admitted.Store(true)
		if inc := e.current(); inc != nil {
			join(inc)
		}
	}
	if r.Name == "" || e.cfg.Lane.Reunion == 0 {
		enter()
		return
	}

	e.names.add(r.Name, func() {
		enter()
		// Now the lanes know what the worker holds, and this node can answer other nodes that ask
		// what the worker holds. So no node needs to wait for the worker under its earlier names.
		if a.isAdmitted() {
			e.names.remove(r.After...)
		}
	})
}

// dismiss forgets a remote worker that has left. If this server stops and the worker still holds
// something, the name stays, because the worker keeps its work for the next server.
func (e *Engine) dismiss(r model.RemoteMember, holds bool) {
	if r.Name == "" || e.cfg.Lane.Reunion == 0 || holds && e.isStopping() {
		return
	}
	e.names.remove(r.Name)
}
