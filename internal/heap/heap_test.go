package heap_test

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/perdure/perdure/internal/heap"
)

const megabyte = 1 << 20

// read returns a metric of the runtime.
func read(name string) uint64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// collections returns how many collections some garbage causes.
func collections(bytes int) uint64 {
	before := read("/gc/cycles/automatic:gc-cycles")
	for range bytes / megabyte {
		waste = make([]byte, megabyte)
	}
	return read("/gc/cycles/automatic:gc-cycles") - before
}

var waste, kept []byte

// settle collects garbage until the floor has seen a collection.
func settle(t *testing.T, settled func(goal uint64) bool) {
	t.Helper()
	for range 1_000 {
		runtime.GC()
		if settled(read("/gc/heap/goal:bytes")) {
			return
		}
		runtime.Gosched() // the runtime calls cleanup functions in another goroutine
	}
	t.Fatalf("the collector aims at %d bytes", read("/gc/heap/goal:bytes"))
}

// A small heap grows to the floor before it is collected. A large one is collected as without a
// floor, and so is every heap after the floor has ended.
func TestFloor(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	without := collections(512 * megabyte)

	f := heap.Keep(128 * megabyte)
	settle(t, func(goal uint64) bool { return goal > 100*megabyte && goal < 140*megabyte })
	if with := collections(512 * megabyte); with > without/4 {
		t.Errorf("%d collections with a floor, %d without", with, without)
	}

	kept = make([]byte, 256*megabyte)
	settle(t, func(goal uint64) bool { return goal > 500*megabyte && goal < 600*megabyte })
	kept = nil
	settle(t, func(goal uint64) bool { return goal > 100*megabyte && goal < 140*megabyte })

	f.End()
	f.End()
	settle(t, func(goal uint64) bool { return goal < 40*megabyte })
	if percent := debug.SetGCPercent(100); percent != 100 {
		t.Errorf("the collector is told %d %% afterwards", percent)
	}
}
