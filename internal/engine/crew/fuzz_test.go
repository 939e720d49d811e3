package crew

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// FuzzFrame reads frames that another node may send. If a frame can be read, it is the same after
// it was encoded and read again. No frame makes a node crash, whichever side receives it.
func FuzzFrame(f *testing.F) {
	session := model.RunID{7}
	worker := &hand{}
	join := worker.hands().join([]string{"order"})
	join.Role = 1
	for _, seed := range []*frame{
		{Side: asking},
		{Session: session, Side: bySender, Number: 1, Parcels: []parcel{join}},
		{Session: session, Side: bySender, Number: 1, Parcels: []parcel{join, {Kind: withdraw, Role: 1}, {Kind: leave, Role: 1}}},
		{Session: session, Side: bySender, Number: 1, Parcels: []parcel{join, {Kind: granted, Role: 1, N: -1}, {Kind: fromWorker, Role: 1, Body: []byte{1}}}},
		{Session: session, Side: byOwner, Number: 1, Parcels: []parcel{{Kind: toWorker, Role: 1, Body: []byte{1}, More: true}, {Kind: lose, Role: 1}}},
	} {
		f.Add(seed.encode())
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeFrame(b)
		if err != nil {
			return
		}
		again, err := decodeFrame(got.encode())
		if err != nil || !bytes.Equal(again.encode(), got.encode()) {
			t.Fatalf("%+v is read as %+v, %v", got, again, err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		log := slog.New(slog.DiscardHandler)
		o := NewOwnerSide(nil, &place{}, log)
		c := &contract{exchange: newExchange(nil, nodeID(2), session, byOwner), owner: o, roles: map[uint64]role{}}
		c.take = c.receive
		_ = c.open(ctx, &got) // an error ends the session

		h := NewHostSide(HostConfig{Self: nodeID(1), Log: log, Workers: func() []Hands { return nil }})
		d := &deal{exchange: newExchange(nil, nodeID(2), session, bySender), host: h, outlets: map[uint64]*outlet{}}
		d.take = d.receive
		hands := (&hand{}).hands()
		d.outlets[1] = &outlet{deal: d, id: 1, hands: hands, withdrawn: make(chan struct{})}
		got, _ = decodeFrame(b)
		_ = d.open(ctx, &got)
	})
}
