package limit

import (
	"maps"
	"math/bits"

	"github.com/perdure/perdure/internal/model"
)

// Local gives tasks the permits that are leased to a place. After every call that changes the
// Local, the caller asks Tell for a message to the owner.
type Local struct {
	numbers Numbers
	block   int   // permits leased to this place
	tokens  int64 // tokens that are leased and not spent
	holders map[model.TaskRef]struct{}
	// waiting counts tasks that lack only this resource. pinned counts tasks that could have this
	// resource, but wait for a resource that comes later in the order.
	waiting, pinned int
	recalled        recalls

	// want, wantTokens and over are this place's copy of what the owner believes: how many permits
	// and tokens the place wants, and how many holders without a permit it has. The copy can be
	// wrong; see CorrectBelief.
	want, wantTokens int64
	over             int
	// The next message carries these numbers: back and backTokens are the permits and tokens that
	// the place returns, and spent is how many tokens its tasks have used up.
	back       int
	backTokens int64
	spent      int64
}

// NewLocal returns a Local that has nothing leased.
func NewLocal(n Numbers) *Local {
	return &Local{numbers: n, holders: map[model.TaskRef]struct{}{}}
}

// Numbers returns what the resource allows.
func (l *Local) Numbers() Numbers { return l.numbers }

// Configure changes what the resource allows. Tasks that hold the resource keep it.
func (l *Local) Configure(n Numbers) { l.numbers = n }

// Shortage reports whether a task would have to wait for a permit, and whether it would have to
// wait for a token.
func (l *Local) Shortage() (permit, token bool) {
	return l.numbers.Concurrency > 0 && len(l.holders) >= l.block, l.numbers.Rate > 0 && l.tokens < 1
}

// Take gives the task a permit and spends a token, if both are available. A task that holds a
// permit already keeps it.
func (l *Local) Take(who model.TaskRef) bool {
	if _, has := l.holders[who]; has {
		return true
	}
	if permit, token := l.Shortage(); permit || token {
		return false
	}
	if l.numbers.Rate > 0 {
		l.tokens--
		l.spent++
	}
	l.holders[who] = struct{}{}
	return true
}

// Hold registers a task that holds the resource already, because a worker claimed it before this
// process became the owner of its run. There may be more such tasks than permits.
func (l *Local) Hold(who model.TaskRef) { l.holders[who] = struct{}{} }

// Rename passes the permit of a task to another holder.
func (l *Local) Rename(from, to model.TaskRef) {
	if _, has := l.holders[from]; has {
		delete(l.holders, from)
		l.holders[to] = struct{}{}
	}
}

// Give ends the hold of a task, so that another task can have its permit. It reports whether the
// task held the resource.
func (l *Local) Give(who model.TaskRef) bool {
	if _, has := l.holders[who]; !has {
		return false
	}
	delete(l.holders, who)
	if l.recalled.Cut == 0 && l.recalled.Turn > 0 && l.block > len(l.holders) {
		l.release(1) // other places are next, even if tasks wait here
	}
	return true
}

// Wait changes the number of tasks that wait for this resource.
func (l *Local) Wait(by int) { l.waiting += by }

// Pin changes the number of tasks that could have this resource and wait for a later resource.
func (l *Local) Pin(by int) { l.pinned += by }

// Receive applies a message of the owner. It reports whether the message brought new permits or
// tokens.
func (l *Local) Receive(m ToPlace) (more bool) {
	l.block += m.Permits
	l.tokens += m.Tokens
	l.want = max(l.want-int64(m.Permits), 0)
	l.wantTokens = max(l.wantTokens-m.Tokens, 0)
	l.over = max(l.over-m.Permits, 0)
	l.recalled.Cut += m.Cut
	l.recalled.Turn += m.Turn
	l.recalled.Spare += m.Spare
	l.recalled.atMost(l.block)
	return m.Permits > 0 || m.Tokens > 0
}

// CorrectBelief corrects this place's copy of what the owner believes about the place. The caller
// calls it when no message of the place is on its way. The copy becomes wrong if a grant of the
// owner crosses a message of the place: the place subtracts the grant from its copy, and then the
// owner replaces its own number by the number in the message. If the copy is wrong and the place
// needs no further permits, the place could think that the owner knows this already. Then the place
// would send no message, and the owner would keep permits for the place.
func (l *Local) CorrectBelief(want int, tokens int64, over int) {
	l.want, l.wantTokens, l.over = int64(want), tokens, over
}

