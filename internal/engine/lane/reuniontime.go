package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// ReunionTime says how long a server waits for workers that come back. The time starts again with
// each worker that joins, because a server may have thousands of workers, and they need a while. In
// total it lasts at most maxReunions times as long. The zero value waits for no worker.
type ReunionTime struct {
	until  model.Time // zero when there is no reunion
	latest model.Time // when the reunion ends even if workers still join
}

// maxReunions is how many times longer a reunion may become while workers join.
const maxReunions = 6

// Begin starts a reunion, or makes a running one longer.
func (t *ReunionTime) Begin(now model.Time, d time.Duration) {
	t.until = max(t.until, now.Add(d))
	t.latest = max(t.latest, now.Add(maxReunions*d))
}

// Extend makes the reunion longer because a worker has joined, and others may be on their way.
func (t *ReunionTime) Extend(now model.Time, d time.Duration) {
	if t.Lasts(now) {
		t.until = max(t.until, min(now.Add(d), t.latest))
	}
}

// Lasts reports whether the server waits for workers.
func (t *ReunionTime) Lasts(now model.Time) bool { return now < t.until }
