package engine

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Ids of runs are in the order in which they are drawn, and as old as the store's clock says,
// however wrong the machine's clock is.
func TestRunIDs(t *testing.T) {
	t.Parallel()
	const at = model.Time(4_000_000_000_123_456) // in the year 2096
	for _, anchor := range []model.Time{at, at / 2} {
		c := newClock(storeclock.Config{}, nil)
		c.read(c.mono(), c.mono(), anchor)
		var last model.RunID
		for range 10_000 {
			before := c.now()
			id := c.newRun()
			if u := uuid.UUID(id); u.Version() != 7 || u.Variant() != uuid.RFC4122 {
				t.Fatalf("%s is version %d, variant %s", u, u.Version(), u.Variant())
			}
			if id.Compare(last) <= 0 {
				t.Fatalf("%s comes after %s", uuid.UUID(id), uuid.UUID(last))
			}
			// If ids are drawn faster than time advances, they run ahead of the time.
			if id.Compare(store.OldestID(before)) < 0 || id.Compare(store.OldestID(c.now()+20_000)) >= 0 {
				t.Fatalf("%s was drawn at %s", uuid.UUID(id), before)
			}
			last = id
		}
	}
}

// The machine's clock may be hours ahead of the store's. A time from before the first reading must
// not make the clock stand still.
func TestTimeRunsFromTheFirstReading(t *testing.T) {
	t.Parallel()
	c := newClock(storeclock.Config{}, nil)
	early := c.now() // according to the clock of the machine
	behind := early.Add(-time.Hour)
	c.read(c.mono(), c.mono(), behind)
	if now := c.now(); now.Sub(behind) > time.Minute {
		t.Errorf("time is %s after the first reading", now.Sub(behind))
	}

	c.read(c.mono(), c.mono(), behind)
	before := c.now()
	c.reset()
	c.read(c.mono(), c.mono(), behind.Add(-time.Hour))
	if now := c.now(); now >= before {
		t.Errorf("time is at %s after it was reset to an hour before %s", now, before)
	}
}
