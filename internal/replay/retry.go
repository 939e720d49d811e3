package replay

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Policy says when a failed attempt of a step is repeated. The zero value never gives up: it waits
// 1 s, then twice as long each time, at most 1 min.
type Policy struct {
	MaxAttempts         int
	Initial, Max        time.Duration
	Coefficient, Jitter float64
	If                  func(error) bool
}

const (
	defaultInitial = time.Second
	// farFuture bounds every delay, so that a time plus a delay does not overflow.
	farFuture = 100 * 365 * 24 * time.Hour
)

// Repeat is the policy of a workflow for failed runs. If Worth is set, it decides whether an error
// is worth another run. Stored is the part of the policy that the engine stores; it does not
// include Worth.
type Repeat struct {
	Stored model.Retry
	Worth  func(error) bool
}

// delay returns how long to wait after the failed attempt n (from 1) before the next one. The
// result is bounded, and no input makes the computation overflow.
func (p *Policy) delay(n int, random float64) time.Duration {
	first := p.Initial
	if first <= 0 {
		first = defaultInitial
	}
	most := model.LongestPause(first, p.Max)
	factor := p.Coefficient
	if !(factor >= 1) { // also true for NaN
		factor = 2
	}
	d := float64(first) * math.Pow(factor, float64(max(n, 1)-1))
	if !(d <= float64(most)) {
		d = float64(most)
	}
	if j := p.Jitter; j > 0 {
		d += d * min(j, 1) * (2*random - 1)
	}

	return time.Duration(min(max(d, 0), float64(farFuture)))
}

// nextAttempt decides whether another attempt follows an error of attempt n, and when.
func (p *Policy) nextAttempt(err error, n int) (time.Duration, bool) {
	var after *retryAfter
	var perm *permanent
	switch {
	case errors.As(err, &perm):
		return 0, false
	case p.MaxAttempts > 0 && n >= p.MaxAttempts:
		return 0, false
	case p.If != nil && !p.If(err):
		return 0, false
	case errors.As(err, &after):
		return min(max(after.d, 0), farFuture), true
	}
	return p.delay(n, rand.Float64()), true
}

// guard wraps a predicate of user code, which may panic. If the predicate panics, the answer is
// true, so another attempt or run follows, and the recorded failure names the panic.
func guard(decide func(error) bool, recorded *model.Failure) func(error) bool {
	return func(err error) (again bool) {
		defer func() {
			if p := recover(); p != nil {
				again = true
				recorded.Message += fmt.Sprintf(" (the policy panicked: %v)", p)
			}
		}()
		return decide(err)
	}
}

type permanent struct{ error }

func (p *permanent) Unwrap() error { return p.error }

// Permanent marks an error that is not retried.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type retryAfter struct {
	error
	d time.Duration
}

func (r *retryAfter) Unwrap() error { return r.error }

// RetryAfterOf returns the pause that an error asks for.
func RetryAfterOf(err error) (time.Duration, bool) {
	after, ok := errors.AsType[*retryAfter](err)
	if !ok {
		return 0, false
	}
	return min(max(after.d, 0), farFuture), true
}

// RetryAfter asks for the next attempt after a pause.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfter{err, d}
}
