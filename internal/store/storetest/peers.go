package storetest

import (
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

func together(o *Options) bool { return !o.Alone }

var peerTests = []test{
	{name: "messages are taken once, in order", run: testPeerMail, needs: together},
	{name: "messages are taken in bounded pages", run: testPeerMailPages, needs: together},
	{name: "the renewal tells whether messages wait", run: testPeerMailView, needs: together},
	{name: "old messages are swept", run: testPeerMailSweep, needs: together},
	{name: "a store that is opened alone has no peers", run: testPeerMailAlone, needs: func(o *Options) bool { return o.Alone }},
}

func (x *suite) peerMessage(from, to model.NodeID, body string) store.PeerMail {
	return store.PeerMail{From: from, To: to, ID: x.RunID(), Re: x.RunID(), Body: []byte(body)}
}

func (x *suite) post(rows ...store.PeerMail) {
	x.Helper()
	if err := x.Store.PutPeerMail(x.Context(), rows); err != nil {
		x.Fatalf("put peer mail: %v", err)
	}
}

func (x *suite) takePeerMail(node model.NodeID, limit, maxBytes int) []store.PeerMail {
	x.Helper()
	return try(x.Store.TakePeerMail(x.Context(), node, limit, maxBytes)).or(x)
}

func testPeerMail(x *suite) {
	a, b := x.NodeID(), x.NodeID()
	first, second, other := x.peerMessage(a, b, "\x00first"), x.peerMessage(a, b, ""), x.peerMessage(b, a, "back")
	first.Re = model.RunID{}
	x.post()
	x.post(second, other)
	x.post(first, second) // put the same notes again
	got := x.takePeerMail(b, 10, 1<<20)
	for i := range got {
		got[i].Body = append([]byte{}, got[i].Body...) // an empty body may be nil
	}
	x.Want("the messages for b", []store.PeerMail{first, second}, got)
	x.Want("once more", 0, len(x.takePeerMail(b, 10, 1<<20)))
	x.Want("the messages for a", []store.PeerMail{other}, x.takePeerMail(a, 10, 1<<20))
}

func testPeerMailPages(x *suite) {
	a, b := x.NodeID(), x.NodeID()
	var all []store.PeerMail
	for range 5 {
		all = append(all, x.peerMessage(a, b, "0123456789"))
	}
	x.post(all...)
	x.Want("by number", all[:2], x.takePeerMail(b, 2, 1<<20))
	x.Want("by size", all[2:4], x.takePeerMail(b, 10, 25))
	x.Want("at least one", all[4:], x.takePeerMail(b, 10, 1))
}

func testPeerMailView(x *suite) {
	n, o := x.Join(1), x.Join(1)
	renew := func(n *Node) bool {
		return try(x.Store.Renew(x.Context(), store.RenewRequest{Node: n.ID, Epoch: n.Epoch, TTL: time.Hour})).or(x).PeerMail
	}
	x.Want("nothing waits", false, renew(n))
	x.post(x.peerMessage(o.ID, n.ID, "x"))
	x.Want("something waits", true, renew(n))
	x.Want("nothing waits for others", false, renew(o))
	x.takePeerMail(n.ID, 1, 1)
	x.Want("it was taken", false, renew(n))
}

func testPeerMailSweep(x *suite) {
	a, b := x.NodeID(), x.NodeID()
	at := model.Time(1_700_000_000_000_000)
	var all []store.PeerMail
	for i := range 4 {
		l := x.peerMessage(a, b, "x")
		l.ID = store.OldestID(at.Add(time.Duration(i) * time.Second))
		all = append(all, l)
	}

	x.post(all...)
	sweep := func(before model.Time, limit int) int {
		return try(x.Store.Sweep(x.Context(), store.SweepRequest{PeerMailBefore: before, Limit: limit})).or(x)
	}
	x.Want("nothing is to go", 0, sweep(0, 10))
	x.Want("bounded", 1, sweep(at.Add(2*time.Second), 1))
	x.Want("the rest", 1, sweep(at.Add(2*time.Second), 10))
	x.Want("what is left", all[2:], x.takePeerMail(b, 10, 1<<20))
}

func testPeerMailAlone(x *suite) {
	n := x.Join(1)
	if err := x.Store.PutPeerMail(x.Context(), []store.PeerMail{x.peerMessage(n.ID, n.ID, "x")}); store.ClassOf(err) != store.Refused {
		x.Errorf("a message: %v, want a refusal", err)
	}
	x.Want("messages", 0, len(x.takePeerMail(n.ID, 1, 1)))
}
