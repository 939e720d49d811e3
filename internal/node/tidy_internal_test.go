package node

import (
	"runtime"
	"testing"
)

// A server returns memory when it is quiet and has much of it to spare, and not otherwise.
func TestQuietServerReturnsMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	before := heap{allocated: 1000 * mib}
	for name, c := range map[string]struct {
		now  heap
		want bool
	}{
		"after a storm":   {heap{1001 * mib, 500 * mib, 400 * mib}, true},
		"in a storm":      {heap{1100 * mib, 500 * mib, 400 * mib}, false},
		"little to spare": {heap{1001 * mib, 500 * mib, 100 * mib}, false},
		"a small server":  {heap{1001 * mib, 4 * mib, 20 * mib}, false},
		"once large":      {heap{1001 * mib, 4 * mib, 40 * mib}, true},
	} {
		if got := c.now.shouldReturn(before); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The runtime says how much garbage there is.
func TestHeapIsRead(t *testing.T) {
	before := readHeap()
	keep := make([]byte, 64<<20)
	after := readHeap()
	if n := after.allocated - before.allocated; n < uint64(len(keep)) || n > 1<<40 {
		t.Errorf("%d bytes were allocated, want at least %d", n, len(keep))
	}
	runtime.GC()
	live := readHeap().live
	if live < uint64(len(keep)) {
		t.Errorf("%d bytes are live, want at least %d", live, len(keep))
	}
	runtime.KeepAlive(keep)
	if got := readHeap(); got.spare > 1<<40 {
		t.Errorf("%d bytes to spare", got.spare)
	}
}
