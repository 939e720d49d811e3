package breaker

import (
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Config is when a breaker opens and how it closes again. What is zero has its default. It opens by
// count, by ratio, or by whichever comes first.
type Config struct {
	// Failures in the window that open it. 5 when neither this nor Ratio is given.
	Failures int `cbor:"1,keyasint,omitempty"`
	// Ratio of failures to outcomes that opens it, in thousandths, once there are at least Calls
	// outcomes in the window (20).
	Ratio int `cbor:"2,keyasint,omitempty"`
	Calls int `cbor:"3,keyasint,omitempty"`
	// Window is how far back outcomes count; 1 min.
	Window time.Duration `cbor:"4,keyasint,omitempty"`
	// Successes of probes that close it; 2.
	Successes int `cbor:"5,keyasint,omitempty"`
	// Reset is how long it stays open before probes are let through; 30 s.
	Reset time.Duration `cbor:"6,keyasint,omitempty"`
	// Probes is how many calls may be under way while it is half-open; 1.
	Probes int `cbor:"7,keyasint,omitempty"`
	// Lease is after which time a probe that has not been reported frees its slot, unless the
	// caller asks for a longer one; 1 min.
	Lease time.Duration `cbor:"8,keyasint,omitempty"`
	// MaxRetryAfter bounds for how long the other side may hold the breaker; 24 h.
	MaxRetryAfter time.Duration `cbor:"9,keyasint,omitempty"`
}

// Bounds of a Config. Failures and Probes bound what is kept in memory and in the row.
const (
	MaxFailures = 1000
	MaxProbes   = 1000
	MaxCount    = 1_000_000
	MaxDuration = 366 * 24 * time.Hour
)

// WithDefaults is the config with every number given.
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

// Validate reports what makes no sense.
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
