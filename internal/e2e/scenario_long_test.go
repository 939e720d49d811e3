//go:build long

package e2e_test

import "testing"

// See TestScenariosUnloaded.
func TestLongScenariosUnloaded(t *testing.T) {
	t.Parallel()
	runUnloaded(t, "postgres")
}

// See TestScenariosSealed.
func TestLongScenariosSealed(t *testing.T) {
	t.Parallel()
	runSealed(t, "postgres")
}
