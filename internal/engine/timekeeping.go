package engine

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/telemetry"
)

// errClockBack ends an incarnation whose time is too far ahead. In its memory, timers and deadlines
// wait for times that may be hours away.
var errClockBack = errors.New("the store's clock was set back and has stayed back")

// readClock passes a reading of the store's clock to the clock of the node, and informs the lanes
// and the membership of changes.
func (inc *incarnation) readClock(sent, got time.Duration, at model.Time) {
	verdict := inc.eng.clock.read(sent, got, at)
	inc.eng.judge(verdict)
	switch verdict.Change {
	case storeclock.Advanced:
		inc.wakeSleepers()
	case storeclock.WentBack:
		inc.end(errClockBack)
	default:
	}

	doubted, _ := inc.eng.clock.doubt()
	inc.member.Doubt(doubted, verdict.By)
}

// A node reads the store's clock a few times before it registers, and uses the reading with the
// shortest round trip.
const (
	earlyReadings = 4
	// After a reading with a round trip this short, the node needs no other.
	narrow = 5 * time.Millisecond
)

// readEarly reads the store's clock before the node uses it. The clock adopts the first reading at
// its upper bound. So the clock may be ahead by the time that the reading took, until later
// readings have slowly corrected it. The registration itself would be a bad first reading. The
// registration takes long on a busy store, and timers of runs that another node has started would
// fire too early by that time. A store with only one node needs no early reading, because all times
// come from one clock.
func (e *Engine) readEarly(ctx context.Context) (v storeclock.Verdict) {
	if e.clock.isSet() || !e.cfg.Store.Info().Shared {
		return v
	}
	var best storeclock.Reading
	for range earlyReadings {
		sent := e.clock.mono()
		view, err := e.cfg.Store.Members(ctx)
		got := e.clock.mono()
		if err != nil {
			return v // the registration will also fail, or will read the clock
		}
		if best.Got == 0 || got-sent < best.Got-best.Sent {
			best = storeclock.Reading{Sent: sent, Got: got, Store: view.Now}
		}
		if got-sent <= narrow {
			break
		}
	}
	return e.clock.read(best.Sent, best.Got, best.Store)
}

// judge logs what a reading of the store's clock has changed: one line when an episode starts and
// one when it ends.
func (e *Engine) judge(v storeclock.Verdict) {
	if v.Change != storeclock.Adopted { // at the first reading the node has no time to compare with
		e.skew.Store(int64(v.By))
	}
	log, by := e.cfg.Log, v.By.Round(time.Millisecond)

	switch v.Change {
	case storeclock.Doubted:
		e.cfg.Meter.Add(telemetry.ClockJumps, 1)
		log.Warn("the store's clock has jumped; the node uses its own clock for now, and deletes no old data", "ahead", by)
	case storeclock.Cleared:
		log.Info("the store's clock agrees with the node's again", "ahead", by)
	case storeclock.Advanced:
		log.Warn("the jump of the store's clock has lasted and is accepted; the node deletes no old data for a while", "ahead", by)
	case storeclock.WentBack:
		log.Warn("the store's clock was set back and has stayed back; the node starts over with the store's time", "ahead", by)
	case storeclock.Agrees, storeclock.Adopted:
	}
}

// keepAll tells the lanes when they must not delete anything because of its age, and when they may
// again.
func (inc *incarnation) keepAll() {
	_, may := inc.eng.clock.doubt()
	if inc.keeps == !may {
		return
	}
	inc.keeps = !may
	inc.everywhere(func(l *lane.Lane, _ model.Time) { l.KeepAll(!may) })
}

// wakeSleepers wakes everything that sleeps until a certain time, because these sleeps were
// computed before the time moved.
func (inc *incarnation) wakeSleepers() {
	inc.board.handleTimer()
	for _, s := range inc.lanes {
		s.inbox.ring()
	}
}

// resume notices that the machine was suspended. The timers of the process stood still and the
// lease may be over, so resume renews the lease immediately.
func (inc *incarnation) resume() {
	asleep := inc.eng.clock.notice()
	if asleep-inc.suspended < suspicious {
		return
	}
	inc.eng.cfg.Log.Info("the machine was suspended", "for", (asleep - inc.suspended).Round(time.Millisecond))
	inc.suspended = asleep
	inc.member.RenewNow()
	inc.wakeSleepers()
}

// awaitLease waits for the renewal of a lease that ended while the machine was suspended. It is not
// needed for safety: if other nodes have declared this node dead, fences stop its commits. It only
// saves a commit that would fail.
func (inc *incarnation) awaitLease(ctx context.Context) {
	for inc.overslept() {
		renewed := inc.renewals.listen()
		if !inc.overslept() {
			return
		}
		inc.post(func() {}) // make the members loop look at the time
		select {
		case <-renewed:
		case <-ctx.Done():
			return
		}
	}
}

// overslept reports whether the lease ended while the machine was suspended, and has not been
// renewed since.
func (inc *incarnation) overslept() bool {
	slept := inc.eng.clock.notice() - time.Duration(inc.leased.Load())

	return slept >= suspicious && !inc.isServing()
}
