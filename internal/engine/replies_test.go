package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Streams work from both nodes, whichever owns the entity, and never go through the store. When the
// owner has gone, both sides get a typed error.
func TestStreamsFromAnyNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		stopped := false
		defer func() {
			if !stopped {
				p.close()
			}
		}()
		ctx, caller, worker := t.Context(), p.nodes[0], p.nodes[1]
		before := p.puts.Load()

		for i := range 8 { // each node owns some of the entities
			a := list(fmt.Sprint("stream ", i))
			at := model.ItemsTake{Entity: a, ID: "s", Do: model.TakeOpen}
			if _, err := caller.TakeItems(ctx, &at); err != nil {
				t.Fatal(err)
			}
			sent := make(chan error, 1)
			go func() { sent <- sendNumbers(ctx, worker, a, 200) }()
			if got, err := takeNumbers(ctx, caller, at); err != nil || got != 200 {
				t.Errorf("%d items, %v", got, err)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}

			at.Do = model.TakeLeave
			if _, err := caller.TakeItems(ctx, &at); err != nil {
				t.Error(err)
			}
			if _, err := worker.SendItems(ctx, &model.ItemsSend{Entity: a, ID: "s", First: 201}); !fault.Is(err, fault.NotFound) {
				t.Errorf("the caller has left: %v", err)
			}
		}
		if n := p.puts.Load() - before; n != 0 {
			t.Errorf("%d requests went through the store", n)
		}

		// The second node stops. Streams of its entities are lost, and other streams continue. The
		// ids of the nodes are random, and decide who owns which entity. Of 64 entities each node
		// owns some.
		open := func(i int) model.ItemsTake {
			at := model.ItemsTake{Entity: list(fmt.Sprint("lost ", i)), ID: "s", Do: model.TakeOpen}
			if _, err := caller.TakeItems(ctx, &at); err != nil {
				t.Fatal(err)
			}
			return at
		}
		var all []model.ItemsTake
		for i := range 64 {
			all = append(all, open(i))
		}
		worker.stop()
		if err := <-worker.done; err != nil {
			t.Error(err)
		}
		lost := 0
		for _, at := range all {
			at.Do = model.TakeKeep
			_, err := caller.TakeItems(ctx, &at)
			switch fault.KindOf(err) {
			case fault.NotFound, fault.Unavailable:
				lost++
			default:
				if err != nil {
					t.Error(err)
				}
			}
		}
		if lost == 0 || lost == len(all) {
			t.Errorf("%d of %d streams are lost, want those of one node", lost, len(all))
		}

		stopped = true
		caller.stop()
		if err := <-caller.done; err != nil {
			t.Error(err)
		}
	})
}

// sendNumbers sends numbered items, 50 at a time.
func sendNumbers(ctx context.Context, m *member, a model.Address, n int64) error {
	for first := int64(1); first <= n; {
		r := &model.ItemsSend{Entity: a, ID: "s", First: first}
		for i := first; i <= n && len(r.Items) < 50; i++ {
			r.Items = append(r.Items, model.Payload{Data: fmt.Append(nil, i)})
		}
		r.Ended = first+int64(len(r.Items)) > n
		last, err := m.SendItems(ctx, r)
		if err != nil {
			return err
		}
		first = last + 1
	}
	return nil
}

// takeNumbers takes numbered items until the end.
func takeNumbers(ctx context.Context, m *member, at model.ItemsTake) (int64, error) {
	for at.Do = model.TakeNext; ; {
		page, err := m.TakeItems(ctx, &at)
		if err != nil {
			return at.After, err
		}
		for _, p := range page.Items {
			if at.After++; string(p.Data) != fmt.Sprint(at.After) {
				return at.After, fmt.Errorf("item %d is %s", at.After, p.Data)
			}
		}
		if page.Ended {
			return at.After, nil
		}
	}
}
