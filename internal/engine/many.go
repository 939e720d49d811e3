package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// Sent is the outcome of one of many messages.
type Sent struct {
	Answer model.Answer
	Err    error
}

// manyAtOnce bounds how many messages of one call are in flight to other nodes at the same time.
const manyAtOnce = 64

// SendMany does the same as Send, for many messages. If this node owns the addresses of several
// messages, SendMany puts these messages into the inboxes of the lanes together, so that they share
// commits.
func (e *Engine) SendMany(ctx context.Context, ms []*model.Message) []Sent {
	inc := e.current()
	sent := make([]Sent, len(ms))
	b := &bundle{eng: e, inc: inc, sent: sent, answered: make([]bool, len(ms)), done: make(chan struct{}), again: map[int]attempt{}}
	ops := map[*laneShell][]op{}
	var rest []int

	for i, m := range ms {
		var fresh bool
		ms[i], fresh = withRequestID(m)
		var s *laneShell
		if inc != nil {
			s = inc.lane(inc.shardOf(m.To))
		}
		if s == nil {
			rest = append(rest, i)
			continue
		}
		b.left.Add(1)
		ops[s] = append(ops[s], op{message: ms[i], fresh: fresh, token: part{b, i}})
	}

	// This function counts as one more message, so that done is not closed before all messages are
	// queued.
	b.left.Add(1)
	for s, ops := range ops {
		for n, err := s.inbox.putAll(ctx, ops); err != nil && n < len(ops); n++ {
			ops[n].token.(part).finish(&lane.Answer{Err: err})
		}
	}

	b.over()
	select {
	case <-b.done:
	case <-ctx.Done():
		what := fmt.Sprintf("send %d messages", len(ms))
		for s, ops := range ops {
			why := s.gaveUp(ctx, what) // this lane may know the error of the store
			for i := range ops {
				if isAwaited(ops[i].message) {
					s.forget(ops[i].message.To, ops[i].token)
				}
				b.failCall(ops[i].token.(part).i, why)
			}
		}
		return b.abandon(e.gaveUp(ctx, "%s", what))
	}

	rest = slices.AppendSeq(rest, maps.Keys(b.again))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(manyAtOnce, len(rest)) {
		wg.Go(func() {
			for i := range next {
				sent[i].Answer, sent[i].Err = e.send(ctx, ms[i], false, b.again[i])
			}
		})
	}

	for _, i := range rest {
		next <- i
	}
	close(next)
	wg.Wait()

	return sent
}

// bundle collects the answers to many messages. Its caller waits for all of them.
type bundle struct {
	eng  *Engine
	inc  *incarnation // whose lanes got the messages; nil if there was none
	left atomic.Int64
	done chan struct{}

	mu       sync.Mutex
	sent     []Sent // nil once the caller has given up
	answered []bool
	// again has the messages that must be sent again, because the lane is not their owner or its
	// answer may be out of date. The attempt says what became of the first one.
	again map[int]attempt
}

// part is one of the messages.
type part struct {
	b *bundle
	i int
}

func (p part) finish(a *lane.Answer) {
	stale := p.b.eng.mayBeStale(p.b.inc, a)
	p.b.mu.Lock()
	if p.b.sent != nil {
		p.b.sent[p.i], p.b.answered[p.i] = Sent{a.Answer, a.Err}, true
		if stale || errors.Is(a.Err, lane.ErrNotOwner) {
			p.b.again[p.i] = attempt{taken: stale || a.Token != nil}
		}
	}
	p.b.mu.Unlock()
	p.b.over()
}

func (b *bundle) over() {
	if b.left.Add(-1) == 0 {
		close(b.done)
	}
}

// failCall gives an unanswered call an error when the caller gives up.
func (b *bundle) failCall(i int, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent != nil && !b.answered[i] {
		b.sent[i].Err, b.answered[i] = why, true
	}
}

// abandon returns what is known when the caller gives up.
func (b *bundle) abandon(why error) []Sent {
	b.mu.Lock()
	defer b.mu.Unlock()
	sent := b.sent
	b.sent = nil
	for i := range sent {
		if !b.answered[i] {
			sent[i].Err = why
		}
	}
	return sent
}
