package engine

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
)

// Flow returns the settings for tasks.
func (e *Engine) Flow() *flow.Flow { return e.flow }

// flowNode implements flow.Node.
type flowNode struct{ e *Engine }

func (n flowNode) Now() model.Time { return n.e.clock.now() }

func (n flowNode) Beside(do func(ctx context.Context)) bool { return n.e.beside.run(do) }

func (flowNode) Await(ctx context.Context, ready <-chan struct{}) bool {
	select {
	case <-ready:
		return true
	case <-ctx.Done():
		return false
	}
}

func (n flowNode) Pause(ctx context.Context, d time.Duration) bool { return n.e.pause(ctx, d) }

func (n flowNode) Hint() {
	h := notify.Hint{Kind: notify.Settings, Node: n.e.guest}
	if inc := n.e.current(); inc != nil {
		h.Node = inc.self.ID
	}
	n.e.cfg.Hints.Publish(h)
}

func (n flowNode) Participant() *flow.Participant {
	if inc := n.e.current(); inc != nil {
		return inc.participant
	}
	return nil
}

func (n flowNode) Retain(of map[string]time.Duration) {
	if inc := n.e.current(); inc != nil {
		inc.everywhere(func(l *lane.Lane, _ model.Time) { l.Retain(of) })
	}
}

func (n flowNode) Announce(changes []model.Change) {
	if n.e.feed.On() {
		n.e.feed.Publish(changes)
	}
}

func (n flowNode) Works() bool { return len(n.e.taskWorkers.all()) > 0 }

// participantLife implements flow.Life.
type participantLife struct{ inc *incarnation }

func (l participantLife) KnownShards(ctx context.Context) (shards []model.ShardID, ok bool, err error) {
	for _, s := range l.inc.lanes {
		known := make(chan []model.ShardID, 1)
		if !s.inbox.result(func(l *lane.Lane, _ model.Time) { known <- l.KnownShards() }) {
			return nil, false, nil
		}
		select {
		case ids := <-known:
			shards = append(shards, ids...)
		case <-ctx.Done():
			return nil, false, fault.New(fault.Timeout, "the lane does not answer: %w", context.Cause(ctx))
		}
	}
	return shards, true, nil
}

func (l participantLife) LookAround() { l.inc.post(l.inc.member.RenewNow) }
