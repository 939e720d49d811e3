package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// In some simulations users misuse request ids: they send another signal under the id of an
// accepted one. What must hold: the owner refuses it, through whatever node it comes, and the
// signal is in no history. As in production, nodes forget request ids after a time: none that is
// younger, and in the end all of them.

// keepIDs is how long nodes remember request ids: longer than any user repeats a request, and
// longer than a request is in flight.
func (s *Sim) keepIDs() time.Duration { return microseconds(4*s.plan.slow + 20*second) }

// sweepEvery is how often nodes forget request ids.
const sweepEvery = 100 * millisecond

// misuse returns another signal under the id of an accepted one, or nil if there is none.
func (u *user) misuse() *op {
	s := u.s
	var first []*op
	for _, o := range s.ops {
		if m := &o.message; o.acked && m.Kind == model.MessageSignal && m.RequestID != "" && o.shadow == nil && !o.forgotten() {
			first = append(first, o)
		}
	}

	if len(first) == 0 {
		return nil
	}
	m := oneOf(s, first...).message
	m.Input = u.signal()
	if s.chance(0.5) {
		m.Name = oneOf(s, signalNames[:]...)
	}
	id := m.RequestID
	o := u.op(m)
	o.message.RequestID, o.misuses = id, true
	s.hurt(faultMisuse)

	return o
}

// checkMisuse fails if a request is accepted under an id that belongs to another one.
func (o *op) checkMisuse() {
	s := o.user.s
	if o.misuses && !o.forgotten() {
		s.fail("A1: %s was accepted, and its id belongs to another request", o)
	}
}

// forgotten reports whether the store has forgotten the first use of the request's id. Any request
// may use the id after that.
func (o *op) forgotten() bool {
	m := &o.message
	return o.user.s.ledger.forgotten[store.RequestKey{Shard: m.To.Shard(o.user.s.plan.shards), Address: m.To, ID: m.RequestID}]
}

// forget records which requests of some shards the store has forgotten, and checks that all of them
// are old.
func (l *ledger) forget(shards []model.ShardID) {
	keep := l.s.keepIDs().Microseconds()
	for k := range l.replies {
		if !slices.Contains(shards, k.Shard) {
			continue
		}
		if found, err := l.s.disk.mem.LoadReplies(background, []store.RequestKey{k}); err != nil || len(found) > 0 {
			continue
		}
		if age := int64(l.s.storeTime() - l.replied[k]); age < keep-2*l.s.skew() {
			l.fail("A2: request %s of %s is forgotten after %s, and kept for %s", k.ID, k.Address, microseconds(age), microseconds(keep))
		}
		delete(l.replies, k)
		l.forgotten[k] = true
	}
}

// sweepIDs forgets old request ids, as incarnation.sweepOnce of the engine does, and schedules the
// next sweep.
func (inc *incarnation) sweepIDs() {
	s, p := inc.p.s, inc.p
	if inc.ended {
		return
	}
	s.after(sweepEvery, p, inc.sweepIDs)
	if !p.clock.MayDelete(p.mono()) {
		return
	}

	var mine []model.ShardID
	for i := range inc.owner {
		if inc.owner[i] {
			mine = append(mine, model.ShardID(i))
		}
	}

	before := p.now().Add(-s.keepIDs())
	s.disk.call(&request{
		p: p, name: "sweep", fate: s.disk.draw(faultRepliesFails, faultRepliesFails, false),
		exec: func(done func()) {
			if n, err := s.disk.mem.Sweep(background, store.SweepRequest{Shards: mine, RequestsBefore: before, Limit: 100}); err != nil {
				s.fail("sweep: %v", err)
			} else if n > 0 {
				s.did(opSwept)
				s.ledger.forget(mine)
			}
			done()
		},
		ok: func() {}, bad: func(error) {},
	})
}

// checkForgotten waits until all request ids are old, and checks that the store has forgotten them.
func (s *Sim) checkForgotten() {
	if !s.plan.forgets || s.hard(hardClock) { // it takes too long
		return
	}

	left := func() (n int) {
		for k := range s.ledger.replies {
			if found, _ := s.disk.mem.LoadReplies(background, []store.RequestKey{k}); len(found) > 0 {
				n++
			}
		}
		return n
	}

	keep := s.keepIDs().Microseconds()
	s.runUntil(s.now+keep+keep/20+20*sweepEvery+second, nil)
	if n := left(); n > 0 {
		s.fail("A2: %d request ids are remembered for longer than %s", n, s.keepIDs())
	}
	s.did(opForgotten)
}

// heard records that the caller of a request has its answer. The caller cannot ask again under an
// id that the engine drew for it.
func (l *ledger) heard(m *model.Message) {
	if m.Drawn {
		l.told[m.RequestID] = true
	}
}

// acknowledged applies the removal of remembered answers that their callers have received.
func (l *ledger) acknowledged(keys []store.RequestKey) {
	for _, k := range keys {
		if _, refusal := strings.CutPrefix(k.ID, model.RefusedIDs); !refusal && !l.told[k.ID] {
			l.fail("A3: the answer to request %s of %s is removed, and its caller has not heard it", k.ID, k.Address)
		}
		if _, ok := l.replies[k]; ok {
			delete(l.replies, k)
			l.forgotten[k] = true
			l.s.did(opAcknowledged)
		}
	}
}
