package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// janitor runs on one goroutine per worker and looks for idle and stuck runs.
func (w *Worker) janitor() {
	defer w.goroutines.Done()
	every := min(max(w.cfg.IdleAfter/8, 10*time.Millisecond), 250*time.Millisecond)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	idle := int64(w.cfg.IdleAfter / every)
	stuck := max(int64(w.cfg.StuckAfter/every), 1)

	var runs []*run
	without := restAfter // how many times in a row there was no run
	for {
		if without >= restAfter && w.mayRest() { // an idle process sleeps
			ticker.Stop()
			select {
			case <-w.ctx.Done():
				return
			case <-w.attention:
			}
			ticker.Reset(every)
		}

		select {
		case <-w.ctx.Done():
			return
		case <-ticker.C:
			w.tick.Add(1)
		case <-w.attention:
		}

		runs = w.snapshot(runs[:0])
		without++
		if len(runs) > 0 {
			without = 0
		}
		now, seen := w.tick.Load(), w.stirs.Load()
		due := len(runs) == 0
		for _, r := range runs {
			due = r.inspect(now, idle, stuck) || due
		}
		if len(runs) > w.cfg.MaxLoaded {
			w.releaseOldest(runs)
			due = true
		}
		clear(runs[len(runs):cap(runs)])

		if !due && w.cfg.Checks != nil {
			ticker.Stop()
			if !w.doze(seen) {
				return
			}
			ticker.Reset(every)
		}
	}
}

// doze waits until something happens to a run, in a test of users' code. In such a test a body may
// run for years of virtual time, and looking four times in each second of them would take hours.
// seen is the value of stirs before the janitor looked at the runs. doze returns false if the
// worker is closed.
func (w *Worker) doze(seen int64) bool {
	w.dozing.Store(true)
	defer w.dozing.Store(false)
	if w.stirs.Load() != seen {
		return true
	}
	select {
	case <-w.ctx.Done():
		return false
	case <-w.attention:
		return true
	}
}

// stir tells a janitor that may doze that a run has changed.
func (w *Worker) stir() {
	if w.cfg.Checks == nil {
		return
	}
	w.stirs.Add(1)
	if w.dozing.Load() {
		w.alert()
	}
}

// alert wakes the janitor.
func (w *Worker) alert() {
	select {
	case w.attention <- struct{}{}:
	default:
	}
}

// restAfter is how many times the janitor must find no run before it sleeps. Waking it costs more
// than a look. A worker that gets one run after the other has no run for short moments, in which
// the janitor should not sleep.
const restAfter = 8

// mayRest reports whether the janitor may sleep. If so, the next run wakes it.
func (w *Worker) mayRest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting = len(w.runs) == 0
	return w.resting
}

// inspect looks at one run. It reports what the run waits for, if the worker has not reported that
// yet. Otherwise it releases a run that has been parked for a long time. It also reports code that
// blocks. It returns whether the janitor has to look again even if nothing happens to the run.
func (r *run) inspect(now, idle, stuck int64) (due bool) {
	r.mu.Lock()
	if r.busy {
		return r.inspectBusy(now, stuck)
	}

	m := r.m
	age := now - r.lastUsed.Load()
	switch {
	case r.evicted || r.released || len(r.inbox) > 0:
	// Code has run since the last report of the waits, and has stopped: report the waits now.
	case (m.untold || m.unanswered || r.retell) && !m.closed && age > 0:
		m.untold, m.tell = m.untold || r.retell, true
		r.busy, r.retell = true, false
		r.mu.Unlock()
		m.turnOver(nil, false)
		return true
	case age >= idle && m.idle():
		r.releaseLocked()
		return true
	default:
		due = m.idle() || (m.untold || m.unanswered || r.retell) && !m.closed
	}

	r.mu.Unlock()
	return due
}

// inspectBusy looks at a run while one of its goroutines executes. The caller holds the lock of the
// run, and inspectBusy unlocks it. It returns the same as inspect.
func (r *run) inspectBusy(now, stuck int64) (due bool) {
	m := r.m
	var t model.Turn
	switch c := m.active.Load(); {
	case r.evicted:
	// A long inline body: report that the run is in this step.
	case r.inline != nil:
		due = r.since != 0
		if due && now-r.since > 0 {
			r.since = 0
			t.Waits = []model.Reason{{Code: model.WaitStep, Name: r.inline.name}}
		}
	// Workflow code has run for a long time without parking: it blocks outside of durable calls.
	case c != nil && now-m.since.Load() >= stuck && r.stuck != m.since.Load()+1:
		r.stuck = m.since.Load() + 1
		t.Waits = []model.Reason{{Code: model.WaitStuck, Detail: r.w.stackOf(c)}}
	default:
		due = c == nil || r.stuck != m.since.Load()+1
	}

	r.mu.Unlock()
	if t.Waits == nil {
		return due
	}
	if w := t.Waits[0]; w.Code == model.WaitStuck {
		r.reportStuck(w.Detail)
	}
	t.Running = true // a body runs, or may run soon
	t.Run, t.Generation, t.Seen = r.start.Run, r.generation, m.seen.Load()
	if err := r.w.report(t); err != nil {
		r.logRefused(err)
	}
	return due
}

// releaseOldest releases parked runs, least recently used first, until at most MaxLoaded runs are
// loaded.
func (w *Worker) releaseOldest(runs []*run) {
	excess := len(runs) - w.cfg.MaxLoaded
	slices.SortFunc(runs, func(a, b *run) int { return cmp.Compare(a.lastUsed.Load(), b.lastUsed.Load()) })
	for pass := range 2 { // the first pass counts the runs that are already leaving
		for _, r := range runs {
			if excess <= 0 {
				return
			}
			r.mu.Lock()
			leaving := r.evicted || r.released
			switch {
			case pass == 0 && leaving:
				excess--
			case pass == 1 && !leaving && !r.busy && len(r.inbox) == 0 && r.m.idle():
				r.releaseLocked()
				excess--
				continue
			}
			r.mu.Unlock()
		}
	}
}

// stackOf returns the stack of a coroutine's goroutine. It dumps all goroutines, so it is only for
// reports.
func (w *Worker) stackOf(c *Coroutine) string {
	buf := make([]byte, 1<<20)
	for len(buf) < 64<<20 {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}

	mark := []byte(fmt.Sprintf("replay.(*Coroutine).main(%p", c))
	for stack := range bytes.SplitSeq(buf, []byte("\n\n")) {
		if bytes.Contains(stack, mark) {
			return trimStack(string(stack))
		}
	}

	return "unknown"
}

// trimStack keeps the frames of user code, and cuts off the frames of this package that called it.
func trimStack(s string) string {
	if i := strings.Index(s, "github.com/perdure/perdure/internal/replay.(*machine).callRoot"); i > 0 {
		s = s[:i]
	} else if i := strings.Index(s, "github.com/perdure/perdure/internal/replay.(*Coroutine).call("); i > 0 {
		s = s[:i]
	}
	return model.Cut(strings.TrimSpace(s), model.MaxErrorText)
}
