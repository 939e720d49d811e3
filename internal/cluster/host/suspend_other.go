//go:build !linux && !darwin

package host

import "time"

// Suspended returns how long the machine has been suspended since its boot, on systems where Go's
// monotonic clock stops during a suspension. On other systems it returns 0: either the clock does
// not stop, or there is no way to know.
func Suspended() time.Duration { return 0 }
