package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/peerlink"
	"github.com/perdure/perdure/internal/peerlink/lan"
)

// newLanes returns an incarnation with lanes that have the given room and are not run.
func newLanes(t *testing.T, room ...int) *incarnation {
	t.Helper()
	inc := newLife(true)
	inc.eng.beside.open(t.Context())
	inc.owner, inc.eng.layout = make([]atomic.Int32, len(room)), model.NewLayout(len(room), nil)
	for i, n := range room {
		inc.lanes = append(inc.lanes, &laneShell{inc: inc, index: i, inbox: newInbox(n, 1<<20)})
		inc.owner[i].Store(int32(i) + 1)
	}
	return inc
}

// askIn returns a request for a shard of a lane.
func askIn(kind askKind, shard model.ShardID, shards int) ask {
	for n := 0; ; n++ {
		a := model.Address{Tenant: "default", Type: "order", Key: fmt.Sprint(n)}
		if a.Shard(shards) != shard {
			continue
		}
		q := ask{Kind: kind, Address: a}
		if kind != askAwait {
			q.message = &model.Message{Kind: model.MessageSignal, To: a, Name: "s", RequestID: fmt.Sprint(n)}
		}
		return q
	}
}

// A lane without room does not delay requests to other lanes of the node, however many requests
// wait for the full lane. Requests without room in its line go through the store.
func TestFullLaneDelaysNoOther(t *testing.T) {
	t.Parallel()
	for _, kind := range []askKind{askSend, askAwait} {
		synctest.Test(t, func(t *testing.T) {
			inc := newLanes(t, 1, 100)
			full, other := inc.lanes[0], inc.lanes[1]
			caller := linkTo(t, &linkHandler{inc: inc})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			var wg sync.WaitGroup
			var moved atomic.Int64
			send := func(q ask) {
				wg.Go(func() {
					body, _, err := caller.Call(ctx, model.NodeID{2}, q.encode())
					if err != nil {
						return
					}
					if got, err := decodeTold(body); err == nil && got.Moved && got.Taken {
						moved.Add(1)
					}
				})
			}
			const more = 100
			// One request is in the inbox, and one has left the line and waits for room.
			for range 2 {
				send(askIn(kind, 0, 2))
			}
			synctest.Wait()
			// maxLine requests are in the line. The rest finds no room.
			for range maxLine + more {
				send(askIn(kind, 0, 2))
			}
			synctest.Wait()
			if n := moved.Load(); n != more {
				t.Errorf("%d requests go through the store, want %d", n, more)
			}
			send(askIn(kind, 1, 2))
			synctest.Wait()
			if n := other.inbox.len(); n != 1 {
				t.Errorf("%d requests have reached the other lane", n)
			}

			// When the lane has room, it gets the requests in order.
			got := 0
			for range maxLine + 2 {
				ops, _ := full.inbox.take(false, nil, nil)
				got += len(ops)
				for i := range ops {
					full.inbox.releaseBytes(ops[i].bytes)
				}
				synctest.Wait()
			}
			if got != maxLine+2 {
				t.Errorf("the lane got %d requests, want %d", got, maxLine+2)
			}
			cancel()
			wg.Wait()
			inc.eng.beside.wg.Wait()
		})
	}
}

// late is a handler that gets requests late.
type late struct {
	*linkHandler
	gate chan struct{}
}

func (l late) HandleRequest(ctx context.Context, r *peerlink.Request, taken func()) {
	<-l.gate
	l.linkHandler.HandleRequest(ctx, r, taken)
}

// The caller of a request has gone before the node looked at the request. The request must have no
// effect. The caller may have sent it through the store to another owner, and this node may have
// got the shard back since.
func TestRequestOfALostCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inc := newLanes(t, 10)
		h := late{&linkHandler{inc: inc}, make(chan struct{})}
		caller, own := linkIn(t, &lan.LAN{}, h)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		q := askIn(askSend, 0, 1)
		if _, _, err := caller.Call(ctx, model.NodeID{2}, q.encode()); err == nil {
			t.Fatal("the request has an answer")
		}
		synctest.Wait()
		close(h.gate)
		synctest.Wait()
		if n := inc.lanes[0].inbox.len(); n != 0 {
			t.Errorf("the lane got %d requests", n)
		}

		// The request of a caller that still waits has the current tenure.
		inc.tenure.Store(7)
		own.Mark(7)
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, _ = caller.Call(ctx, model.NodeID{2}, q.encode())
		ops, _ := inc.lanes[0].inbox.take(false, nil, nil)
		if len(ops) == 0 || ops[0].tenure != 7 {
			t.Errorf("the lane got %+v", ops)
		}
	})
}

// A request is on its way to the owner when its sender gives up the connection. The sender sends a
// copy through the store. The shard moves to another node, which applies the copy, and back. Then
// the request arrives. The owner must not believe that its id was never used.
func TestRequestThatIsOvertakenByItsCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inc := newLanes(t, 10)
		inc.lanes[0].lane = &lane.Lane{}
		var delay lan.Late
		network := &lan.LAN{}
		network.Bend(delay.Wrap)
		caller, own := linkIn(t, network, &linkHandler{inc: inc})

		delay.Hold()
		lost := make(chan error, 1)
		q := askIn(askSend, 0, 1)
		q.Fresh = true
		go func() {
			_, _, err := caller.Call(t.Context(), model.NodeID{2}, q.encode())
			lost <- err
		}()
		synctest.Wait()
		caller.SetPeers(nil)
		if err := <-lost; !errors.Is(err, peerlink.ErrLost) {
			t.Fatalf("the request: %v", err)
		}

		own.Mark(uint64(inc.tenure.Add(1))) // as the node does when it acquires shards
		synctest.Wait()
		delay.Release()
		synctest.Wait()
		ops, _ := inc.lanes[0].inbox.take(false, nil, nil)
		if len(ops) != 1 || ops[0].message == nil || inc.lanes[0].isFresh(&ops[0]) {
			t.Errorf("the lane got %d requests, and believes that the first one is fresh", len(ops))
		}
	})
}

// When other nodes wait for the ends of executions, the node reads the store for only a few of them
// at the same time. Further reads wait, and block nothing.
func TestManyLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{}
		e.beside.open(t.Context())
		var k looks
		var running, most, done atomic.Int64
		gate := make(chan struct{})
		for range 5 * maxLooks {
			k.start(e, func(context.Context) {
				most.Store(max(most.Load(), running.Add(1)))
				<-gate
				running.Add(-1)
				done.Add(1)
			})
		}
		synctest.Wait()
		if n := running.Load(); n != maxLooks {
			t.Errorf("%d reads run", n)
		}
		close(gate)
		e.beside.wg.Wait()
		if done.Load() != 5*maxLooks || most.Load() > maxLooks || k.running != 0 {
			t.Errorf("%d reads are done, at most %d at a time, %d still run", done.Load(), most.Load(), k.running)
		}
	})
}