// Tell returns the next message to the owner. It reports false when there is none.
func (l *Local) Tell() (m ToOwner, ok bool) {
	need, needTokens := l.settle()
	// Wants are rounded up to powers of two, so that a growing number of waiting tasks costs few
	// messages.
	if need > l.want || need == 0 && l.want > 0 {
		l.want, ok = roundUp(need), true
	}
	if needTokens > l.wantTokens || needTokens == 0 && l.wantTokens > 0 {
		l.wantTokens, ok = roundUp(needTokens), true
	}

	// Spent tokens are reported together, when the last leased token is spent.
	if l.back > 0 || l.backTokens > 0 || l.spent > 0 && l.tokens == 0 {
		ok = true
	}
	if over := l.countUncovered(); over != l.over {
		l.over, ok = over, true
	}
	if !ok {
		return m, false
	}

	m = ToOwner{Want: int(l.want), WantTokens: l.wantTokens, Permits: l.back, Tokens: l.backTokens, Spent: l.spent, Over: l.over}
	l.back, l.backTokens, l.spent = 0, 0, 0
	return m, true
}

// countUncovered counts the holders without a permit.
func (l *Local) countUncovered() int {
	if l.numbers.Concurrency == 0 {
		return 0
	}
	return max(len(l.holders)-l.block, 0)
}

// settle puts aside permits and tokens that the owner has recalled or that the place does not need.
// They leave with the next message. settle returns how many permits and tokens are missing.
func (l *Local) settle() (need, needTokens int64) {
	held := len(l.holders)
	if l.numbers.Concurrency == 0 {
		l.release(l.block)
	} else {
		l.release(min(l.recalled.Cut, max(l.block-held, 0)))
		l.release(min(l.recalled.Turn+l.recalled.Spare, max(l.block-held-l.waiting-l.pinned, 0)))
		need = int64(max(l.waiting+held-l.block, 0))
	}

	// A task needs a permit first, then a token. A place that kept tokens for tasks without permits
	// could starve a place that has the permits.
	begin, could := int64(l.waiting), int64(l.waiting+l.pinned)
	if l.numbers.Concurrency > 0 {
		idle := int64(max(l.block-held, 0))
		begin, could = min(begin, idle), min(could, idle)
	}

	if l.numbers.Rate == 0 {
		begin, could = 0, 0
	}

	if more := l.tokens - could; more > 0 {
		l.tokens -= more
		l.backTokens += more
	}

	needTokens = max(begin-l.tokens, 0)
	return need, needTokens
}

// release puts permits aside. The next message gives them back.
func (l *Local) release(n int) {
	l.block -= n
	l.back += n
	l.recalled.answer(n)
	l.recalled.atMost(l.block)
}

// Holders returns the tasks that hold the resource, in no order.
func (l *Local) Holders() []model.TaskRef {
	list := make([]model.TaskRef, 0, len(l.holders))
	for who := range maps.Keys(l.holders) {
		list = append(list, who)
	}
	return list
}

// HolderCount returns how many tasks hold the resource here.
func (l *Local) HolderCount() int { return len(l.holders) }

// Block returns how many permits are leased to this place.
func (l *Local) Block() int { return l.block }

// WaiterCount returns how many tasks wait for the resource here.
func (l *Local) WaiterCount() int { return l.waiting }

// Idle reports whether no task holds the resource or waits for it here.
func (l *Local) Idle() bool { return len(l.holders) == 0 && l.waiting == 0 && l.pinned == 0 }

// Drain puts all idle permits and tokens aside, because the place no longer needs the resource.
// Tell returns the message that gives them back.
func (l *Local) Drain() {
	l.release(max(l.block-len(l.holders), 0))
	l.backTokens += l.tokens
	l.tokens = 0
}

// IsGone reports whether the owner has everything back, so that the Local can be dropped.
func (l *Local) IsGone() bool {
	return l.Idle() && l.block == 0 && l.tokens == 0 && l.back == 0 && l.backTokens == 0 && l.spent == 0 && l.want == 0 && l.wantTokens == 0 && l.over == 0
}

// roundUp returns the smallest power of two that is not below n; 0 stays 0.
func roundUp(n int64) int64 {
	if n < 2 {
		return n
	}
	return 1 << bits.Len64(uint64(n-1))
}
