//go:build long

package e2e_test

import (
	"flag"
	"testing"
	"time"
)

var (
	stormSize = flag.Int("storm", 100_000, "timers of TestLongTimerStorm that are due at the same moment")
	stormLate = flag.Duration("late", 10*time.Second, "by how much others may be late at p99")
)

// `make storm` runs this on an idle machine. A million timers are due at the same moment: each
// fires once, and an unrelated timer is late by at most a second at p99 during the storm. Next to
// other tests there are fewer timers, but still more than fit into memory.
func TestLongTimerStorm(t *testing.T) {
	for _, kind := range durable { // one after the other, because the test measures time
		t.Run(kind, func(t *testing.T) {
			newSite(t, kind).storm(*stormSize, 30*time.Second, *stormLate)
		})
	}
}
