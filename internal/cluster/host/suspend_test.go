package host_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/cluster/host"
)

// The machine is not suspended while the test runs.
func TestSuspended(t *testing.T) {
	t.Parallel()
	first := host.Suspended()
	for range 100 {
		if d := host.Suspended() - first; d > time.Minute {
			t.Fatalf("suspended for %s between two looks", d)
		}
	}
}
