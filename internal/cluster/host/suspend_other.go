//go:build !linux && !darwin

package host

import "time"

// Suspended returns how long the machine has been suspended since its boot. On this system it
// returns 0. Either Go's monotonic clock continues during a suspension, or there is no way to know
// how long the suspension lasted.
func Suspended() time.Duration { return 0 }
