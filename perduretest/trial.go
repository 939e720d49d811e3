package perduretest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/crash"
	"github.com/perdure/perdure/internal/store/faultstore"
)

// trial is one run of a scenario, with at most one crash.
type trial[R any] struct {
	result   R
	problems []string

	hit       bool   // the crash has happened
	commit    string // the commit at which the crash happened
	commits   int    // total
	maxPoints int

	effects   map[string]int
	authors   map[string]string // the step that caused each effect
	executed  map[string]int    // how often the body of each step ran
	effective map[string]bool   // steps that have effects
	open      []string
	reasons   map[string]string // why each open execution is open
	histories string
}

func (r *trial[R]) hasFailed() bool { return len(r.problems) > 0 }

func (r *trial[R]) wrong(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// death is a fault plan: the process dies at one commit. Commits are counted over all processes of
// a run.
type death struct {
	at point

	mu      sync.Mutex
	commits int
	hit     bool
	what    string
}

// Next decides which fault a call to the store gets.
func (d *death) Next(c faultstore.Call) faultstore.Fault {
	if c.Method != faultstore.Commit {
		return faultstore.Fault{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.commits++; d.commits != d.at.commit {
		return faultstore.Fault{}
	}
	d.hit, d.what = true, commitText(c.Batch)
	if d.at.after {
		return faultstore.Fault{Kind: faultstore.CrashAfter}
	}
	return faultstore.Fault{Kind: faultstore.CrashBefore}
}

// runOnce runs a scenario in its own bubble.
func runOnce[R any](t *testing.T, setup func() Scenario[R], at point) *trial[R] {
	t.Helper()
	r := &trial[R]{authors: map[string]string{}, executed: map[string]int{}, effective: map[string]bool{}, reasons: map[string]string{}}
	bubble(t, func(*testing.T) {
		s := setup()
		s.Config.Once = true
		s.Config.Patience = cmp.Or(s.Config.Patience, 20*365*24*time.Hour)
		r.maxPoints = cmp.Or(s.MaxPoints, maxPoints)
		d := &death{at: at}
		w := newWorld(s.Config)
		w.plan = d
		var mu sync.Mutex
		w.found = func(text string) {
			mu.Lock()
			defer mu.Unlock()
			r.problems = append(r.problems, text)
		}

		var err error
		if r.result, err = live(w, &s); err != nil {
			mu.Lock()
			r.wrong("%v", err)
			mu.Unlock()
		}

		// Wait for bodies that outlive their process, because they may have effects.
		w.remains.Wait()
		r.conclude(w)
		if s.Check != nil && err == nil {
			if err := s.Check(); err != nil {
				r.wrong("check: %v", err)
			}
		}

		d.mu.Lock()
		defer d.mu.Unlock()
		r.hit, r.commit, r.commits = d.hit, d.what, d.commits
	})
	return r
}

// live opens one process after the other, calls Drive with it, and closes it, until a process does
// all of this without a crash.
func live[R any](w *world, s *Scenario[R]) (result R, err error) {
	defer w.patience.Stop()
	defer func() { err = errors.Join(err, w.kill()) }()
	for range maxLives {
		if err := w.kill(); err != nil {
			return result, err
		}
		err := w.open(s.Definitions)
		p, _ := w.process()
		if p.Dead() {
			continue
		}
		if err != nil {
			return result, fmt.Errorf("open: %w", err)
		}

		result, err = drive(w, s)
		synctest.Wait()
		if p, _ := w.process(); p.Dead() {
			continue
		}
		if err != nil {
			return result, fmt.Errorf("drive: %w", err)
		}

		if p, _ = w.process(); !closes(p) {
			continue
		}
		return result, nil
	}
	return result, fmt.Errorf("gave up after %d processes", maxLives)
}

// closes closes a process. It returns false if the process died before that.
func closes(p *crash.Process) bool {
	orderly, _ := p.Close() // a body that did not end in time does not matter here
	return orderly
}

// aborted carries an error out of a helper of Env that has no error result.
type aborted struct{ err error }

// drive calls Drive once.
func drive[R any](w *world, s *Scenario[R]) (result R, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, ok := p.(aborted)
			if !ok {
				panic(p)
			}
			err = a.err
		}
	}()
	return s.Drive(&Env{w: w, fatal: func(err error) { panic(aborted{err}) }})
}

// conclude collects the state of all executions and effects.
func (r *trial[R]) conclude(w *world) {
	rows, err := w.executions()
	if err != nil {
		r.wrong("%v", err)
	}

	for i := range rows {
		x := &rows[i]
		if x.Outcome.Status.Closed() {
			continue
		}
		name := addressText(x.Start.Address)
		r.open = append(r.open, name)
		switch {
		case x.Blocked != nil:
			r.reasons[name] = x.Blocked.String()
		case len(x.Waits) > 0:
			r.reasons[name] = x.Waits[0].String()
		default:
			r.reasons[name] = "could go on"
		}
	}

	r.histories = w.histories()
	w.mu.Lock()
	defer w.mu.Unlock()
	r.effects = maps.Clone(w.effects)
	for _, b := range w.bodies {
		r.executed[b.step] += b.ran
		for _, name := range b.effects {
			r.authors[name] = b.step
			r.effective[b.step] = true
		}
	}
}
