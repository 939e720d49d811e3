package replay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// sim drives one random program by a list of choices.
type sim struct {
	e       *engine
	ops     []op
	p       *interp // the latest execution of the code
	choices []byte
	next    int

	signals, cancels, crashes, evictions, drops int // how often each may still happen
	lost                                        bool
	losses                                      int // restarts of the server that are left
}

func newSim(ops []op, choices []byte, faults bool) *sim {
	s := &sim{ops: ops, choices: choices, signals: 4, cancels: 1, drops: 2}
	if faults {
		s.crashes, s.evictions = 2, 2
	}
	s.e = newEngine(s.code)
	s.e.cfg.MaxSteps = []int{0, 1, 2}[len(choices)%3] // a small number makes steps wait in line
	return s
}

func (s *sim) code(x replay.Ctx, _ model.Payload) (model.Payload, error) {
	p := &interp{e: s.e}
	s.p = p
	err := p.run(x, "", s.ops)
	p.log("", "end %v", err)
	return payload("end"), err
}

func (s *sim) choose(n int) int {
	if s.next >= len(s.choices) {
		return 0
	}
	c := int(s.choices[s.next])
	s.next++
	return c % n
}

// actions returns the things that may happen next. The first of them make progress.
func (s *sim) actions() []func() {
	e := s.e
	var as []func()
	add := func(f func()) { as = append(as, f) }
	if len(e.reports) > 0 {
		add(e.apply)
	}

	news := int(e.last()) - e.told
	if news > 0 && e.held {
		add(func() { e.deliver(news) })
		add(func() { e.deliver(1) })
	}
	if e.held && e.sure < e.told {
		add(func() { e.confirm(e.told - e.sure) })
		add(func() { e.confirm(1) })
	}
	if e.mayPreview() {
		add(func() { e.preview(news) })
		add(func() { e.preview(1) })
	}

	for i := range e.bodies {
		add(func() { e.letGo(i) })
	}

	if e.held {
		for _, id := range slices.Sorted(maps.Keys(e.retries)) {
			if e.retries[id] <= int64(e.told) && !e.retried[fmt.Sprint(id, e.retries[id], e.gen)] {
				add(func() { e.retry(id) })
			}
		}
	}

	for _, id := range slices.Sorted(maps.Keys(e.children)) {
		add(func() { e.closeChild(id, "kid") })
	}
	for _, f := range e.entities() {
		add(f)
	}

	for _, id := range slices.Sorted(maps.Keys(e.tasks)) {
		for _, f := range e.fates(id) {
			add(f)
		}
	}

	for _, id := range slices.Sorted(maps.Keys(e.timers)) {
		add(func() { e.fire(id) })
	}

	if s.signals > 0 {
		add(func() { s.signals--; e.signal("s0", "x") })
		add(func() { s.signals--; e.signal("s1", "y") })
		add(func() {
			s.signals--
			e.inject(model.Event{Kind: model.EventPromiseSettled, Name: "p", Output: payload("promised")})
		})
		add(func() { s.signals--; e.inject(model.Event{Kind: model.EventWatched}) })
		for i, in := range []string{"good", "bad"} {
			add(func() {
				s.signals--
				e.inject(model.Event{Kind: model.EventUpdateReceived, Name: fmt.Sprintf("u%d", i), Input: payload(in), RequestID: fmt.Sprint(s.signals)})
			})
		}
	}

	if s.drops > 0 && e.quiet() {
		for _, seq := range e.unread() {
			add(func() { s.drops--; e.drop(seq) })
		}
	}

	if s.cancels > 0 {
		add(func() {
			s.cancels--
			e.inject(model.Event{Kind: model.EventCancelRequest, Failure: &model.Failure{Message: "why"}})
		})
	}

	if s.evictions > 0 && e.held {
		add(func() {
			s.evictions--
			s.lost = true
			e.w.Evict(e.start.Run, e.gen, "moved")
			synctest.Wait()
			for len(e.bodies) > 0 {
				e.letGo(0)
			}
			synctest.Wait()
			e.reactivate(-1)
		})
	}

	if s.evictions > 0 && e.held {
		add(func() { // bodies that ignore that they are told to end
			s.evictions--
			s.lost = true
			e.takeBack()
		})
	}

	if s.losses > 0 && e.held {
		add(func() { s.losses--; e.lose() })
	}
	if e.end == nil && e.blocked == nil && !e.held {
		add(func() { e.reactivate(-1) })
	}

	if s.crashes > 0 && e.held {
		add(func() {
			s.crashes--
			s.lost = true
			e.crash()
			e.activate(-1)
		})

		for _, seq := range e.unread() {
			if s.drops == 0 {
				break
			}
			add(func() {
				s.crashes--
				s.lost = true
				e.crash()
				// A step that depends on the signal may have settled although its turn was lost,
				// also during the crash. The code must not lose the signal after that.
				if len(e.place) == 0 {
					s.drops--
					e.drop(seq)
				}
				e.activate(-1)
			})
		}
	}

	return as
}

