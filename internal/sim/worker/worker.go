package worker

import (
	"slices"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// DrawVersion gives a worker a version, if the plan pins workflows to versions.
func (w *Worker) DrawVersion() {
	s := w.Oracle
	switch {
	case !s.Plan.Pins:
	case s.Chance(0.1):
		w.Offer.Version = scenario.Unpinned
	default:
		w.SetVersion(kernel.OneOf(s, scenario.Versions[:]...))
	}
}

// SetVersion gives a worker a version, and makes it offer all its workflows as pinned.
func (w *Worker) SetVersion(v string) { w.Offer.Version, w.Offer.Pinned = v, w.Offer.Workflows }

// Pins reports whether the code of the worker pins a workflow.
func (w *Worker) Pins(workflow string) bool { return slices.Contains(w.Offer.Pinned, workflow) }

// pin binds a run that has no version to the version of its worker, if the worker pins the
// workflow.
func (h *Hold) pin(cs *[]model.Command, eventful *int) {
	if h.pinning || h.m.Pin != "" || !h.w.Pins(h.m.Start.Address.Type) {
		return
	}
	h.pinning = true
	*eventful++
	*cs = append(*cs, model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventPinned, ID: "pin", Name: h.w.Offer.Version}})
}

// retained adds the retention of the program to the end of a run.
func (h *Hold) retained(end *model.Close) *model.Close {
	if end == nil || h.m.Program.Retain == 0 {
		return end
	}
	c := *end
	c.Retain = h.m.Program.Retain
	return &c
}

// Worker runs programs in a process.
type Worker struct {
	Oracle  *oracle.Oracle
	Process *kernel.Process
	Host    host
	ID      lane.WorkerID
	Offer   model.Offer
	Kept    bool // it has kept work although no slot was free, so it may exceed its slots
	Bad     bool // the worker cannot run any program
	Leaving bool
	gone    bool
	Held    map[model.RunID]*Hold
	kept    map[model.RunID][]*body // bodies that the worker has kept since it lost its server
	Joined  model.Time              // when the worker joined its server, by the clock of the server
}

// host is the process of a worker, as the worker sees it.
type host interface {
	// Now is the process's estimate of store time.
	Now() model.Time
	// Serves reports whether the process has a node.
	Serves() bool
	// Lanes returns the number of lanes of the node, or 0 if there is no node.
	Lanes() int
	// Post hands an input to a lane of the current node. A generation says which lane created it.
	// That lane may belong to an earlier node of the process, so Post uses the lane of the current
	// node that has the same index. Post returns false if there is no node, or if the lane has
	// ended.
	Post(generation uint64, do func(now model.Time, l *lane.Lane)) bool
	// Tell hands an input to all lanes, if there is a node.
	Tell(do func(now model.Time, l *lane.Lane))
	// Follow does the same after the reports that have been posted before.
	Follow(do func(now model.Time, l *lane.Lane))
	// Begins checks that the body of a step may start; since is when the run was handed over.
	Begins(run model.RunID, b, a, attempt int, since model.Time)
	// Dismiss removes a worker that has left.
	Dismiss(w *Worker)
	// Kill ends the process because of a call of an entity.
	Kill(a model.Address, deed uint64)
	// DismissTeller removes a teller that has left.
	DismissTeller(t *Teller)
	// ReplaceTeller adds a teller to the process after a while, because another one has died.
	ReplaceTeller()
}

// Leave takes a worker out of a process. From now on the worker gets no new runs. The worker leaves
// when it holds no run, and after a while in any case.
func (w *Worker) Leave() {
	s := w.Oracle
	if w.Leaving {
		return
	}
	w.Leaving = true
	if s.Tracing {
		s.Logf("%s worker %d leaves", w.Process.Name(), w.ID)
	}

	w.Host.Tell(func(now model.Time, l *lane.Lane) { l.Withdraw(now, w.ID) })
	end := s.Now + s.Between(0, 100)*kernel.Millisecond
	var wait func()
	wait = func() {
		if len(w.Held) > 0 && s.Now < end {
			s.After(2*kernel.Millisecond, w.Process, wait)
			return
		}

		w.Host.Tell(func(now model.Time, l *lane.Lane) { l.Leave(now, w.ID) })
		w.gone = true
		w.Host.Dismiss(w)
		s.Did(scenario.OpWorkerLeft)
	}

	s.After(2*kernel.Millisecond, w.Process, wait)
}

// Drop makes the worker forget the run.
func (h *Hold) Drop() {
	h.dropped = true
	delete(h.w.Held, h.run)
}

// report hands a turn to the current node. It returns false if there is no node, or if the lane has
// ended.
func (w *Worker) report(t model.Turn) bool {
	return w.Host.Post(t.Generation, func(now model.Time, l *lane.Lane) { l.Turn(now, w.ID, &t) })
}
