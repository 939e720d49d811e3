package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// clockUptimeRaw is CLOCK_UPTIME_RAW: it stops while the machine sleeps, as Go's monotonic clock
// does.
const clockUptimeRaw = 8

// Suspended returns how long the machine has been suspended since its boot. On this system,
// CLOCK_MONOTONIC_RAW continues during a suspension.
func Suspended() time.Duration {
	var all, awake unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &all) != nil || unix.ClockGettime(clockUptimeRaw, &awake) != nil {
		return 0
	}

	return max(time.Duration(all.Nano()-awake.Nano()), 0)
}
