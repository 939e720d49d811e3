package replay_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// permutations returns all permutations of 0 … n-1.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}

// compositions returns all compositions of n: all ways to deliver n events in batches.
func compositions(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for first := 1; first <= n; first++ {
		for _, rest := range compositions(n - first) {
			all = append(all, append([]int{first}, rest...))
		}
	}
	return all
}

// TestAllCompletionOrders lets up to five parallel steps end in every order. The test reports and
// delivers the outcomes in batches of every possible size, and crashes the worker after every
// event. After each crash, the run must end in the same way, and the code must have seen the same
// things. With four steps, the test tries only every second batching for each order. With five
// steps, it tries one batching and one crash.
func TestAllCompletionOrders(t *testing.T) {
	pairs, most := 0, 5
	if testing.Short() {
		most = 3
	}

	for n := 1; n <= most; n++ {
		for _, kind := range []op{
			{Kind: "all", N: 9, M: n},
			{Kind: "race", N: 9, M: n},
			{Kind: "firstn", N: 1, M: n},
			{Kind: "firstn", N: 3, M: n},
			{Kind: "selectn", N: 9, M: n},
			{Kind: "par", M: n, Body: []op{{Kind: "step", N: 1}, {Kind: "step", N: 1}}},
			{Kind: "race-par", M: n, Body: []op{{Kind: "step"}, {Kind: "now"}}},
		} {
			ops := []op{kind, {Kind: "now"}, {Kind: "step", N: 1}}
			if n == 5 && kind.Kind == "par" {
				continue // two steps in each branch would take too long
			}

			for i, order := range permutations(n) {
				for j, batches := range compositions(n) {
					if n == 4 && (i+j)%2 == 1 || n == 5 && j != i%16 {
						continue
					}

					synctest.Test(t, func(t *testing.T) {
						s := newSim(ops, nil, false)
						s.e.activate(-1)
						if len(s.e.bodies) == n {
							bodies := slices.Clone(s.e.bodies)
							for _, i := range order {
								s.e.letGo(slices.Index(s.e.bodies, bodies[i]))
							}
							for _, b := range batches {
								for len(s.e.reports) > 0 {
									s.e.apply()
								}
								if news := int(s.e.last()) - s.e.told; s.e.held && news > 0 {
									s.e.deliver(min(b, news))
								}
							}
						}

						s.e.settle()
						s.e.stop()
						if err := s.checkFinished(); err != nil {
							t.Fatalf("%v %v %v: %v", kind, order, batches, err)
						}
						if err := s.check(); err != nil {
							t.Fatalf("%v %v %v: %v", kind, order, batches, err)
						}

						pairs += len(s.e.events) + 1
						for k := range len(s.e.events) {
							if n == 5 && k != i%len(s.e.events) {
								continue
							}
							r := newSim(ops, nil, false)
							r.e.events = slices.Clone(s.e.events[:k])
							r.e.remember()
							r.e.activate(-1)
							r.e.settle()
							r.e.stop()
							if err := r.checkFinished(); err != nil {
								t.Fatalf("%v %v %v, crash after %d: %v", kind, order, batches, k, err)
							}

							if n >= 4 && k%2 == 0 {
								continue // all batchings would take too long
							}
							if err := r.check(); err != nil {
								t.Fatalf("%v %v %v, crash after %d: %v", kind, order, batches, k, err)
							}
							pairs += len(r.e.events) + 1
						}
					})
				}
			}
		}
	}

	t.Logf("%d live/replay pairs", pairs)
}

// checkFinished checks how a simulated run ended.
func (s *sim) checkFinished() error {
	switch {
	case s.e.err() != nil:
		return s.e.err()
	case s.e.blocked != nil:
		return fmt.Errorf("blocked: %s", s.e.blocked)
	case s.e.end == nil:
		return fmt.Errorf("does not end, waits %v", s.e.waits)
	}
	for id, n := range s.e.ran {
		if n > 1 {
			return fmt.Errorf("step %s ran %d times", id, n)
		}
	}
	return nil
}
