package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// written names the rows that one decision about a run has put into a batch. The lane always notes
// them. When the batch is durable, the lane turns them into changes, but only if a caller watches
// at that moment. So a caller that begins to watch while the batch is in flight misses nothing.
type written struct {
	address *model.Address
	task    *model.TaskSpec // the spec, if the address is a task without a workflow
	run     model.RunID     // the run that the decision is about
	removed []model.RunID
	dead    *core.DeadTaskChange
	// Indexes of rows in the batch; -1 for none.
	start, close int32
	// Ranges of rows in the batch: the index of the first row, and the index after the last row.
	events, deaths [2]int32
}

// place returns a written whose indexes point to the ends of the lists of rows in the batch. The
// lane calls place before it writes a decision into the batch, so that the indexes are those of the
// first rows of the decision.
func (b *building) place() written {
	return written{
		start: int32(len(b.batch.Starts)), close: int32(len(b.batch.Closes)),
		events: [2]int32{int32(len(b.batch.Events))}, deaths: [2]int32{int32(len(b.batch.Dead))},
	}
}

// noteWritten notes what a decision has put into the batch since place was called.
func (b *building) noteWritten(w written, e *entry, run model.RunID, d *core.Decision) {
	if e.isEntity() || len(d.Events) == 0 && d.Start == nil && d.Close == nil && len(d.Deletes) == 0 && len(d.Dead) == 0 && d.DeadTask == nil {
		return
	}

	w.address, w.run, w.removed, w.dead = &e.address, run, d.Deletes, d.DeadTask
	if e.x != nil {
		w.task = e.x.Start.Task
	}
	if d.Start == nil {
		w.start = -1
	}
	if d.Close == nil {
		w.close = -1
	}
	w.events[1], w.deaths[1] = int32(len(b.batch.Events)), int32(len(b.batch.Dead))
	b.trail = append(b.trail, w)
}

// mark adds the mark of a run: a row that says why the run waits or is blocked.
func (b *building) mark(e *entry, row store.MarkRow) {
	b.batch.Marks = append(b.batch.Marks, row)
	b.marked = append(b.marked, &e.address)
}

// reportChanges takes a batch that is durable, and adds its changes to the output.
func (l *Lane) reportChanges(b *building, res store.Committed) {
	n := changer{to: &l.out.Changes, batch: &b.batch}
	// At these addresses a run existed before, so the store has not written the new starts.
	for _, x := range res.Existing {
		n.skip(b.batch.Starts[x.Index].Start.Run)
	}

	for i := range b.trail {
		if w := &b.trail[i]; !n.skipped[w.run] {
			n.addWritten(w)
		}
	}
	for i := range b.batch.Marks {
		if m := &b.batch.Marks[i]; !n.skipped[m.Run] {
			n.addMark(b.marked[i], m)
		}
	}

	for i := range b.batch.Entities {
		n.addEntity(&b.batch.Entities[i])
	}
	for i := range b.batch.EntityRemoves {
		n.add(model.Change{Class: model.ClassEntity, Kind: model.ChangeRemoved, Address: b.batch.EntityRemoves[i].Address, At: b.batch.At})
	}
}

// changer turns the rows of a batch into changes.
type changer struct {
	to      *[]model.Change
	batch   *store.Batch
	skipped map[model.RunID]bool
	runs    map[model.RunID]bool // runs that start or have events; nil until changed() is called
}

func (n *changer) skip(run model.RunID) {
	if n.skipped == nil {
		n.skipped = map[model.RunID]bool{}
	}
	n.skipped[run] = true
}

func (n *changer) add(c model.Change) { *n.to = append(*n.to, c) }

