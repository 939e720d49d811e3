package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// Suspended returns how long the machine has been suspended since its boot. Go's monotonic clock
// stops during a suspension, so leases that are measured with it alone seem to last longer.
//
// The result may be too small by the time between the two readings, but never too large.
func Suspended() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return 0
	}

	return max(time.Duration(boot.Nano()-mono.Nano()), 0)
}
