package crashwalk_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/replay"
)

var (
	logRuns  = flag.Bool("walk.log", false, "show what the engine logs")
	onlyKind = flag.String("walk.kind", "", "walk only this kind of fault")
	onlyAt   = flag.Int("walk.at", 0, "put the fault only at this call")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scenarios returns all scenarios.
func scenarios() []*scenario {
	return slices.Concat(stepScenarios(), timeScenarios(), termScenarios(), signalScenarios(), childScenarios(), groupScenarios(), lifeScenarios(),
		talkScenarios(), orderScenarios(), historyScenarios(), machineScenarios(), payloadScenarios(), scheduleScenarios(), taskScenarios(), entityScenarios())
}

// TestCrashWalk walks through all scenarios. With the four main kinds of faults it hits every call
// of a scenario with few calls, except in short mode. In all other cases it hits every second call,
// every third call under the race detector, or every fourth call in short mode. TestLongCrashWalk
// hits every call.
func TestCrashWalk(t *testing.T) {
	t.Parallel()
	every := 2
	switch {
	case testing.Short():
		every = 4
	case raceEnabled:
		every = 3
	}
	walkAll(t, every, (*scenario).walk)
}

func walkAll(t *testing.T, every int, walk func(s *scenario, t *testing.T, every int) (runs, faults int64)) {
	var walks, faults atomic.Int64
	began := time.Now()
	t.Run("all", func(t *testing.T) {
		for _, s := range scenarios() {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				w, f := walk(s, t, every)
				walks.Add(w)
				faults.Add(f)
			})
		}
	})
	t.Logf("%d scenarios, %d runs, %d faults, %s", len(scenarios()), walks.Load(), faults.Load(), time.Since(began).Round(time.Millisecond))
}

// smallWalk is the largest number of calls of a small scenario. The main kinds hit every call of a
// small scenario.
const smallWalk = 60

// walk runs a scenario with every kind of fault.
func (s *scenario) walk(t *testing.T, every int) (runs, faults int64) {
	plain := s.trial(t, &strike{}, nil)
	if plain.err != nil {
		t.Fatal(plain.report())
	}
	runs++
	failures := 0
	began := time.Now()

	asked := every
	for i := range kinds {
		k := &kinds[i]
		if every = asked; i < mainKinds && plain.calls <= smallWalk && !testing.Short() {
			every = 1
		}
		// In a scenario with few calls, a larger share of the calls is hit, so that each kind of
		// fault happens.
		most := plain.calls
		if k.commits {
			most = plain.commits
		}
		every = max(1, min(every, most/2))
		if *onlyKind != "" && k.name != *onlyKind {
			continue
		}

		hits, last := 0, 0
		for at := 1 + i%every; ; at += every {
			if *onlyAt > 0 {
				at = *onlyAt
			}
			last = at
			r := s.trial(t, &strike{kind: k, at: at}, plain.facts)
			runs++

			switch {
			case r.err != nil:
				t.Error(r.report())
				if failures++; failures == 3 {
					t.Fatal("and so on")
				}
			case *onlyAt > 0:
				t.Log(r.report())
			}

			if r.hit {
				hits++
				faults++
			}

			if *onlyAt > 0 || !r.hit && (k.commits && at > plain.commits || !k.commits && at > plain.calls) {
				break
			}
		}

		// One run may need fewer calls than another, because more changes share a commit. But the
		// difference must be small.
		if 4*hits*every < last && *onlyAt == 0 || hits == 0 {
			t.Errorf("%s: %d faults happened in a walk up to call %d", k.name, hits, last)
		}
	}

	t.Logf("%d calls, %d commits; %d runs, %d faults, %s", plain.calls, plain.commits, runs, faults, time.Since(began).Round(time.Millisecond))
	return runs, faults
}

// walkTwice kills a process at one call, and the process that takes over at another.
func (s *scenario) walkTwice(t *testing.T, every int) (runs, faults int64) {
	plain := s.trial(t, &strike{}, nil)
	if plain.err != nil {
		t.Fatal(plain.report())
	}
	crash := &kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == "crash after" })]
	failures := 0

	every = max(every, plain.calls/12) // the number of pairs grows like calls²
	for at := 1; at <= plain.calls; at += every {
		for then := 1 + at%every; then <= 2*plain.calls; then += every {
			r := s.trial(t, &strike{kind: crash, at: at, then: then}, plain.facts)
			runs++
			if r.hit {
				faults++
			}
			if r.err != nil {
				t.Error(r.report())
				if failures++; failures == 3 {
					t.Fatal("and so on")
				}
			}
		}
	}

	return runs, faults
}

// outcome is the result of one run of a scenario.
type outcome struct {
	s              *scenario
	strike         *strike
	hit            bool
	calls, commits int
	facts          []string
	err            error
	text           string // histories and trace of a failed run
}

func (o *outcome) report() string {
	return fmt.Sprintf("%s, %s:\n%v\n%s", o.s.name, o.strike, o.err, o.text)
}

// trial is one run with at most one fault, in its own synctest bubble.
func (s *scenario) trial(t *testing.T, st *strike, plain []string) outcome {
	return s.trialWith(t, st, plain, nil)
}

func (s *scenario) trialWith(t *testing.T, st *strike, plain []string, checks *replay.Checks) (o outcome) {
	o.s, o.strike = s, st
	// This timer uses real time. If some code spins, virtual time stops and only this timer fires.
	watchdog := time.AfterFunc(2*time.Minute, func() {
		fmt.Fprintf(os.Stderr, "%s, %s: hangs\n%s\n", s.name, st, stacks(""))
		os.Exit(2)
	})
	defer watchdog.Stop()

	defer func() {
		if p := recover(); p != nil {
			o.err = errors.Join(o.err, fmt.Errorf("goroutines are left: %v", p))
			o.text += stacks("synctest bubble")
		}
	}()

	synctest.Test(t, func(*testing.T) {
		w := newWorld(s, st)
		w.checks = checks
		o.err = w.run()
		h, err := w.verify(plain)
		if o.err == nil {
			o.err = err
		}
		o.hit, o.calls, o.commits = st.hasHappened(), st.count(), w.trace.Commits()
		if n := w.faultCount(); o.hit != (n > 0) {
			o.err = errors.Join(o.err, fmt.Errorf("the store counts %d faults, the plan says %v", n, o.hit))
		}
		if st.kind == nil && h != nil {
			o.facts = h.facts(s.ignore...)
		}
		if o.err == nil && st.kind == nil {
			o.err = w.driveAgain(h)
		}
		if o.err != nil || *logRuns {
			o.text = fmt.Sprintf("histories:\n%scalls:\n%s", h, w.trace)
		}
	})

	return o
}

// driveAgain drives the last stage once more in a new process. Nothing may change.
func (w *world) driveAgain(before *histories) error {
	if err := w.stage(&w.s.stages[len(w.s.stages)-1]); err != nil {
		return fmt.Errorf("driven once more: %w", err)
	}
	after, err := w.verify(nil)
	if err == nil {
		err = compare(before.facts(), after.facts())
	}
	if err != nil {
		return fmt.Errorf("driven once more: %w", err)
	}
	return nil
}

// stacks returns the stacks of all goroutines whose stack contains a text.
func stacks(mark string) string {
	buf := make([]byte, 8<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var b bytes.Buffer
	for stack := range bytes.SplitSeq(buf, []byte("\n\n")) {
		if bytes.Contains(stack, []byte(mark)) && b.Len() < 64<<10 {
			b.Write(stack)
			b.WriteString("\n\n")
		}
	}
	return b.String()
}
