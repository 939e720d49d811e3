package engine

import (
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
)

// While one reader is at work, the next reader starts only when enough runs wait, or when the first
// reader says that it takes long.
func TestRunsThatWaitAreReadTogether(t *testing.T) {
	t.Parallel()
	r := newRunReads()
	add := func(n int) {
		for range n {
			r.add(lane.Load{Kind: lane.LoadRun})
		}
	}
	takes := func(want int) {
		t.Helper()
		if got := len(r.take(nil)); got != want {
			t.Fatalf("took %d runs, want %d", got, want)
		}
	}
	busy := func() {
		t.Helper()
		if r.ready() {
			t.Fatal("another reader may begin")
		}
	}

	// A reader reads a single run immediately. The runs that come during that read are read
	// together.
	add(1)
	takes(1)
	add(enoughRuns - 1)
	busy()
	r.leave()
	takes(enoughRuns - 1)

	// If enough runs wait, another reader starts. No call reads more runs than it may.
	add(enoughRuns)
	takes(enoughRuns)
	add(mostTogether + 1)
	takes(mostTogether)
	busy()
	r.leave()
	r.leave()
	r.leave()
	takes(1)

	// After close, the readers still read the waiting runs.
	add(2)
	r.close()
	busy()
	r.leave()
	takes(2)
	r.leave()
	if got := r.take(nil); len(got) != 0 {
		t.Errorf("took %d runs after the end", len(got))
	}
}

// A reader that waits when the last one leaves must end too.
func TestReadersOfRunsEnd(t *testing.T) {
	t.Parallel()
	r := newRunReads()
	r.add(lane.Load{Kind: lane.LoadRun})
	r.take(nil)
	r.add(lane.Load{Kind: lane.LoadRun})

	const readers = 3
	ended := make(chan int, readers)
	for range readers {
		go func() {
			read := 0
			for runs := r.take(nil); len(runs) > 0; runs = r.take(runs) {
				read += len(runs)
				r.leave()
			}
			ended <- read
		}()
	}
	r.close()
	r.leave()

	read := 0
	for range readers {
		read += <-ended
	}
	if read != 1 {
		t.Errorf("the readers read %d runs, want 1", read)
	}
}
