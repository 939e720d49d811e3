package scenario

import "testing"

// A test of many seeds names the kinds that never occurred, so no two kinds have the same name.
func TestNamesOfCountsAreUnique(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{opNames[:], faultNames[:]} {
		seen := map[string]bool{}
		for _, name := range names {
			if name != "" && seen[name] {
				t.Errorf("two kinds are called %q", name)
			}
			seen[name] = true
		}
	}
}