// addWritten adds what one decision has changed, in the order in which it happened.
func (n *changer) addWritten(w *written) {
	for _, run := range w.removed {
		c := w.change(model.ChangeRemoved)
		c.Run, c.At = run, n.batch.At
		n.add(c)
	}

	// An imported run begins and ends in one decision. Any other run that ends does so before the
	// next run of its address begins.
	ended := w.close >= 0
	if w.start >= 0 && (!ended || n.batch.Closes[w.close].Run == n.batch.Starts[w.start].Start.Run) {
		n.addStart(w)
		n.addEvents(w, ended)
		n.addClose(w)
	} else {
		n.addEvents(w, ended)
		n.addClose(w)
		n.addStart(w)
	}

	for i := w.deaths[0]; i < w.deaths[1]; i++ {
		row := &n.batch.Dead[i]
		n.addDead(model.ChangeDead, model.TaskRef{Address: row.Body.Address, Run: row.Run, ID: row.Task}, &row.Body.Spec, row.Body.At)
	}
	switch d := w.dead; {
	case d == nil:
	case d.Purged:
		n.addDead(model.ChangeRemoved, d.Ref, &d.Body.Spec, n.batch.At)
	case d.Next > d.Prev:
		n.addDead(model.ChangeRequeued, d.Ref, &d.Body.Spec, n.batch.At)
	default:
		n.addDead(model.ChangeUndone, d.Ref, &d.Body.Spec, n.batch.At)
	}
}

// change returns a change of the run.
func (w *written) change(kind model.ChangeKind) model.Change {
	c := model.Change{Class: model.ClassExecution, Kind: kind, Address: *w.address, Run: w.run}
	if isStandalone(*w.address) {
		c.Class, c.Task = model.ClassTask, model.TaskStep
		if w.task != nil {
			c.Name, c.Queue = w.task.Kind, w.task.Queue
		}
	}
	return c
}

func (n *changer) addStart(w *written) {
	if w.start < 0 {
		return
	}
	s := &n.batch.Starts[w.start].Start
	c := w.change(model.ChangeStarted)
	c.Run, c.Status, c.At = s.Run, model.Running, s.At
	c.Seq = int64(len(s.Carried))
	if s.Task == nil {
		n.add(c)
		return
	}

	c.Kind, c.Name, c.Queue = model.ChangeScheduled, s.Task.Kind, s.Task.Queue
	n.add(c)
	if s.Worker != "" {
		c.Kind = model.ChangeClaimed
		n.add(c)
	}
}

func (n *changer) addClose(w *written) {
	if w.close < 0 {
		return
	}
	row := &n.batch.Closes[w.close]
	c := w.change(model.ChangeKind(row.Outcome.Status.String()))
	c.Run, c.Status, c.At = row.Run, row.Outcome.Status, row.Outcome.At
	if w.events[0] < w.events[1] {
		c.Seq = n.batch.Events[w.events[1]-1].Event.Seq
	}
	n.add(c)
}

// addEvents adds the changes that follow from the events of a decision. If none of them is a change
// of the run itself, and the run has not ended, addEvents reports that the history has grown.
func (n *changer) addEvents(w *written, ended bool) {
	if w.events[0] == w.events[1] {
		return
	}

	said := ended
	for i := w.events[0]; i < w.events[1]; i++ {
		e := &n.batch.Events[i].Event
		if c, ok := w.taskChange(e); ok {
			n.add(c)
			said = said || isStandalone(c.Address)
		} else if kind := meaning[e.Kind]; kind != "" {
			c := w.change(kind)
			c.Status, c.Seq, c.At = model.Running, e.Seq, e.At
			n.add(c)
			said = true
		}
	}

	if !said {
		last := &n.batch.Events[w.events[1]-1].Event
		c := w.change(model.ChangeProgressed)
		c.Status, c.Seq, c.At = model.Running, last.Seq, last.At
		n.addProgress(c)
	}
}

// meaning maps an event of a run to the change that watchers see. All other events are reported as
// progress.
var meaning = map[model.EventKind]model.ChangeKind{
	model.EventPaused: model.ChangePaused, model.EventResumed: model.ChangeResumed, model.EventCancelRequest: model.ChangeCancelRequested,
}

// addProgress adds a change which says that a history has grown. Several such changes in a row
// become one.
func (n *changer) addProgress(c model.Change) {
	if all := *n.to; len(all) > 0 {
		if last := &all[len(all)-1]; last.Kind == model.ChangeProgressed && last.Run == c.Run {
			*last = c
			return
		}
	}
	n.add(c)
}