// run lets things happen until the run ends.
func (s *sim) run() error {
	e := s.e
	e.activate(-1)
	late := 0
	for range 3000 {
		if e.end != nil || e.blocked != nil || len(e.problems) > 0 {
			break
		}
		as := s.actions()
		if len(as) == 0 { // the run waits for something that will never happen
			if late++; late > 20 {
				break
			}
			e.signal("s0", "late")
			e.signal("s1", "late")
			continue
		}
		as[s.choose(len(as))]()
	}

	if e.released && e.cfg.Checks == nil {
		e.problem("released in the middle")
	}
	e.stop()

	if e.end != nil {
		e.consistent()
		if n := strings.Count(dump(e.events), " unlocked "); n < s.p.left {
			e.problem("%d locks are over, and the history says so of %d", s.p.left, n)
		}
	}

	switch {
	case e.err() != nil:
		return e.err()
	case e.blocked != nil:
		return errors.New("blocked: " + e.blocked.String())
	case e.end == nil:
		return fmt.Errorf("does not end, waits %v", e.waits)
	case e.end.Status == model.Failed && e.end.Failure.Kind == model.FailurePanic:
		return fmt.Errorf("%s\n%s", e.end.Failure.Message, e.end.Failure.Stack)
	}

	if !s.lost {
		for id, n := range e.ran {
			if n > 1 && !e.interrupted[id] {
				return fmt.Errorf("step %s ran %d times", id, n)
			}
		}
	}

	return nil
}

// check replays every prefix of the history and compares what the code sees.
func (s *sim) check() error {
	live := s.p.trace
	for k := range len(s.e.events) + 1 {
		if s.e.dropsBehind(int64(k)) {
			continue // the code continued only after it had seen the drop
		}
		r := newSim(s.ops, nil, false)
		r.e.events = slices.Clone(s.e.events[:k])
		r.e.cfg.IdleAfter = 1 << 60
		frozen := replay.NewWorker(replay.Config{Code: map[string]replay.Code{"wf": r.code}})
		frozen.Freeze()
		r.e.w = frozen
		frozen.Serve(r.e)
		r.e.reactivate(-1)
		trace := r.p.trace

		var end *model.Close
		for _, t := range r.e.reports {
			if t.Blocked != nil {
				r.e.stop()
				return fmt.Errorf("replay of %d events is blocked: %s", k, t.Blocked)
			}
			if t.Close != nil {
				end = t.Close
			}
		}

		r.e.stop()
		if len(r.e.ran) > 0 {
			return fmt.Errorf("replay of %d events executed a step", k)
		}
		if err := samePrefix(trace, live, k == len(s.e.events)); err != nil {
			return fmt.Errorf("replay of %d of %d events: %w", k, len(s.e.events), err)
		}

		if k == len(s.e.events) && (end == nil || end.Status != s.e.end.Status) {
			return fmt.Errorf("replay ends as %+v, live as %+v", end, s.e.end)
		}
	}

	return s.recheck()
}

// recheck lets Check replay the whole history. It checks that Check notices missing events, and
// notices if the run ends in another way.
func (s *sim) recheck() error {
	r := newSim(s.ops, nil, false)
	cfg := replay.Config{Code: map[string]replay.Code{"wf": r.code}}
	end := s.e.end
	h := &model.History{
		Start: s.e.start, Events: s.e.events, Outcome: model.Outcome{Status: end.Status, Output: end.Output, Failure: end.Failure},
	}
	if err := replay.Check(context.Background(), cfg, h); err != nil {
		return fmt.Errorf("check: %w", err)
	}

	if h.Outcome.Status++; h.Outcome.Status > model.Canceled {
		h.Outcome.Status = model.Completed
	}
	if err := replay.Check(context.Background(), cfg, h); err == nil {
		return fmt.Errorf("check takes %s for the end", h.Outcome.Status)
	}
	if len(r.e.ran) > 0 {
		return errors.New("check executed a step")
	}

	return nil
}

func samePrefix(got, want []string, whole bool) error {
	for i, line := range got {
		if i >= len(want) || line != want[i] {
			return fmt.Errorf("line %d is %q\n--- replay\n%s\n--- live\n%s", i, line, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if whole && len(got) != len(want) {
		return fmt.Errorf("the trace ends after %d of %d lines\n--- live\n%s", len(got), len(want), strings.Join(want, "\n"))
	}
	return nil
}

// simulate runs a random program and checks its history.
//
//arch:parameters a program, its schedule, and what to check
func simulate(t *testing.T, ops []op, choices []byte, faults bool, checks *replay.Checks) (s *sim, err error) {
	synctest.Test(t, func(*testing.T) {
		s = newSim(ops, choices, faults)
		s.e.cfg.Checks = checks
		if err = s.run(); err == nil {
			err = s.check()
		}
	})
	return s, err
}

// TestLiveEqualsReplay runs random programs with random schedules: events arrive at any moment,
// bodies end in any order, workers crash and runs are evicted.
func TestLiveEqualsReplay(t *testing.T) { liveEqualsReplay(t, nil) }

// TestLiveEqualsReplayTwice is TestLiveEqualsReplay with Checks.Twice, which executes the code
// twice wherever that is possible. Twice must not find mistakes or change results.
func TestLiveEqualsReplayTwice(t *testing.T) {
	liveEqualsReplay(t, &replay.Checks{Twice: true, Found: func(m replay.Mistake) {
		if !strings.Contains(m.Text, "is repeated without a key") { // random programs do that
			t.Errorf("found: %+v", m)
		}
	}})
}

func liveEqualsReplay(t *testing.T, checks *replay.Checks) {
	for _, faults := range []bool{false, true} {
		t.Run(fmt.Sprintf("faults=%v", faults), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				ops := genProgram(2).Draw(rt, "program")
				choices := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(rt, "choices")
				if s, err := simulate(t, ops, choices, faults, checks); err != nil {
					rt.Fatalf("%v\n\n%s\n\nhistory:\n%s", err, text(ops), dump(s.e.events))
				}
			})
		})
	}
}
