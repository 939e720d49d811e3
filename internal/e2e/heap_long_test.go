//go:build long

package e2e_test

import "testing"

func init() {
	hostileSizes["whole"] = hostile{input: 1 << 30}
}

// The test sends a gigabyte to one address, with the default settings: 256 MiB for inputs, and the
// default budget of histories.
func TestLongHeapUnderAGigabyte(t *testing.T) {
	for name := range heapCases {
		t.Run(name, func(t *testing.T) { measure(t, "whole", name, 256<<20+256<<20) })
	}
}
