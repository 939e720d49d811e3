package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// A worker may get a *preview* of events: it gets them before the batch that stores them is
// committed. Its code continues and makes a turn, and the lane applies the turn. If the turn
// arrives while the batch is still open, both share one commit. So a workflow that locks entities,
// calls them and ends needs one commit for all of that, and sections that wait for the same locks
// overlap their commits.
//
// Nothing that depends on a preview leaves the worker except turns. No such turn has an effect
// outside the lane before the batch of the turn is committed. In particular, the worker starts no
// step, answers no query and does not release the run before the lane has confirmed the preview
// (CallConfirm).
//
// The lane gives a preview only while no step of the run runs or is about to run. So it can take
// the run from the worker without repeating a step. It does that if the store refuses the batch:
// the state of the worker is then *spoiled* by events that do not exist. The worker keeps the run
// until the lane has applied all inputs of the refused batch again, because turns that the worker
// made before the preview may have outcomes of steps. Of the turns that the worker made since, the
// lane keeps only such outcomes. Then the lane hands the run over again, and the worker replays the
// history.

// preview says what the worker of a run knows ahead of the commits.
type preview struct {
	sure  int64      // position of the last event that the worker knows to be durable
	news  int64      // position of the last of these events that the worker has to answer
	heard int64      // position that the last turn of the worker had reached or assumed
	since model.Time // when the worker got the last preview; 0 if a turn has answered it
	// gated is the last turn that waits for a step and may answer a preview. The step begins after
	// the confirmation of the preview.
	gated   *model.Turn
	takes   bool // the worker may get previews
	still   bool // the last turn said that no step runs or is about to run
	due     bool // the lane has to tell the worker that events are durable
	spoiled bool // the worker knows events that the store has refused
}

// hasPreview reports whether the worker knows events that are not confirmed to it.
func (h *holding) hasPreview() bool { return h.told > h.preview.sure }

// isSpoiled reports whether a turn depends on events that the store has refused.
func (h *holding) isSpoiled(t *model.Turn) bool { return h.preview.spoiled && t.Seen > h.preview.sure }

// previewFor gives the worker of a run the events that are not committed yet, if it may have them.
func (l *Lane) previewFor(now model.Time, e *entry) {
	h := &e.hold
	if h.free() || !h.preview.takes || l.dead != nil || l.hurried || l.recovery.careful() {
		return
	}
	// No step may run. So the worker must have answered all events that it knows to be durable: its
	// code may start a step because of them.
	if !h.preview.still || h.preview.heard < h.preview.news || len(h.retrying) > 0 || h.preview.spoiled {
		return
	}
	if h.withheld || l.mustLeave(e) || e.eviction.pending || !e.x.Open() || h.run != e.run() {
		return
	}
	events := e.untoldEvents()
	if len(events) == 0 || !l.wake(e) {
		return
	}

	h.note(events)
	h.forgetUntold()
	h.preview.since = now
	l.out.Calls = append(l.out.Calls, Call{Kind: CallPreview, Worker: h.worker, Run: h.run, Generation: h.gen, Events: events})
	if !l.slow[e.kind()] && !slices.Contains(l.open.previews, e) {
		l.open.previews = append(l.open.previews, e)
		l.open.prolong(now.Add(l.cfg.AheadWait))
	}
}

// noteUntold keeps events that the worker of the run does not know, if it takes previews.
func (h *holding) noteUntold(run model.RunID, events []model.Event) {
	if h.preview.takes && h.run == run && !h.free() {
		if len(h.untold) == 0 {
			h.untold = h.room[:0]
		}
		h.untold = append(h.untold, events)
	}
}

// forgetUntold drops the events that the worker knows from the untold ones.
func (h *holding) forgetUntold() {
	known := 0
	for _, part := range h.untold {
		if part[len(part)-1].Seq > h.told {
			break
		}
		known++
	}
	h.untold = slices.Delete(h.untold, 0, known)
}

