package replay

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// The worker keeps successes of bodies that it told to end, but only as many as it has room for.
// When an activation takes one, or when its time is over, there is room again. Outcomes of runs
// that were lost with their server do not count.
func TestRoomForKeptSuccesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s keptAttempts
		keep := func(id string, bytes int, told bool) bool {
			key := attemptKey{step: id, number: 1}
			outcome := model.Command{Event: model.Event{Kind: model.EventStepCompleted, ID: id}}
			outcome.Event.Output.Data = make([]byte, bytes)
			s.finish(s.add(key, nil, told), outcome)
			return s.has(key)
		}
		const half = maxKeptBytes / 2

		if !keep("a", half, true) {
			t.Error("there is no room for half of the bytes")
		}
		if keep("b", half, true) {
			t.Error("there is room for more than all bytes, because an outcome is more than its output")
		}
		if !keep("a", half, true) {
			t.Error("an outcome finds no room, although it replaces an older one of the same attempt")
		}
		if !keep("lost", maxKeptBytes, false) {
			t.Error("the outcome of a lost run is bounded")
		}
		s.take(attemptKey{step: "a", number: 1})
		if !keep("c", half, true) {
			t.Error("there is no room after an activation has taken an outcome")
		}
		for i := range maxKept {
			if kept := keep(fmt.Sprint(i), 0, true); kept != (i < maxKept-1) {
				t.Fatalf("kept %d: %v", i, kept)
			}
		}

		time.Sleep(keepFor)
		synctest.Wait()
		if n := s.count.Load(); n != 0 || s.successes != 0 || s.bytes != 0 {
			t.Errorf("%d attempts remain, %d successes of %d bytes", n, s.successes, s.bytes)
		}
	})
}
