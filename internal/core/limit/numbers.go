package limit

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Numbers are what a resource allows. Zero allows everything.
type Numbers struct {
	// Concurrency is how many tasks may hold the resource at a time; 0 for any number.
	Concurrency int `cbor:"1,keyasint,omitempty"`
	// Rate is how many tasks may begin per period Per; 0 for any number. Burst is how many of them
	// may begin at the same time after a pause; 0 means 1. With a burst of 1, the tasks begin at
	// even distances, and at most Rate tasks begin in any period except the first.
	Rate  int64         `cbor:"2,keyasint,omitempty"`
	Per   time.Duration `cbor:"3,keyasint,omitempty"`
	Burst int64         `cbor:"4,keyasint,omitempty"`
}

// Bounds of Numbers. With numbers in these bounds, no product overflows.
const (
	MaxConcurrency = 1_000_000
	MaxRate        = 1_000_000
	MinPer         = time.Millisecond
	MaxPer         = 24 * time.Hour
)

// Validate returns an error if a number is out of bounds, if there is a period or a burst without a
// rate, or if there is neither a concurrency nor a rate.
func (n Numbers) Validate() error {
	switch {
	case n.Concurrency < 0 || n.Concurrency > MaxConcurrency:
		return fault.New(fault.Invalid, "concurrency %d is not between 1 and %d", n.Concurrency, MaxConcurrency)
	case n.Rate < 0 || n.Rate > MaxRate:
		return fault.New(fault.Invalid, "rate %d is not between 1 and %d", n.Rate, MaxRate)
	case n.Burst < 0 || n.Burst > MaxRate:
		return fault.New(fault.Invalid, "burst %d is not between 1 and %d", n.Burst, MaxRate)
	case n.Rate == 0 && (n.Per != 0 || n.Burst != 0):
		return fault.New(fault.Invalid, "a period or a burst without a rate")
	case n.Rate > 0 && (n.Per < MinPer || n.Per > MaxPer):
		return fault.New(fault.Invalid, "the period of the rate, %v, is not between %v and %v", n.Per, MinPer, MaxPer)
	case n.Concurrency == 0 && n.Rate == 0:
		return fault.New(fault.Invalid, "neither a concurrency nor a rate")
	}
	return nil
}

// String describes the numbers: "at most 5 at a time, 100 per 1m0s".
func (n Numbers) String() string {
	s := ""
	if n.Concurrency > 0 {
		s = fmt.Sprintf("at most %d at a time", n.Concurrency)
	}

	if n.Rate > 0 {
		if s != "" {
			s += ", "
		}
		s += fmt.Sprintf("%d per %v", n.Rate, n.Per)
		if n.Burst > 1 {
			s += fmt.Sprintf(" and up to %d at once", n.Burst)
		}
	}

	if s == "" {
		return "no limit"
	}
	return s
}

// burst returns the burst with its default.
func (n *Numbers) burst() int64 { return max(n.Burst, 1) }

// bucket holds tokens. It counts them in units: a token has as many units as the period has
// microseconds, and each microsecond adds Rate units. So the level is never rounded.
type bucket struct {
	Level int64      `cbor:"1,keyasint,omitempty"`
	At    model.Time `cbor:"2,keyasint,omitempty"`
}

// fill adds the tokens that have accrued since the last call. The level plus the leased tokens
// (out) never exceeds the burst.
func (b *bucket) fill(now model.Time, n *Numbers, out int64) {
	if n.Rate == 0 {
		b.Level, b.At = 0, now
		return
	}
	elapsed := max(int64(now-b.At), 0)
	b.At = max(b.At, now)
	room := max(n.burst()-out, 0)*n.Per.Microseconds() - b.Level
	if room <= 0 || elapsed > room/n.Rate {
		b.Level += room // the bucket is full; room is negative if the burst has become smaller
		return
	}
	b.Level += elapsed * n.Rate
}

// tokens returns how many whole tokens are in the bucket.
func (b *bucket) tokens(n *Numbers) int64 {
	if n.Rate == 0 {
		return 0
	}
	return b.Level / n.Per.Microseconds()
}

// next returns when the bucket has a whole token, if none is taken or returned before.
func (b *bucket) next(n *Numbers) model.Time {
	missing := max(n.Per.Microseconds()-b.Level, 0)
	return b.At + model.Time((missing+n.Rate-1)/n.Rate)
}

// convert changes the units of the bucket when the numbers change. It keeps the fraction of a token
// that has accrued.
func (b *bucket) convert(from, to *Numbers) {
	switch {
	case to.Rate == 0:
		b.Level = 0
	case from.Rate == 0:
		b.Level = to.burst() * to.Per.Microseconds()
	default:
		high, low := bits.Mul64(uint64(b.Level), uint64(to.Per.Microseconds()))
		if divisor := uint64(from.Per.Microseconds()); high < divisor {
			quotient, _ := bits.Div64(high, low, divisor)
			b.Level = int64(min(quotient, 1<<62))
		}
		// The next fill cuts off a level that is too high.
	}
}
