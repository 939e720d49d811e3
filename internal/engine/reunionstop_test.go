package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The worker of a server that died comes back to a server that stops, or dies, before it could name
// the worker in the store. The worker goes on to a third server. The third server waits until the
// worker is back, and not longer. The body continues.
func TestReunionAfterAServerThatCouldNotNameItsWorker(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(r *ring, second *member, w *far){
		"it dies": func(_ *ring, second *member, _ *far) { second.cut.Store(true) },
		"it stops": func(r *ring, second *member, w *far) {
			second.PrepareStop()
			w.lose()
			r.end(second)
		},
		"it stops, and names the worker late": func(r *ring, second *member, w *far) {
			second.PrepareStop()
			w.lose()
			second.nameless.Store(false)
			time.Sleep(10 * time.Second) // longer than the pauses between attempts to name workers
			r.end(second)
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newServers(t)
				first := r.serve()
				w := newFar(t, "w", 5*time.Minute)
				w.connect(first.Engine)
				time.Sleep(time.Second)
				r.startKeys(first, "held")
				time.Sleep(time.Second)
				free := startOf("free", "free") // no worker has its code yet
				if _, err := first.Send(t.Context(), free); err != nil {
					t.Fatal(err)
				}
				first.cut.Store(true)

				second := r.serve()
				r.ownAll(second)
				second.nameless.Store(true)
				w.connect(second.Engine)
				time.Sleep(time.Second)
				end(r, second, w)

				third := r.serve()
				r.ownAll(third)
				fresh := newFar(t, "fresh", time.Second)
				fresh.flow = "free"
				fresh.connect(third.Engine)
				time.Sleep(3 * time.Second)
				if n := fresh.bodies(); n != 0 {
					t.Errorf("%d bodies began before the worker was back", n)
				}
				back := time.Now()
				w.connect(third.Engine)
				r.finish(third, "held")
				if d := fresh.since("free").Sub(back); d < 0 || d > 2*time.Second {
					t.Errorf("the run that no worker held was given out %s after the worker was back", d)
				}
				if w.bodies() != 1 {
					t.Errorf("the body that ran was repeated: %v", w.times)
				}
				if n := r.homes(); n != 1 {
					t.Errorf("workers of %d processes are named, want 1", n)
				}
				first.cut.Store(false)
				second.cut.Store(false)
				r.close()
			})
		})
	}
}

// lose ends the session of the worker as a server does that stops.
func (f *far) lose() {
	over, cancel := context.WithCancel(f.t.Context())
	cancel()
	_ = f.line.session.Leave(over)
}

// end stops a member of the ring. The member can be closed again.
func (r *ring) end(m *member) {
	r.t.Helper()
	m.stop()
	err := <-m.done
	if err != nil {
		r.t.Error(err)
	}
	m.done <- nil
}
