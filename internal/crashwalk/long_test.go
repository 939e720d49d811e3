//go:build long

package crashwalk_test

import "testing"

// TestLongCrashWalk walks through every call of all scenarios, also under the race detector.
func TestLongCrashWalk(t *testing.T) {
	t.Parallel()
	walkAll(t, 1, (*scenario).walk)
}

// TestLongTwoCrashes also kills the process that takes over.
func TestLongTwoCrashes(t *testing.T) {
	t.Parallel()
	walkAll(t, 2, (*scenario).walkTwice)
}
