//go:build long

package cluster_test

import "testing"

// TestLongNeverTwoOwners is TestNeverTwoOwners with two slow nodes: millions of states.
func TestLongNeverTwoOwners(t *testing.T) {
	t.Parallel()
	for owner, name := range []string{"free shard", "shard of node 1", "shard of node 2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSmall(owner)
			w.fates = 1
			explore(t, w)
		})
	}
}
