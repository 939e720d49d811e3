package replay

import (
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// maxWaits bounds how many reasons a run reports, because a fan-out may wait for thousands of
// things.
const maxWaits = 16

// currentWaits returns what the run waits for, the root coroutine first.
func (m *machine) currentWaits() []model.Reason {
	var rs []model.Reason
	for n := m.coroutines.first; n != nil && len(rs) < maxWaits; n = n.next {
		c := n.value
		if c.inline != nil {
			rs = append(rs, reason(&c.inline.fut))
			continue
		}

		if !c.wait.active {
			continue
		}

		for _, f := range c.wait.pendingFutures() {
			if f.done || f.kind == futureCoroutine { // the coroutine has its own reason
				continue
			}
			// the other futures of the wait say more
			if f.kind == futureLocal && len(c.wait.pendingFutures()) > 1 {
				continue
			}
			if rs = append(rs, reason(f)); len(rs) == maxWaits {
				break
			}
		}
	}

	if len(rs) == 0 {
		rs = m.pendingWaits()
	}
	if len(m.updates) > 0 {
		rs = m.withoutHandler(rs)
	}

	// Name a running body even if no coroutine waits for it yet. Otherwise the owner would think
	// that nothing happens.
	if a := m.unawaitedStep(rs); a != nil {
		// The reasons may already name a step that waits for a limit or a breaker.
		if why := reason(&a.fut); !slices.Contains(rs, why) {
			rs = append(rs[:min(len(rs), maxWaits-1)], why)
		}
	}
	return rs
}

// withoutHandler adds the updates that have no handler yet.
func (m *machine) withoutHandler(rs []model.Reason) []model.Reason {
	for _, name := range slices.Sorted(maps.Keys(m.updates)) {
		if q := m.updates[name]; len(q.waiting) > 0 && len(rs) < maxWaits {
			rs = append(rs, model.Reason{Code: model.WaitHandler, Name: name})
		}
	}
	return rs
}

// unawaitedStep returns a step that runs or must run, if the waits do not name any such step.
func (m *machine) unawaitedStep(rs []model.Reason) (found *ask) {
	if len(m.toStart) == 0 && m.r.running.Load() == 0 || slices.ContainsFunc(rs, func(r model.Reason) bool { return r.Code == model.WaitStep }) {
		return nil
	}
	wanted := func(a *ask) bool { return a.kind == askStep && !a.fut.done && !a.withdrawn && a.step.Body != nil }
	for _, a := range m.toStart {
		if wanted(a) && (a.state != stepBackoff || a.due == 0) {
			return a
		}
	}
	for a := range m.asks.all() {
		if wanted(a) && a.state == stepRunning && (found == nil || a.id < found.id) {
			found = a
		}
	}
	return found
}

// pendingWaits returns what may wake a run in which coroutines wait only for each other, such as a
// deadline.
func (m *machine) pendingWaits() []model.Reason {
	for n := m.coroutines.first; n != nil; n = n.next {
		for s := n.value.under; s != nil; s = s.parent {
			if s.deadline != 0 && s.endError() == nil {
				return []model.Reason{{Code: model.WaitTimer, Until: s.deadline}}
			}
		}
	}
	return []model.Reason{{Code: model.WaitNothing}}
}

// reason returns why a future is not resolved.
func reason(f *Future) model.Reason {
	a := f.ask
	switch f.kind {
	case futureSignal:
		return model.Reason{Code: model.WaitSignal, Name: f.name}
	case futurePromise:
		return model.Reason{Code: model.WaitPromise, Name: f.name}
	case futureAnswer:
		return model.Reason{Code: model.WaitAnswer, Name: addressText(a.target), Detail: f.name}
	case futureLock:
		return model.Reason{Code: model.WaitLock, Name: a.section.locks[len(a.section.epochs)].EntityName()}
	case futureTimer:
		return model.Reason{Code: model.WaitTimer, Until: a.due}
	case futureChild:
		return model.Reason{Code: model.WaitChild, Name: addressText(a.target)}
	case futureStep:
		switch {
		case a.task != nil:
			return model.Reason{Code: model.WaitTask, Name: a.task.Kind, Detail: a.task.Queue}
		case a.state == stepBackoff && a.due != 0: // at 0 the step is hurried, and about to run
			return model.Reason{Code: model.WaitRetry, Name: a.name, Attempt: a.attempt + 1, Until: a.due, Detail: a.lastFailed().text}
		case a.step.Body == nil:
			return model.Reason{Code: model.WaitWorker, Name: a.name, Detail: "activity"}
		}
		if why, kept := a.passageReason(); kept {
			return why
		}
		return model.Reason{Code: model.WaitStep, Name: a.name}
	case futureLocal:
		return model.Reason{Code: model.WaitUpdate}
	case futureCoroutine, futureFailed:
	}

	return model.Reason{Code: model.WaitNothing}
}

// worthTelling reports whether the worker should report the waits immediately. Running steps
// usually end soon. If one does not, the janitor reports the waits.
func (m *machine) worthTelling() bool {
	for n := m.coroutines.first; n != nil; n = n.next {
		if !n.value.wait.active {
			continue
		}
		if n.value.wait.inbox != nil {
			return m.r.running.Load() == 0 // do not look at each future: thousands may be pending
		}
		for _, f := range n.value.wait.members {
			if !f.done && f.kind == futureStep && f.ask.state == stepRunning {
				return false
			}
		}
	}
	return true
}

// atRest reports whether no body runs and no outcome is on its way. If the run is not at rest, the
// next report usually comes soon. If no report comes, the janitor sends one.
func (m *machine) atRest() bool {
	return m.r.running.Load() == 0 && m.outstanding.Load() == 0 && m.skipped.Load() == 0
}

// quiet reports whether no body of the run runs, and every reported event has come back.
func (m *machine) quiet() bool {
	return m.live && !m.closed && m.settling == nil && m.isCommitted() && m.outstanding.Load() == 0 && m.r.bodies.Load() == 0
}

// idle reports whether the run may be released, because only an event from outside can move it. No
// body runs or must run.
func (m *machine) idle() bool {
	return m.live && !m.closed && m.settling == nil && m.isCommitted() && len(m.toStart) == 0 && m.missing == 0 &&
		m.outstanding.Load() == 0 && m.skipped.Load() == 0 && m.r.bodies.Load() == 0
}
