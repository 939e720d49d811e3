package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// TestInboxGivesBack checks that ops that a lane had no room for come before later ones.
func TestInboxGivesBack(t *testing.T) {
	t.Parallel()
	b := newInbox(10, 1<<20)
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

// large is an op with a message of about the given size.
func large(n int) op {
	return op{message: &model.Message{Kind: model.MessageSignal, Input: model.Payload{Data: make([]byte, n)}}}
}

// TestInboxBytesAreBounded checks that a message waits while the earlier messages have too many
// bytes. It waits until the lane has applied these messages. Reports and turns do not wait.
func TestInboxBytesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newInbox(100, 10_000)
		put := func(o op) <-chan error {
			done := make(chan error, 1)
			go func() { done <- b.put(t.Context(), o) }()
			synctest.Wait()
			return done
		}
		waits := func(what string, done <-chan error) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("%s does not wait: %v", what, err)
			default:
			}
		}
		goes := func(what string, done <-chan error) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-done:
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			default:
				t.Fatalf("%s waits", what)
			}
		}

		goes("a message that is larger than the limit", put(large(50_000)))
		second := put(large(1))
		waits("a message behind it", second)
		goes("a report", put(op{report: &model.TaskReport{}}))
		goes("a turn", put(op{turn: &model.Turn{}}))
		b.follow(op{task: 1})

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.put(gone, large(1)); !fault.Is(err, fault.Exhausted) {
			t.Errorf("a caller that gives up hears %v, want that the engine is full", err)
		}

		ops, _ := b.take(false, nil, nil)
		if len(ops) != 4 {
			t.Fatalf("took %d ops", len(ops))
		}
		waits("a message, before the lane has the one before it,", second)
		b.giveBack(ops)
		waits("a message, when the lane has given all back,", second)
		ops, _ = b.take(false, nil, nil)
		b.releaseBytes(ops[0].bytes)
		goes("a message, when the lane has the one before it,", second)
		ops, _ = b.take(false, nil, nil)
		b.releaseBytes(ops[0].bytes)
		if b.bytes != 0 {
			t.Errorf("%d bytes of nothing are counted", b.bytes)
		}
	})
}

// TestInboxOfManyLargeMessages checks that putAll adds many large messages in portions, as the lane
// makes room for them.
func TestInboxOfManyLargeMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newInbox(100, 10_000)
		ops := make([]op, 30)
		for i := range ops {
			ops[i] = large(4_000)
		}
		done := make(chan int, 1)

		go func() {
			n, _ := b.putAll(t.Context(), ops)
			done <- n
		}()

		for taken := 0; taken < len(ops); {
			<-b.wake
			synctest.Wait()
			got, _ := b.take(false, nil, nil)
			if len(got) > 3 {
				t.Fatalf("%d messages of 4 kB wait, at most 3 may for a limit of 10 kB", len(got))
			}
			for i := range got {
				b.releaseBytes(got[i].bytes)
			}
			taken += len(got)
		}

		if n := <-done; n != len(ops) {
			t.Errorf("%d messages were put", n)
		}
	})
}
