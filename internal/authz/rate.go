package authz

import (
	"sync"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
)

// mostCallers bounds the callers that have a budget of their own. All other callers share one
// budget.
const mostCallers = 10_000

// Rate bounds how many calls each caller may make in a second. A server checks it when it
// authorizes a call, before it performs the call.
type Rate struct {
	perSecond float64
	now       func() time.Time

	mu     sync.Mutex
	all    map[caller]*budget
	others budget // shared by the callers beyond mostCallers
	swept  time.Time
}

// caller identifies a caller.
type caller struct{ tenant, kind, id, name string }

// budget is how many calls a caller had left at the time at.
type budget struct {
	left float64
	at   time.Time
}

// NewRate returns a bound on the calls per second of each caller. A caller that has been quiet may
// make the calls of one second in a burst.
func NewRate(perSecond int) *Rate {
	return &Rate{perSecond: float64(perSecond), now: time.Now, all: map[caller]*budget{}}
}

// Authorizer returns an authorizer that first asks whether the caller makes too many calls.
func (r *Rate) Authorizer(a Authorizer) Authorizer { return limited{a, r} }

// limited is an authorizer that checks a rate first.
type limited struct {
	next Authorizer
	rate *Rate
}

// Authorize returns nil when the caller may take the action now.
func (l limited) Authorize(who *authn.Identity, action Action) error {
	if err := l.rate.Take(who); err != nil {
		return err
	}
	return l.next.Authorize(who, action)
}

// Unwrap returns an authorizer that counts no calls, for code that only wants to know what a caller
// may do.
func (l limited) Unwrap() Authorizer { return Quiet(l.next) }

// Take counts a call of a caller, or refuses it.
func (r *Rate) Take(who *authn.Identity) error {
	c := caller{who.Tenant, who.Credential.Kind, who.Credential.ID, who.Name}
	if who.Admin {
		c.tenant = "" // an admin can choose any tenant, so the budget does not depend on it
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.all[c]
	if b == nil {
		b = r.admit(c, now)
	}

	b.left = min(r.perSecond, b.left+now.Sub(b.at).Seconds()*r.perSecond)
	b.at = now
	if b.left < 1 {
		return fault.WithHint(fault.New(fault.Exhausted, "the caller makes more than %d calls per second", int(r.perSecond)), "try again later; --call-rate of the server sets the limit")
	}
	b.left--
	return nil
}

// admit returns the budget of a caller that is not known. If too many callers are known, it first
// forgets callers that have made no call for a second: their budgets are full, like the budget of a
// new caller. It looks for such callers at most once a second, so that calls stay cheap even if
// there are very many callers.
func (r *Rate) admit(c caller, now time.Time) *budget {
	if len(r.all) >= mostCallers && now.Sub(r.swept) >= time.Second {
		r.swept = now
		for other, b := range r.all {
			if now.Sub(b.at) >= time.Second {
				delete(r.all, other)
			}
		}
	}
	if len(r.all) >= mostCallers {
		if r.others.at.IsZero() {
			r.others = budget{r.perSecond, now}
		}
		return &r.others
	}
	b := &budget{r.perSecond, now}
	r.all[c] = b
	return b
}
