package engine

import (
	"context"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/engine/queue"
)

// TestInboxGivesBack checks that ops which a lane had no room for come before those that were put since.
func TestInboxGivesBack(t *testing.T) {
	t.Parallel()
	b := newInbox(10)
	put := func(ids ...queue.WorkerID) {
		for _, id := range ids {
			if err := b.put(context.Background(), op{task: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(1, 2, 3)
	ops, _ := b.take(false, nil, nil)
	put(4)
	b.giveBack(ops[1:])
	clear(ops)
	put(5)

	var got []queue.WorkerID
	ops, _ = b.take(false, ops, nil)
	for i := range ops {
		got = append(got, ops[i].task)
	}
	if want := []queue.WorkerID{2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("the inbox has %v, want %v", got, want)
	}
}
