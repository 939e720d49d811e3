//go:build long

package chaos_test

import (
	"slices"
	"testing"
)

// The long form of TestTwoDatabases, with 40 faults.
func TestTwoDatabasesLong(t *testing.T) {
	t.Parallel()
	shakeTown(t, 4000, slices.Repeat([]string{"kill", "restart"}, 20))
}
