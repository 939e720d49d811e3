package lane

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Clients choose the names of workflows. The lane keeps no name for which no run waits.
func TestUnservedKindsAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorkers(&Config{Lanes: 1})
	for i := range 10 {
		e := &entry{address: model.Address{Tenant: "t", Type: fmt.Sprint("wf", i), Key: "k"}}
		w.strand(e)
		if len(w.unserved) != 1 {
			t.Fatalf("%d kinds wait for a worker, want one", len(w.unserved))
		}
		w.unstrand(e)
	}
	if len(w.unserved) != 0 {
		t.Errorf("the lane keeps %d kinds for which no run waits", len(w.unserved))
	}
}

// The lanes of a node look for old runs at different times, which are spread over half of the time
// between two searches.
func TestLanesLookForOldRunsAtDifferentTimes(t *testing.T) {
	t.Parallel()
	const lanes = 8
	for _, node := range []model.NodeID{{15: 1}, {8: 255, 9: 77, 15: 3}} {
		cfg := Config{Lanes: lanes, RetainEvery: time.Minute}
		cfg.Ref.Node = node
		var times []time.Duration
		for i := range lanes {
			var r retention
			cfg.Ref.Lane = i
			r.plan(&cfg, 0)
			times = append(times, r.at.Sub(0))
		}

		slices.Sort(times)
		if times[0] < cfg.RetainEvery/2 || times[lanes-1] > cfg.RetainEvery {
			t.Errorf("the lanes of %s look at %s", node, times)
		}
		for i := range times[1:] {
			if times[i+1]-times[i] < cfg.RetainEvery/2/lanes-time.Second {
				t.Errorf("the lanes of %s look at %s, want them spread evenly", node, times)
				break
			}
		}
	}
}
