package engine_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store/memory"
)

// The store's clock is set forward permanently. When the node accepts that, a task that is due by
// it does not wait for that long again.
func TestClockIsPutForward(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		e, stop := open(t, memory.New(memory.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}))
		defer stop()
		h := newHand(e, 1, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })
		if _, err := e.Send(t.Context(), submit("later", model.TaskSpec{Delay: time.Hour})); err != nil {
			t.Fatal(err)
		}
		ahead.Store(int64(time.Hour))
		began := time.Now()
		h.until(func() bool { return len(h.claims) == 1 })
		if d := time.Since(began); d > 11*time.Minute {
			t.Errorf("it begins %s after the clock was put forward", d)
		}
	})
}
