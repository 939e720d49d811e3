package notify

import (
	"context"
	"time"
)

// Lookout is for whoever expects something that a hint would tell of. It looks when it is told to,
// and because hints may be lost, also once in a while as long as anything is expected. While
// nothing is, it sleeps.
type Lookout struct {
	now   chan struct{} // capacity 1: look now
	begun chan struct{} // capacity 1: something is expected
}

// NewLookout makes a lookout; Run has it look.
func NewLookout() *Lookout {
	return &Lookout{now: make(chan struct{}, 1), begun: make(chan struct{}, 1)}
}

// Nudge has it look now. It does not wait.
func (l *Lookout) Nudge() { ring(l.now) }

// Expect tells that something is expected: said when expects reports it already, so that it is not
// overlooked. It does not wait.
func (l *Lookout) Expect() { ring(l.begun) }

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run looks until ctx ends. After each look it asks whether anything is expected still.
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
			if asleep { // else the next look is due already, and those who come must not put it off
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
