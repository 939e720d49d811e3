package engine

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	// If there are this many acknowledged answers, the clerk removes them without waiting for more.
	ackBatch = 256
	ackMost  = 10_000      // further answers stay until the sweep
	ackLast  = time.Second // how long a process that ends tries to remove the remaining answers
	ackEvery = clerkPoll   // how long acknowledged answers wait until the clerk removes them
)

// acknowledge notes that a caller has received the answer that an owner stored for its request. The
// clerk can then remove the stored answer.
//
// This is safe for two reasons. The id of the request was drawn for this one request, by the engine
// or by the library of a client. And only one copy of the request can take effect. That copy went
// one of three ways: to a lane of this node, over the connection that brought the answer, or
// through the store, which took the request at the first attempt. So no copy of the request can
// appear after this. A caller that is not sure of that must not call acknowledge. In that case the
// answer stays until the sweep removes it because of its age, and a late copy of the request finds
// this answer.
func (k *clerk) acknowledge(key store.RequestKey) {
	k.mu.Lock()
	if len(k.acked) < ackMost {
		k.acked = append(k.acked, key)
	}
	enough := len(k.acked) == ackBatch
	k.mu.Unlock()

	k.lookout.Expect()
	if enough {
		k.lookout.LookNow()
	}
}

// tidy removes acknowledged answers from the store, many in one call.
func (k *clerk) tidy(ctx context.Context) {
	k.mu.Lock()
	n := len(k.acked)
	if n == 0 || n < ackBatch && time.Since(k.tidied) < ackEvery {
		k.mu.Unlock()
		return
	}
	keys := k.acked
	k.acked = nil
	k.mu.Unlock()

	k.tidied = time.Now()
	// If the call fails, the answers stay until the owner sweeps.
	_, err := k.eng.cfg.Store.Sweep(ctx, store.SweepRequest{Answered: keys})
	note(ctx, k.eng.others.sweep, err)
}

// tidyLast removes the remaining answers when the process ends.
func (k *clerk) tidyLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackLast)
	defer cancel()

	k.tidied = time.Time{}
	k.tidy(ctx)
}

// fillReceipt tells the server of a client two things: the name of the era that clients put into
// the ids that they draw (see package lane), and how to remove the remembered answer to a request
// when the client has received the answer. sole says that there is an answer, and that no other
// copy of the request can arrive.
func (e *Engine) fillReceipt(ctx context.Context, m *model.Message, sole bool) {
	r := model.ReceiptOf(ctx)
	if r == nil {
		return
	}
	r.Era = e.eraOf(m.To)
	if !sole || m.RequestID == "" {
		return
	}
	key := store.RequestKey{Shard: e.layout.Shard(m.To), Address: m.To, ID: m.RequestID}
	r.Forget = func() { e.clerk.acknowledge(key) }
}

// eraOf returns the era of the lane that owns an address, or "" if no lane of this node owns the
// address.
func (e *Engine) eraOf(a model.Address) string {
	inc := e.current()
	if inc == nil {
		return ""
	}
	if s := inc.lane(e.layout.Shard(a)); s != nil {
		if era := s.era.Load(); era != nil {
			return *era
		}
	}
	return ""
}
