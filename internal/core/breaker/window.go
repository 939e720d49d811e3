package breaker

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// buckets is the number of buckets in which outcomes are counted for a ratio. Each bucket is a
// twentieth of the window.
const buckets = 20

// window keeps the recent outcomes. If Config.Failures is set, window keeps the exact times of the
// last failures. It keeps at most Config.Failures of them, because that number of failures opens
// the breaker. If Config.Ratio is set, window needs all outcomes, so it counts them in buckets.
type window struct {
	failed  []model.Time // a ring; when it is full, the oldest time is at index next
	next    int
	buckets []bucket // a ring; empty if the config has no ratio
	width   int64    // width of a bucket, in microseconds
}

// bucket counts the outcomes of a short period.
type bucket struct {
	Index  int64 `cbor:"1,keyasint"`
	Calls  int64 `cbor:"2,keyasint"`
	Failed int64 `cbor:"3,keyasint,omitempty"`
}

// clear forgets everything, but keeps the memory.
func (w *window) clear(c *Config) {
	w.failed, w.next = w.failed[:0], 0
	if c.Ratio == 0 {
		w.buckets, w.width = nil, 0
		return
	}
	if w.buckets == nil {
		w.buckets = make([]bucket, buckets)
	}
	clear(w.buckets)
	w.width = max(c.Window.Microseconds()/buckets, 1)
}

// add counts an outcome.
func (w *window) add(now model.Time, failed bool, c *Config) {
	if failed && c.Failures > 0 {
		if len(w.failed) < c.Failures {
			w.failed = append(w.failed, now)
		} else {
			w.failed[w.next] = now
			w.next = (w.next + 1) % len(w.failed)
		}
	}
	if failed {
		w.tally(now, 1, 1)
	} else {
		w.tally(now, 1, 0)
	}
}

// tally adds the outcomes of calls that ended at the given time to the buckets, from which the
// ratio is computed. It drops outcomes that are too old for the ring.
func (w *window) tally(at model.Time, calls, failed int64) {
	if w.width == 0 {
		return
	}
	index := int64(at) / w.width
	b := &w.buckets[index%buckets]
	if b.Index > index {
		return
	}
	if b.Index != index {
		*b = bucket{Index: index}
	}
	b.Calls += calls
	b.Failed += failed
}

// failures counts the failures that are younger than the window, up to the number that opens the
// breaker.
func (w *window) failures(now model.Time, c *Config) (n int) {
	for _, at := range w.failed {
		if now.Sub(at) < c.Window.Truncate(time.Microsecond) {
			n++
		}
	}
	return n
}

// sums adds up the buckets that lie completely within the window.
func (w *window) sums(now model.Time) (calls, failed int64) {
	if w.width == 0 {
		return 0, 0
	}
	index := int64(now) / w.width
	for _, b := range w.buckets {
		if b.Index > index-buckets && b.Index <= index {
			calls += b.Calls
			failed += b.Failed
		}
	}
	return calls, failed
}
