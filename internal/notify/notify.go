// Package notify carries wake-up hints between nodes.
//
// A hint says where to look, but not what has happened: the receiver reads the store. Hints may be
// lost, duplicated, delayed and reordered. Losing all of them only costs latency.
package notify

import (
	"sync"

	"github.com/perdure/perdure/internal/model"
)

// Kind says what a hint is about.
type Kind uint8

// Kinds of hints.
const (
	Mail       Kind = iota + 1 // messages of other shards wait for Shard, and perhaps requests
	Closed                     // a run that Node waits for has closed, or Node has got an answer
	Membership                 // nodes have joined or left, or shards are free
	Settings                   // Node has changed settings
	Peer                       // messages of other nodes wait for Node
	Requests                   // only requests of other processes wait for Shard
)

// Hint is a wake-up.
type Hint struct {
	Kind  Kind
	Shard model.ShardID
	Node  model.NodeID
}

// Hub passes hints to the subscribers of all other nodes. It may also pass them to the subscribers
// of the publishing node.
type Hub interface {
	// Publish never blocks and never fails. It drops a hint that cannot be sent.
	Publish(h Hint)
	// Subscribe calls fn for every hint until the returned function is called. fn must not block.
	Subscribe(fn func(Hint)) (unsubscribe func())
}

// NoHub is the hub of a node without other nodes. It has no subscribers.
type NoHub struct{}

// Publish drops the hint.
func (NoHub) Publish(Hint) {}

// Subscribe never calls fn.
func (NoHub) Subscribe(func(Hint)) func() { return func() {} }

// Local passes hints within one process, for several nodes in it.
type Local struct {
	mu   sync.Mutex
	next int
	subs map[int]func(Hint)
}

// Publish calls every subscriber.
func (l *Local) Publish(h Hint) {
	l.mu.Lock()
	subs := make([]func(Hint), 0, len(l.subs))
	for _, fn := range l.subs {
		subs = append(subs, fn)
	}
	l.mu.Unlock()
	for _, fn := range subs {
		fn(h)
	}
}

// Subscribe adds a subscriber.
func (l *Local) Subscribe(fn func(Hint)) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs == nil {
		l.subs = map[int]func(Hint){}
	}
	l.next++
	id := l.next
	l.subs[id] = fn
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subs, id)
	}
}
