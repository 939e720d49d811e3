package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/peerlink"
	"github.com/perdure/perdure/internal/peerlink/lan"
)

// A caller on another node gives up while its request still waits for room in the inbox of the
// lane. The lane must forget the caller after it has taken the request, not before. Otherwise it
// would register the caller afterwards, and keep it until the execution ends.
func TestForgetsAfterTheRequest(t *testing.T) {
	t.Parallel()
	address := model.Address{Tenant: "default", Type: "order", Key: "1"}
	for name, q := range map[string]ask{
		"run":    {Kind: askRun, message: &model.Message{Kind: model.MessageStart, To: address}},
		"update": {Kind: askSend, message: &model.Message{Kind: model.MessageUpdate, To: address, Name: "u", RequestID: "1"}},
		"await":  {Kind: askAwait, Address: address},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inc := newLife(true)
				s := &laneShell{inc: inc, inbox: newInbox(1, 1<<20)}
				inc.lanes, inc.owner = []*laneShell{s}, make([]atomic.Int32, 1)
				inc.owner[0].Store(1)
				inc.eng.beside.open(t.Context())
				defer inc.eng.beside.wg.Wait()
				caller := linkTo(t, &linkHandler{inc: inc})

				filler := op{bytes: 1}
				if err := s.inbox.put(t.Context(), filler); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, _, err := caller.Call(ctx, model.NodeID{2}, q.encode()); err == nil {
					t.Fatal("the request has an answer")
				}

				synctest.Wait()
				if ops, _ := s.inbox.take(false, nil, nil); len(ops) != 1 {
					t.Errorf("%d inputs were put before the request", len(ops))
				}
				synctest.Wait()
				ops, _ := s.inbox.take(false, nil, nil)
				if len(ops) != 2 || ops[0].token == nil || ops[1].token != nil || ops[1].do == nil {
					t.Errorf("the request and its withdrawal became %d inputs: %+v", len(ops), ops)
				}
			})
		})
	}
}

// linkTo connects another node, number 1, to a handler, number 2. The connection ends with the
// test.
func linkTo(t *testing.T, handler peerlink.Handler) *peerlink.Net {
	t.Helper()
	caller, _ := linkIn(t, &lan.LAN{}, handler)
	return caller
}

// linkIn is linkTo in a network. It also returns the side of the handler.
func linkIn(t *testing.T, net *lan.LAN, handler peerlink.Handler) (caller, own *peerlink.Net) {
	t.Helper()
	handlers := map[byte]peerlink.Handler{1: nil, 2: handler}
	nets := map[byte]*peerlink.Net{}
	var peers []peerlink.Peer
	for n, h := range handlers {
		if h == nil {
			h = &linkHandler{inc: newLife(true)}
		}
		host := string('0' + rune(n))
		end, err := peerlink.Listen(peerlink.Config{Listener: net.Listen(host), Dial: net.Dial})
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, peerlink.Peer{Node: model.NodeID{n}, Address: host, Fingerprint: end.Fingerprint()})
		own := end.Join(peerlink.Member{Self: model.NodeID{n}, Handler: h, LookAround: func() {}})
		nets[n] = own
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			own.Run(ctx)
		}()
		t.Cleanup(func() {
			cancel()
			<-done
			_ = end.Close()
		})
	}

	nets[1].SetPeers(peers)
	nets[2].SetPeers(peers)
	for !nets[1].Connected(model.NodeID{2}) || !nets[2].Connected(model.NodeID{1}) {
		time.Sleep(time.Millisecond)
	}
	return nets[1], nets[2]
}
