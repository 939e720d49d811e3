package flow

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// Node is the process that a Flow is part of.
type Node interface {
	// Now is store time.
	Now() model.Time
	// Beside runs something in a goroutine of its own, which ends with the node. It reports false
	// when the node has ended.
	Beside(do func(ctx context.Context)) (begun bool)
	// Await waits until it has received something; who waits first receives first. It reports false
	// when ctx has ended.
	Await(ctx context.Context, ready <-chan struct{}) bool
	// Pause waits before something is tried again. It reports false when ctx or the node has ended.
	Pause(ctx context.Context, d time.Duration) bool
	// Hint has other nodes look at the settings.
	Hint()
	// Seat is that of the life that the node lives now; nil when it executes nothing.
	Seat() *Seat
	// Works reports whether anybody here executes tasks.
	Works() bool
}

// Board has the tasks and the gate of one life of the node. Its lock protects both; what it hands
// out is used under the lock and not kept.
type Board interface {
	// Look calls do with the lock held.
	Look(do func(k *Gatekeeper, tasks *queue.Board))
	// Change calls do with the lock held, and then, still with the lock, does what the gate asks
	// for: groups that were woken are to be tried, and Flow collects what is to be stored. When do
	// reports so, there may be something to propose in any case.
	Change(now model.Time, do func(k *Gatekeeper, tasks *queue.Board) (moved bool))
	// Configure calls Flow.Configure with the lock held, does what the gate asks for, and proposes
	// what can begin.
	Configure(now model.Time, s Settings)
	// Propose has lanes decide about what can begin, if anything has changed since that was last
	// looked for.
	Propose()
	// Reconsider is Propose whether or not anything has changed: the time at which a page is due
	// may be another one now.
	Reconsider()
}

// Settings are what people have set, and what nodes have written about it. Breakers and Pages are
// those that somebody else has changed; nil for a breaker that is to begin anew.
type Settings struct {
	Rules    *rule.Set
	Paused   map[Queue]string // and why
	Breakers map[rule.BreakerID][]byte
	Pages    map[int][]byte
}

// Queue is a queue of a tenant.
type Queue struct{ Tenant, Name string }

func (q Queue) compare(o Queue) int {
	return cmp.Or(strings.Compare(q.Tenant, o.Tenant), strings.Compare(q.Name, o.Name))
}