// taskChange returns the change of a task that watchers see for an event.
func (w *written) taskChange(e *model.Event) (c model.Change, ok bool) {
	kind, ok := taskMeaning[e.Kind]
	switch {
	case !ok:
		return c, false
	case e.TimedOutForGood():
		kind = model.ChangeFailed
	case e.Kind == model.EventTaskScheduled && e.Worker != "":
		kind = model.ChangeClaimed
	case e.Worker == "" && (e.Kind == model.EventStepCompleted || e.Kind == model.EventStepFailed || e.Kind == model.EventAttemptFailed):
		return c, false // the event of an inline step, which no worker has claimed
	}

	c = w.change(kind)
	c.Class, c.Task, c.Status, c.Seq, c.At = model.ClassTask, e.ID, model.Running, e.Seq, e.At
	if e.Name != "" {
		c.Name = e.Name
	}
	if e.Task != nil {
		c.Name, c.Queue = e.Task.Kind, e.Task.Queue
	}
	switch {
	case isStandalone(c.Address): // the end of the run of the task reports the status
	case kind == model.ChangeCompleted:
		c.Status = model.Completed
	case kind == model.ChangeFailed:
		c.Status = model.Failed
	}
	return c, true
}

// taskMeaning maps an event of a task to the change that watchers see.
var taskMeaning = map[model.EventKind]model.ChangeKind{
	model.EventTaskScheduled: model.ChangeScheduled, model.EventTaskClaimed: model.ChangeClaimed, model.EventTaskReturned: model.ChangeReturned,
	model.EventTaskTimedOut: model.ChangeRetrying, model.EventAttemptFailed: model.ChangeRetrying,
	model.EventStepCompleted: model.ChangeCompleted, model.EventStepFailed: model.ChangeFailed,
}

func (n *changer) addDead(kind model.ChangeKind, ref model.TaskRef, spec *model.TaskSpec, at model.Time) {
	n.add(model.Change{
		Class: model.ClassTask, Kind: kind, Address: ref.Address, Run: ref.Run, Task: ref.ID, Name: spec.Kind, Queue: spec.Queue, At: at,
	})
}

// addMark adds a change which says that a run waits or is blocked. When a run stops waiting, an
// event usually says why. There is no event if the start time of the run has come, or if the code
// of a blocked run continues. In these cases addMark reports progress.
func (n *changer) addMark(address *model.Address, m *store.MarkRow) {
	w := written{address: address, run: m.Run}
	c := w.change("")
	c.Status, c.At = model.Running, n.batch.At

	switch {
	case m.Blocked != nil:
		c.Kind, c.Reason = model.ChangeBlocked, m.Blocked.Code
		n.add(c)
	case m.Parked && len(m.Waits) > 0:
		// The event of the pause has already reported this reason.
		if why := m.Waits[0].Code; why != model.WaitPaused {
			c.Kind, c.Reason = model.ChangeWaiting, why
			n.add(c)
		}
	case !m.Parked && !n.changed(m.Run):
		c.Kind = model.ChangeProgressed
		n.add(c)
	}
}

// changed reports whether the batch has another change of a run: an event, or its start.
func (n *changer) changed(run model.RunID) bool {
	if n.runs == nil {
		n.runs = map[model.RunID]bool{}
		for i := range n.batch.Events {
			n.runs[n.batch.Events[i].Run] = true
		}
		for i := range n.batch.Starts {
			n.runs[n.batch.Starts[i].Start.Run] = true
		}
	}
	return n.runs[run]
}

func (n *changer) addEntity(row *store.EntityRow) {
	c := model.Change{Class: model.ClassEntity, Kind: model.ChangeChanged, Address: row.Entity.Address, Locked: row.Entity.Locked(), At: n.batch.At}
	switch {
	case row.Gone:
		c.Kind = model.ChangeRemoved
	case row.Prev == 0:
		c.Kind = model.ChangeCreated
	}
	n.add(c)
}
