package notify

import (
	"context"
	"time"
)

// Lookout looks at the store for something that a hint announces. The receiver of a hint calls
// LookNow. Hints may be lost, so the lookout also looks at regular intervals while anything is
// expected. While nothing is expected, it sleeps.
type Lookout struct {
	now   chan struct{} // capacity 1: look now
	begun chan struct{} // capacity 1: something is expected
}

// NewLookout returns a lookout; Run operates it.
func NewLookout() *Lookout {
	return &Lookout{now: make(chan struct{}, 1), begun: make(chan struct{}, 1)}
}

// LookNow makes the lookout look now. It returns without waiting for the look.
func (l *Lookout) LookNow() { ring(l.now) }

// Expect wakes the lookout, because something is expected now. The caller must call it only when
// the function expects, a parameter of [Lookout.Run], already returns true. Otherwise Run may miss
// the expectation. Expect does not block.
func (l *Lookout) Expect() { ring(l.begun) }

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run looks until ctx ends. After each look it checks whether anything is still expected.
func (l *Lookout) Run(ctx context.Context, every time.Duration, expects func() bool, look func(ctx context.Context)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	asleep := false
	for {
		if !asleep && !expects() {
			tick.Stop()
			asleep = true
		}

		select {
		case <-ctx.Done():
			return
		case <-l.begun:
			if asleep { // if it is awake, a look is already scheduled and must not be delayed
				tick.Reset(every)
				asleep = false
			}
			continue
		case <-tick.C:
		case <-l.now:
		}

		look(ctx)
	}
}
