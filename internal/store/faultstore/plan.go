package faultstore

import (
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// Kind is what happens at a call.
type Kind uint8

// Kinds of faults.
const (
	// OK: nothing special.
	OK Kind = iota
	// FailBefore: an error of the chosen class; nothing is applied.
	FailBefore
	// FailAfter: applied, then an error of class Unknown, whatever the store said.
	FailAfter
	// CrashBefore: the process dies before the call is sent.
	CrashBefore
	// CrashAfter: the process dies after the store has done it and before it hears of that.
	CrashAfter
	// Slow: the call is sent after a delay.
	Slow
	// SlowReply: the answer comes after a delay.
	SlowReply
	// Late is for Commit, and is OK for other calls: an error of class Unknown at once, while the
	// batch is still on its way and not begun. It is applied when the harness releases it; a fence
	// that is raised before excludes it.
	Late
	// LateBegun is like Late, but the transaction has begun and holds the row of its fence:
	// whatever needs that row (a commit of the lane, Refence, FenceNode, Unregister) waits for it,
	// that is, it is applied first.
	LateBegun
)

// kinds is how many there are; not a Kind itself, so that a switch over all kinds need not name it.
const kinds = int(LateBegun) + 1

var kindNames = [kinds]string{"ok", "fail before", "fail after", "crash before", "crash after", "slow", "slow reply", "late", "late begun"}

// String names the kind.
func (k Kind) String() string {
	if int(k) < kinds {
		return kindNames[k]
	}
	return "unknown"
}

// Kinds are all kinds that are faults.
func Kinds() []Kind {
	return []Kind{FailBefore, FailAfter, CrashBefore, CrashAfter, Slow, SlowReply, Late, LateBegun}
}

// Fault is what a plan has for a call. The zero Fault is none.
type Fault struct {
	Kind Kind
	// Class of the error of FailBefore; Unknown when zero. Refused without a reason in the data
	// makes the caller quarantine somebody, and Fenced makes it stop: both are for plans that want
	// just that.
	Class store.Class
	// Delay of Slow and SlowReply.
	Delay time.Duration
	// After releases a late commit by itself, before the After-th later call of any process that
	// shares the Orphans. Zero leaves it to the harness.
	After int
}

// Call is a call that a plan decides about.
type Call struct {
	Method Method
	// N counts all calls of the wrapper, OfMethod those of the method; both from 1.
	N, OfMethod int
	// Batch is what a Commit carries; nil for other methods. A plan only looks at it.
	Batch *store.Batch
}

// Plan decides about calls.
type Plan interface {
	// Next is asked once per call, before anything else happens to it.
	Next(c Call) Fault
}

// PlanFunc is a plan made of a function.
type PlanFunc func(c Call) Fault

// Next asks the function.
func (f PlanFunc) Next(c Call) Fault { return f(c) }

// None is a plan without faults.
type None struct{}

// Next is no fault.
func (None) Next(Call) Fault { return Fault{} }

// FailAt puts one fault at the N-th call, or at the N-th call of the method unless that is Any. A
// harness walks N from 1 until a scenario ends without having met the fault.
type FailAt struct {
	N      int
	Method Method
	Fault  Fault
}

// Next is the fault at its place.
func (p FailAt) Next(c Call) Fault {
	n := c.N
	if p.Method != Any {
		if c.Method != p.Method {
			return Fault{}
		}
		n = c.OfMethod
	}
	if n != p.N {
		return Fault{}
	}
	return p.Fault
}

// Rate is how often things happen to a method: probabilities from 0 to 1 whose sum is at most 1.
type Rate struct {
	FailBefore, FailAfter, CrashBefore, CrashAfter, Slow, SlowReply, Late, LateBegun float64
	// MaxDelay bounds delays; they are spread evenly below it.
	MaxDelay time.Duration
	// MaxAfter bounds the number of calls until a late commit releases itself; with zero, only the
	// harness releases it.
	MaxAfter int
}

// Rates are rates for all methods.
type Rates struct {
	Default Rate
	// Methods have their own rates instead of the default.
	Methods map[Method]Rate
}

// Seeded is a plan that draws faults from a seed. It belongs to one wrapper.
type Seeded struct {
	rng   *rand.Rand
	rates Rates
}

// NewSeeded makes a plan. The same seed, rates and calls give the same faults.
func NewSeeded(seed uint64, r Rates) *Seeded {
	return &Seeded{rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), rates: r}
}

// Next draws. Every call draws the same number of times, so that a changed rate does not shift what
// comes later.
func (p *Seeded) Next(c Call) Fault {
	r, ok := p.rates.Methods[c.Method]
	if !ok {
		r = p.rates.Default
	}
	dice, detail := p.rng.Float64(), p.rng.Uint64()

	var f Fault
	for _, k := range [...]struct {
		kind Kind
		rate float64
	}{
		{FailBefore, r.FailBefore},
		{FailAfter, r.FailAfter},
		{CrashBefore, r.CrashBefore},
		{CrashAfter, r.CrashAfter},
		{Slow, r.Slow},
		{SlowReply, r.SlowReply},
		{Late, r.Late},
		{LateBegun, r.LateBegun},
	} {
		if dice < k.rate {
			f.Kind = k.kind
			break
		}
		dice -= k.rate
	}

	switch f.Kind {
	case FailBefore:
		f.Class = [...]store.Class{store.Unknown, store.Retryable, store.Away}[detail%3]
	case Slow, SlowReply:
		if r.MaxDelay > 0 {
			f.Delay = time.Duration(detail % uint64(r.MaxDelay))
		}
	case Late, LateBegun:
		if r.MaxAfter > 0 {
			f.After = 1 + int(detail%uint64(r.MaxAfter))
		}
	case OK, FailAfter, CrashBefore, CrashAfter:
	}

	return f
}
