//go:build long

package crashwalk_test

import "testing"

// TestLongCrashWalk walks through every call of all scenarios, whatever the race detector costs.
func TestLongCrashWalk(t *testing.T) {
	t.Parallel()
	walkAll(t, 1, (*scenario).walk)
}

// TestLongTwoCrashes kills the process that takes over as well.
func TestLongTwoCrashes(t *testing.T) {
	t.Parallel()
	walkAll(t, 2, (*scenario).walkTwice)
}
