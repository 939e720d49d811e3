package notify_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
)

const mostPayload = 7900

func TestPayloads(t *testing.T) {
	t.Parallel()
	if got := notify.Encode(nil, 100); got != nil {
		t.Errorf("nothing became %q", got)
	}

	hints := make(map[notify.Hint]struct{})
	for i := range 1000 {
		hints[notify.Hint{Kind: notify.Mail, Shard: model.ShardID(i)}] = struct{}{}
		var n model.NodeID
		for j := range n {
			n[j] = byte(rand.Int())
		}
		hints[notify.Hint{Kind: notify.Closed, Node: n}] = struct{}{}
	}

	hints[notify.Hint{Kind: notify.Membership}] = struct{}{}
	payloads := notify.Encode(hints, mostPayload)
	if len(payloads) < 2 || len(payloads) > 5 {
		t.Errorf("%d payloads", len(payloads))
	}

	got := make(map[notify.Hint]struct{})
	for _, p := range payloads {
		if len(p) > mostPayload {
			t.Errorf("a payload of %d bytes", len(p))
		}
		for _, h := range notify.Decode(p) {
			got[h] = struct{}{}
		}
	}

	if len(got) != len(hints) {
		t.Errorf("%d of %d hints came back", len(got), len(hints))
	}

	for h := range hints {
		if _, ok := got[h]; !ok {
			t.Errorf("%+v is lost", h)
		}
	}

	// A newer node may send more, and a payload may be anything.
	if got := notify.Decode("x12 m7 v2 c!! m-1 m99999 v"); !slices.Equal(got, []notify.Hint{{Kind: notify.Mail, Shard: 7}, {Kind: notify.Membership}}) {
		t.Errorf("decoded %+v", got)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", " ", "m1 v", "c", "m", "cAAAAAAAAAAAAAAAAAAAAAA", strings.Repeat("m1 ", 100)} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, payload string) {
		hints := make(map[notify.Hint]struct{})
		for _, h := range notify.Decode(payload) {
			if h.Shard >= model.MaxShards || h.Kind < notify.Mail || h.Kind > notify.Requests {
				t.Fatalf("%+v", h)
			}
			hints[h] = struct{}{}
		}

		again := make(map[notify.Hint]struct{})
		for _, p := range notify.Encode(hints, mostPayload) {
			for _, h := range notify.Decode(p) {
				again[h] = struct{}{}
			}
		}

		if len(again) != len(hints) {
			t.Fatalf("%d hints became %d", len(hints), len(again))
		}
	})
}
