package replay_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// TestWithdrawnTimerIsNotStartedAgain replays a sleep that ended because its scope ended. The
// worker does not ask the engine for a timer.
func TestWithdrawnTimerIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(nil)
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			if err := x.WithTimeout(time.Minute).Sleep(time.Hour); !errors.Is(err, replay.ErrTimeout) {
				return payload("no timeout"), err
			}
			return payload("end"), x.Get(x.Next("go"))
		}

		e.activate(-1)
		e.settle()
		e.fire("/d1:1")
		e.settle()
		if len(e.timers) > 0 {
			t.Fatalf("timers %v", e.timers)
		}

		e.crash()
		e.activate(-1)
		e.settle()
		if len(e.timers) > 0 {
			t.Errorf("after a replay, timers %v are asked for", e.timers)
		}
		e.signal("go", "on")
		e.settle()
		e.wantClosed(t, model.Completed, "end")
		e.stop()
	})
}
