package breaker

import (
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Config says when a breaker opens and how it closes again. For a field that is zero, its default
// applies. If both Failures and Ratio are set, the breaker opens when either of them is reached.
type Config struct {
	// Failures is how many failures in the window open the breaker. The default is 5, if Ratio is
	// not set either.
	Failures int `cbor:"1,keyasint,omitempty"`
	// Ratio is the share of failures that opens the breaker, in thousandths. It applies once the
	// window has at least Calls outcomes. The default of Calls is 20.
	Ratio int `cbor:"2,keyasint,omitempty"`
	Calls int `cbor:"3,keyasint,omitempty"`
	// Window is how long outcomes count. The default is 1 min.
	Window time.Duration `cbor:"4,keyasint,omitempty"`
	// Successes is how many successful probes close the breaker. The default is 2.
	Successes int `cbor:"5,keyasint,omitempty"`
	// Reset is how long the breaker stays open before it lets probes through. The default is 30 s.
	Reset time.Duration `cbor:"6,keyasint,omitempty"`
	// Probes is how many calls may be in flight while the breaker is half-open. The default is 1.
	Probes int `cbor:"7,keyasint,omitempty"`
	// Lease is how long a probe counts as in flight if its outcome is never reported. A caller can
	// ask for a longer time when it starts the probe. The default is 1 min.
	Lease time.Duration `cbor:"8,keyasint,omitempty"`
	// MaxRetryAfter bounds how long the breaker stops calls because the called service has answered
	// with Retry-After. The default is 24 h.
	MaxRetryAfter time.Duration `cbor:"9,keyasint,omitempty"`
}

// Bounds of a Config. MaxFailures and MaxProbes bound the memory that a breaker needs, and the size
// of its stored state.
const (
	MaxFailures = 1000
	MaxProbes   = 1000
	MaxCount    = 1_000_000
	MaxDuration = 366 * 24 * time.Hour
)

// WithDefaults returns the config with its defaults filled in.
func (c Config) WithDefaults() Config {
	orInt := func(n *int, otherwise int) {
		if *n == 0 {
			*n = otherwise
		}
	}

	or := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}

	if c.Ratio == 0 {
		orInt(&c.Failures, 5)
	} else {
		orInt(&c.Calls, 20)
	}

	orInt(&c.Successes, 2)
	orInt(&c.Probes, 1)
	or(&c.Window, time.Minute)
	or(&c.Reset, 30*time.Second)
	or(&c.Lease, time.Minute)
	or(&c.MaxRetryAfter, 24*time.Hour)

	return c
}

// Validate returns an error if a number is out of bounds, or if Calls is set without Ratio.
func (c Config) Validate() error {
	for _, n := range []struct {
		name      string
		value, to int
	}{
		{"failures", c.Failures, MaxFailures},
		{"ratio (in thousandths)", c.Ratio, 1000},
		{"calls", c.Calls, MaxCount},
		{"successes", c.Successes, MaxCount},
		{"probes", c.Probes, MaxProbes},
	} {
		if n.value < 0 || n.value > n.to {
			return fault.New(fault.Invalid, "breaker: %s %d is not between 0 and %d", n.name, n.value, n.to)
		}
	}

	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"window", c.Window}, {"reset", c.Reset}, {"lease", c.Lease}, {"max retry after", c.MaxRetryAfter}} {
		if d.value != 0 && (d.value < time.Millisecond || d.value > MaxDuration) {
			return fault.New(fault.Invalid, "breaker: %s %v is not between 1ms and %v", d.name, d.value, MaxDuration)
		}
	}

	if c.Calls != 0 && c.Ratio == 0 {
		return fault.New(fault.Invalid, "breaker: calls %d without a ratio", c.Calls)
	}
	return nil
}
