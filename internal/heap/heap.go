// Package heap keeps the garbage collector of a process from running all the time.
//
// Go collects garbage when the heap has doubled. A server that is busy but keeps little has a heap
// of a few megabytes, and collects it dozens of times per second. With a floor, Go does not collect
// before the heap has reached a fixed size. If more than half of that size is still in use after a
// collection, Go lets the heap double as it does without a floor. So a floor costs at most its own
// size in additional memory.
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// ServerFloor is the floor of a server that has enough memory. It is 16 times the minimum heap of
// Go. In the measurement in docs/performance.md, a busy server with little live memory collected
// garbage about a tenth as often with this floor.
const ServerFloor = 64 << 20

// usualPercent is the growth at which Go collects garbage by default.
const usualPercent = 100

// leastHeap is Go's minimum heap at the usual percentage. Go does not collect a heap that is
// smaller than its minimum heap. The minimum heap is proportional to the percentage.
const leastHeap = 4 << 20

// Floor is a size that the heap may reach before garbage is collected.
type Floor struct {
	bytes uint64

	mu      sync.Mutex
	percent int // the growth that the collector is set to
	before  int // the growth that the collector was set to before the floor
	ended   bool
}

// Keep sets a floor for the heap of this process. The collector has one setting for the whole
// process, so the caller must end a floor before it sets another one.
func Keep(bytes uint64) *Floor {
	f := &Floor{bytes: bytes, percent: usualPercent}
	f.before = debug.SetGCPercent(usualPercent)
	f.adjust()
	f.follow()
	return f
}

// End removes the floor.
func (f *Floor) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = true
		debug.SetGCPercent(f.before)
	}
}

// follow adjusts the collector after each collection. It allocates an object and keeps no reference
// to it. So the next collection frees the object, and the runtime then calls the cleanup function.
func (f *Floor) follow() {
	// Go may put small objects that contain no pointers into one block, and frees them together. An
	// object that contains a pointer has memory of its own.
	type garbage struct{ _ *byte }
	runtime.AddCleanup(&garbage{}, func(f *Floor) {
		if f.adjust() {
			f.follow()
		}
	}, f)
}

// adjust tells the collector how far the heap may grow. It returns false when the floor has ended.
func (f *Floor) adjust() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return false
	}
	if p := f.growth(); p != f.percent {
		f.percent = p
		debug.SetGCPercent(p)
	}
	return true
}

// growth returns by how many percent the heap may grow. The collector applies this percentage to
// all memory that it scans, which includes the stacks of goroutines and global variables.
func (f *Floor) growth() int {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	live := samples[0].Value.Uint64()
	looked := live + samples[1].Value.Uint64() + samples[2].Value.Uint64()
	if live >= f.bytes || looked == 0 {
		return usualPercent
	}
	// At a percentage above most, Go's minimum heap would be larger than the floor.
	most := 100 * f.bytes / leastHeap
	return max(usualPercent, int(min(100*(f.bytes-live)/looked, most)))
}
