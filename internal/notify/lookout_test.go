package notify_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/notify"
)

// watched is a lookout that looks once a second, and a count of its looks.
type watched struct {
	*notify.Lookout
	expects atomic.Bool
	looks   atomic.Int64
}

func watch(t *testing.T) *watched {
	w := &watched{Lookout: notify.NewLookout()}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx, time.Second, w.expects.Load, func(context.Context) { w.looks.Add(1) })
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return w
}

// after lets time pass and checks how often the lookout has looked.
func (w *watched) after(t *testing.T, d time.Duration, want int64) {
	t.Helper()
	before := w.looks.Load()
	time.Sleep(d)
	synctest.Wait()
	if got := w.looks.Load() - before; got != want {
		t.Errorf("it looked %d times in %s, want %d", got, d, want)
	}
}

func TestLookout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		w.after(t, time.Hour, 0) // nothing is expected
		w.LookNow()
		w.after(t, time.Hour, 1)
		w.expects.Store(true)
		w.Expect()
		w.after(t, 3*time.Second+time.Millisecond, 3)
		w.LookNow()
		w.after(t, time.Millisecond, 1)
		w.expects.Store(false)
		w.after(t, time.Hour, 1) // the look that was due finds that nothing is expected
	})
}

// Repeated calls of Expect do not postpone the next look.
func TestLookoutIsNotPutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		w.expects.Store(true)
		for range 20 {
			w.Expect()
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if got := w.looks.Load(); got < 1 || got > 2 {
			t.Errorf("it looked %d times in two seconds", got)
		}
	})
}
