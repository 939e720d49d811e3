package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// These constants decide when a quiet server returns memory to the operating system.
const (
	// tidyEvery is how often the server checks its memory.
	tidyEvery = 15 * time.Second
	// leastSpare is the least number of bytes to return, and spareShare the least part of the
	// memory in use. Less is not worth a garbage collection.
	leastSpare = 32 << 20
	spareShare = 4
	// A server that allocates more than this part of the memory in use between two checks is not
	// quiet: it soon needs the memory again.
	quietShare = 8
)

// heap is what the Go runtime says about the memory of the process, in bytes.
type heap struct {
	allocated uint64 // since the process began
	live      uint64 // in use at the last garbage collection
	spare     uint64 // garbage, and free memory that is not returned
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	live, objects := samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return heap{samples[0].Value.Uint64(), live, max(objects, live) - live + samples[3].Value.Uint64()}
}

// shouldReturn reports whether a process is quiet and has memory that it does not need.
func (h heap) shouldReturn(before heap) bool {
	quiet := h.allocated-before.allocated <= max(h.live, leastSpare)/quietShare
	return quiet && h.spare >= max(leastSpare, h.live/spareShare)
}

// tidy returns memory to the operating system after a storm of connections or work has passed. Go
// keeps as much memory for garbage as is in use, which is right for a busy server. A server whose
// workers only wait would keep that memory as long as it runs.
func tidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	before := readHeap()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}

		now := readHeap()
		if now.shouldReturn(before) {
			debug.FreeOSMemory()
			now = readHeap()
		}
		before = now
	}
}
