//go:build long

package sqlite

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestLongPowerCut cuts the power 2,400 times, in loads that differ from run to run.
func TestLongPowerCut(t *testing.T) {
	t.Parallel()
	first := rand.Uint64()
	for n := range uint64(8) {
		seed := first + n
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			powerCuts(t, seed, 100)
		})
	}
}
