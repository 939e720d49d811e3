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

// Node is the process that a Flow belongs to.
type Node interface {
	// Now returns the store's time.
	Now() model.Time
	// Beside runs do on a goroutine that ends with the node. It returns false if the node has
	// ended.
	Beside(do func(ctx context.Context)) (begun bool)
	// Await waits until ready delivers a value. If several callers wait, they get values in the
	// order in which they came. It returns false if ctx ended first.
	Await(ctx context.Context, ready <-chan struct{}) bool
	// Pause waits before a retry. It returns false if ctx or the node has ended.
	Pause(ctx context.Context, d time.Duration) bool
	// Hint makes other nodes look at the settings.
	Hint()
	// Participant returns the participant of the node's current life. It returns nil if the node
	// executes nothing.
	Participant() *Participant
	// Retain makes the node keep closed runs of these tenants for these times.
	Retain(of map[string]time.Duration)
	// Announce reports changed settings to the callers that watch. It never waits.
	Announce(changes []model.Change)
	// Works reports whether a worker on this node executes tasks.
	Works() bool
}

// Board has the tasks and the gate of one life of the node. Its lock protects both. Callbacks must
// not keep their arguments after the call.
type Board interface {
	// Look calls do with the lock held.
	Look(do func(k *BoardGate, tasks *queue.Board))
	// Change calls do with the lock held. Then, still with the lock, it acts on the gate: it queues
	// woken groups, which the board tries again, and lets Flow collect what must be stored. If do
	// returns true, the board also looks for tasks to propose.
	Change(now model.Time, do func(k *BoardGate, tasks *queue.Board) (moved bool))
	// Configure calls Flow.Configure with the lock held, acts on the gate as Change does, and
	// proposes the tasks that can start.
	Configure(now model.Time, s Settings)
	// Propose asks the lanes to decide about tasks that can start, if anything has changed since
	// the last time.
	Propose()
	// Reconsider does the same as Propose, even if nothing has changed, because the time at which a
	// page is due may be different now.
	Reconsider()
}

// Settings are the settings of people, and what nodes have written about them. Breakers and Pages
// contain only what another node has changed. A nil state of a breaker means that the breaker was
// reset.
type Settings struct {
	Rules    *rule.Set
	Paused   map[Queue]string // with the reason
	Breakers map[rule.BreakerID][]byte
	Pages    map[int][]byte
	Weights  map[string]int // of tenants; the default is 1
}

// Queue names a queue of a tenant.
type Queue struct{ Tenant, Name string }

func (q Queue) compare(o Queue) int {
	return cmp.Or(strings.Compare(q.Tenant, o.Tenant), strings.Compare(q.Name, o.Name))
}
