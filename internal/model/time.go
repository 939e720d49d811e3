package model

import "time"

// Time is a point in time in microseconds since 1970 (UTC), the resolution of every store.
// Zero means none.
type Time int64

// TimeOf converts a standard time; the zero time becomes zero.
func TimeOf(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	return Time(t.UnixMicro())
}

// MaxTime is later than any timer may be due: the year 9999.
const MaxTime Time = 253402300799_000000

// MinRetention is the shortest time for which the engine keeps a closed run. A client in another
// process that waits for the end of the run looks once per second, so it does not miss the end.
const MinRetention = time.Minute

// Add returns the time d later. The result is at least 1 and at most MaxTime.
func (t Time) Add(d time.Duration) Time {
	// bound t first, so that the sum cannot overflow
	sum := min(max(t, -MaxTime), 2*MaxTime) + Time(d.Microseconds())
	return min(max(sum, 1), MaxTime)
}

// Sub returns the distance to an earlier time. It does not overflow: a distance that is too long
// becomes the longest duration.
func (t Time) Sub(earlier Time) time.Duration {
	const most = Time(1<<63-1) / 1000
	d := t - earlier
	switch {
	case t >= earlier && (d > most || d < 0): // below zero: overflow
		d = most
	case t < earlier && (d < -most || d >= 0):
		d = -most
	}
	return time.Duration(d) * time.Microsecond
}

// IsZero reports whether the time is not set.
func (t Time) IsZero() bool { return t == 0 }

// Std converts to a standard time in UTC; zero becomes the zero time.
func (t Time) Std() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(t)).UTC()
}

// String returns RFC 3339 with microseconds, or "never".
func (t Time) String() string {
	if t == 0 {
		return "never"
	}
	return t.Std().Format("2006-01-02T15:04:05.000000Z07:00")
}