// untoldEvents returns the events of a run that its worker does not know. It returns nil if some of
// them are missing, because the lane has held them back.
func (e *entry) untoldEvents() []model.Event {
	h := &e.hold
	var all []model.Event
	for _, part := range h.untold {
		for len(part) > 0 && part[0].Seq <= h.told {
			part = part[1:]
		}
		if all == nil {
			all = part
		} else {
			all = slices.Concat(all, part)
		}
	}
	if len(all) == 0 || all[0].Seq != h.told+1 || all[len(all)-1].Seq != e.x.Next-1 {
		return nil
	}
	return all
}

// endPreview notes that a turn has arrived. If the turn answers the last preview, the open batch no
// longer waits for a turn of the run.
func (l *Lane) endPreview(now model.Time, e *entry, t *model.Turn) {
	p := &e.hold.preview
	p.heard = t.Seen + int64(t.Ahead)
	p.still = !t.Running && len(t.Waits) > 0 && !hasCode(t.Waits, model.WaitStep)
	if p.since != 0 && hasCode(t.Waits, model.WaitStep) {
		p.gated = t
	}
	if p.since == 0 || p.heard < e.hold.news {
		return
	}

	l.awaitNoTurn(e)
	if len(l.slow) > 0 && now < p.since.Add(l.cfg.AheadWait) {
		delete(l.slow, e.kind())
	}
	p.since = 0
}

// awaitNoTurn ends the wait of the open batch for the turn of a run.
func (l *Lane) awaitNoTurn(e *entry) {
	if i := slices.Index(l.open.previews, e); i >= 0 {
		l.open.previews = slices.Delete(l.open.previews, i, i+1)
	}
}

// factsOf returns what a turn says about steps, without what its code did with events that the
// store has refused. A step that runs has begun before the preview, so its outcome does not depend
// on the preview.
func (h *holding) factsOf(t *model.Turn) *model.Turn {
	facts := model.Turn{Run: t.Run, Generation: t.Generation, Seen: h.preview.sure, Running: t.Running}
	for i := range t.Commands {
		c := &t.Commands[i]
		switch c.Event.Kind { //nolint:exhaustive // only these are outcomes of attempts
		case model.EventStepCompleted, model.EventStepFailed, model.EventAttemptFailed:
			facts.Commands = append(facts.Commands, *c)
		}
	}
	return &facts
}

// hasBegun reports whether the step that a turn waits for may have begun. It may have begun if the
// turn may answer a preview and the lane has confirmed all events that the turn has seen. The turn
// is committed now, so the lane forgets it.
func (h *holding) hasBegun(t *model.Turn) bool {
	if h.preview.gated != t {
		return false
	}
	h.preview.gated = nil
	return h.preview.sure >= t.Seen
}

// notePreview notes that events of a preview are durable. After all effects of the batch, the lane
// confirms the events to the worker with one call.
func (h *holding) notePreview(events []model.Event) {
	if last := min(h.told, events[len(events)-1].Seq); last > h.preview.sure {
		h.preview.sure, h.preview.news, h.preview.due = last, min(h.news, last), true
	}
}

// confirmPreview tells the worker which events of its preview are durable.
func (l *Lane) confirmPreview(e *entry) {
	h := &e.hold
	if !h.preview.due {
		return
	}
	h.preview.due = false
	if !h.free() && !h.preview.spoiled {
		l.out.Calls = append(l.out.Calls, Call{Kind: CallConfirm, Worker: h.worker, Run: h.run, Generation: h.gen, Durable: h.preview.sure})
	}
}

// takeSpoiled takes the run from a worker that knows events that the store has refused, and finds a
// worker for it. The lane calls it when it has applied all inputs of the refused batch again.
func (l *Lane) takeSpoiled(now model.Time, e *entry) {
	if e.hold.preview.spoiled && !e.hold.free() {
		l.takeBack(now, e, "the store has refused events of the preview of its worker")
	}
}
