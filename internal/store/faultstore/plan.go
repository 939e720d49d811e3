package faultstore

import (
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// Kind is what happens to a call.
type Kind uint8

// Kinds of faults.
const (
	// OK: no fault.
	OK Kind = iota
	// FailBefore: the call fails with an error of the chosen class, and nothing is applied.
	FailBefore
	// FailAfter: the call is applied, then fails with an error of class Unknown, whatever the store
	// returned.
	FailAfter
	// CrashBefore: the process dies before the call is sent.
	CrashBefore
	// CrashAfter: the process dies after the store has applied the call and before the answer
	// arrives.
	CrashAfter
	// Slow: the call is sent after a delay.
	Slow
	// SlowReply: the answer arrives after a delay.
	SlowReply
	// Late is for Commit. For other calls it means OK. The commit returns an error of class Unknown
	// immediately, while the batch is still in flight and its transaction has not begun. The store
	// gets the batch when the test releases it. If the fence is removed or moves before that, the
	// store refuses the batch.
	Late
	// LateBegun is like Late, but the transaction has begun and holds the row of its fence. Calls
	// that need that row (a commit of the lane, Register, Refence, FenceNode, Unregister) must wait
	// for the late commit, so the wrapper applies it before such a call.
	LateBegun
)

// kinds is the number of kinds. It is not a Kind, so that a switch over all kinds need not name it.
const kinds = int(LateBegun) + 1

var kindNames = [kinds]string{"ok", "fail before", "fail after", "crash before", "crash after", "slow", "slow reply", "late", "late begun"}

// String returns the name of the kind.
func (k Kind) String() string {
	if int(k) < kinds {
		return kindNames[k]
	}
	return "unknown"
}

// Kinds returns all kinds that are faults.
func Kinds() []Kind {
	return []Kind{FailBefore, FailAfter, CrashBefore, CrashAfter, Slow, SlowReply, Late, LateBegun}
}

// Fault is what a plan chooses for a call. The zero Fault means that the call has no fault.
type Fault struct {
	Kind Kind
	// Class is the class of the error of FailBefore. Zero means Unknown. The class Refused makes
	// the engine quarantine an address, although its data is good. The class Fenced makes the
	// engine stop. Use these two classes only in plans that need these effects.
	Class store.Class
	// Delay is the delay of Slow and SlowReply.
	Delay time.Duration
	// After releases a late commit automatically, before the After-th later call of any process
	// that shares the Orphans. If After is zero, the test releases the commit.
	After int
}

// Call is a call that a plan decides about.
type Call struct {
	Method Method
	// N counts all calls of the wrapper, OfMethod the calls of the method. Both start at 1.
	N, OfMethod int
	// Batch is the batch of a Commit, nil for other methods. A plan must not change it.
	Batch *store.Batch
}

// Plan decides about calls.
type Plan interface {
	// The wrapper calls Next once per call, before it does anything else.
	Next(c Call) Fault
}

// PlanFunc is a plan that calls a function.
type PlanFunc func(c Call) Fault

// Next calls the function.
func (f PlanFunc) Next(c Call) Fault { return f(c) }

// None is a plan without faults.
type None struct{}

// Next returns no fault.
func (None) Next(Call) Fault { return Fault{} }

// FailAt injects one fault. If Method is Any, the N-th call of the wrapper gets the fault.
// Otherwise the N-th call of the method gets it. A test increases N from 1 until a scenario ends
// without the fault.
type FailAt struct {
	N      int
	Method Method
	Fault  Fault
}

// Next returns the fault at its position, and none elsewhere.
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

// Rate has the probability of each kind of fault for a method, from 0 to 1. The sum is at most 1.
type Rate struct {
	FailBefore, FailAfter, CrashBefore, CrashAfter, Slow, SlowReply, Late, LateBegun float64
	// MaxDelay bounds delays. Delays are distributed evenly between 0 and MaxDelay.
	MaxDelay time.Duration
	// MaxAfter bounds the number of calls until a late commit is released automatically. If
	// MaxAfter is zero, only the test releases late commits.
	MaxAfter int
}

// Rates are the rates for all methods.
type Rates struct {
	Default Rate
	// Methods has the rates of methods that do not use the default rate.
	Methods map[Method]Rate
}

// Seeded is a plan that draws faults from a seed. Only one wrapper may use it.
type Seeded struct {
	rng   *rand.Rand
	rates Rates
}

// NewSeeded creates a plan. The same seed, rates and calls give the same faults.
func NewSeeded(seed uint64, r Rates) *Seeded {
	return &Seeded{rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), rates: r}
}

// Next draws a fault. Every call draws the same number of random values, so a changed rate does not
// shift later draws.
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
