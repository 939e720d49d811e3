// Package heap keeps the garbage collector of a process from running all the time.
//
// Go collects garbage when the heap has doubled. A server that is busy but keeps little has a heap
// of a few megabytes, and collects it dozens of times per second. A floor lets the heap grow to a
// fixed size before that. A heap that is larger than half of the floor is collected as always, so
// the process needs at most the floor more memory than without it.
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// usualPercent is the growth at which Go collects garbage by default.
const usualPercent = 100

// leastHeap is the size to which Go lets a heap grow in any case. The size grows with the
// percentage.
const leastHeap = 4 << 20

// Floor is a size that the heap may reach before garbage is collected.
type Floor struct {
	bytes uint64

	mu      sync.Mutex
	percent int // what the collector has been told
	before  int // what the collector had been told before the floor
	ended   bool
}

// Keep sets a floor for the heap of this process. There can be one floor at a time.
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

// follow adjusts the collector after each collection: it frees the object, and calls the function.
func (f *Floor) follow() {
	// A pointer in the object makes sure that the object shares its memory with no other one.
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

// growth returns by how many percent the heap may grow. The collector adds that part of everything
// that it looks at, which includes the stacks of goroutines and global variables.
func (f *Floor) growth() int {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	live := samples[0].Value.Uint64()
	looked := live + samples[1].Value.Uint64() + samples[2].Value.Uint64()
	if live >= f.bytes || looked == 0 {
		return usualPercent
	}
	most := 100 * f.bytes / leastHeap // with more, the least heap would be larger than the floor
	return max(usualPercent, int(min(100*(f.bytes-live)/looked, most)))
}
