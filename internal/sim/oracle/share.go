package oracle

import (
	"strings"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// All nodes may share limits and breakers. Nodes die, are late, or do not know whether their writes
// have taken effect. These rules must hold nevertheless:
//
//   - Over all nodes, a limit never has more holders than permits (D1). This holds for the tasks
//     that nodes have let through and still count, including tasks of dead nodes. It also holds for
//     running bodies. Tasks never start faster than the rate of the limit allows.
//   - No permit is lost (D2): every task gets its turn. When everything has ended, pages name no
//     dead node, no node wants or holds permits, and each node has leased as many permits as its
//     page says. When all nodes have left, nothing is leased.
//   - A breaker opens only if enough calls have failed, each counted once (E33). It never has more
//     probes in flight than allowed, and only one task uses each probe (E35).
//
// While users change the numbers of a limit, nodes use different numbers for a moment, and pages
// use the numbers of the last writer. The checks use the largest numbers that any node has used.

// Most returns the largest number of tasks that may hold a limit, according to any rule set that a
// node has used.
func (s *Oracle) Most(r rule.Resource) (most int) {
	for _, set := range s.Sets {
		if n, ok := set.Numbers(r); ok {
			most = max(most, n.Concurrency)
		}
	}
	return most
}

// Steady returns the numbers of a limit if they have never changed.
func (s *Oracle) Steady(r rule.Resource) (n limit.Numbers, ok bool) {
	for i, set := range s.Sets {
		m, ok := set.Numbers(r)
		if !ok || i > 0 && m != n {
			return n, false
		}
		n = m
	}
	return n, true
}

// Spent checks that tasks do not start faster than a rate allows, in any interval.
func (s *Oracle) Spent(now model.Time, ref model.TaskRef, r rule.Resource, n limit.Numbers) {
	s.Behind = max(s.Behind, int64(s.StoreTime()-now)) // now is by the node's clock
	at := s.began[r]
	at = append(at, s.Now)
	for i := range at {
		stretch := s.Now - at[i] + s.Lag()
		if most := float64(max(n.Burst, 1)) + float64(stretch)*float64(n.Rate)/float64(n.Per.Microseconds()); float64(len(at)-i) > most+1e-6 {
			s.Fail("D1: %s begins at %s, and with it %d of limit %s in %d µs: %s", ref, now, len(at)-i, r, stretch, n)
		}
	}
	s.began[r] = at
}

// Lag is the largest difference between the clocks of two nodes so far, including forward
// corrections.
func (s *Oracle) Lag() int64 { return s.Behind + 2*s.skew() }

// sharedBreaker is what all nodes together have done with a breaker.
type sharedBreaker struct {
	state breaker.State
	// closed is when the breaker last closed: the last time that another state was stored
	closed int64
	failed []int64 // the start times of failed calls
	Probes []*Pass
}

// Breaker returns the expected state of a shared breaker.
func (s *Oracle) Breaker(id rule.BreakerID) *sharedBreaker {
	x := s.breakers[id]
	if x == nil {
		x = &sharedBreaker{closed: -1}
		s.breakers[id] = x
	}
	return x
}

// BreakerStored checks a breaker that opens. Enough calls must have failed, and no call may be
// counted twice.
func (s *Oracle) BreakerStored(name string, row []byte) {
	o, err := breaker.Decode(row)
	if err != nil {
		s.Fail("breaker %s: %v", name, err)
	}

	st, x := o.Status(s.StoreTime()), s.Breaker(rule.BreakerID{Tenant: scenario.Tenant, Name: name})
	if st.State == breaker.Open && x.state != breaker.Open && strings.Contains(st.Why, "failures in") {
		failures := 0
		for _, at := range x.failed {
			if at >= x.closed {
				failures++
			}
		}
		if failures < st.Config.Failures {
			s.Fail("E33: breaker %s opens, because of %s, and %d calls have failed since it was closed, of %d", name, st.Why, failures, st.Config.Failures)
		}
		s.Did(scenario.OpOpened)
	}

	if x.state == breaker.HalfOpen && st.State == breaker.Closed {
		s.Did(scenario.OpRecovered)
	}

	// The node that closes the breaker lets calls through before it has stored the new state. A
	// half-open breaker may close and open again in one write.
	since := int64(st.Since) - kernel.Epoch - s.Lag()
	switch x.state = st.State; x.state {
	case breaker.Open:
		x.closed = s.Now
	case breaker.HalfOpen:
		x.closed = since
	case breaker.Closed:
		x.closed = min(x.closed, since)
	}
}

// PassEnded records the end of a call through a breaker.
func (s *Oracle) PassEnded(p *Pass, failed bool) {
	p.Given = true
	if failed {
		x := s.Breaker(p.Breaker)
		x.failed = append(x.failed, p.Since)
	}
}
