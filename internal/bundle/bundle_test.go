package bundle_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/internal/bundle"
)

// Everything that is posted is sent once, in the order of each poster. Items that wait for the same
// bundle go together.
func TestSender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := bundle.NewSender[[2]int](16 << 20)
		ctx, cancel := context.WithCancel(t.Context())
		var got [][2]int
		bundles := 0
		first, release := make(chan struct{}), make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- s.Run(ctx, func(items [][2]int) error {
				got = append(got, items...)
				if bundles++; bundles == 1 {
					close(first)
					<-release
				}
				return nil
			})
		}()

		s.Post([2]int{0, 0}, 1)
		<-first
		var posters sync.WaitGroup
		for p := range 5 {
			posters.Go(func() {
				for i := range 100 {
					s.Post([2]int{p + 1, i}, 1)
				}
			})
		}
		posters.Wait()
		close(release)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}

		if len(got) != 501 || bundles != 2 {
			t.Errorf("%d items in %d bundles, want 501 in 2", len(got), bundles)
		}
		next := map[int]int{}
		for _, item := range got {
			if item[1] != next[item[0]] {
				t.Fatalf("item %d of poster %d came when %d was next", item[1], item[0], next[item[0]])
			}
			next[item[0]]++
		}
	})
}

// The sender fills a bundle up to its size. An item that is larger goes in a bundle of its own.
func TestSizeOfBundles(t *testing.T) {
	t.Parallel()
	s := bundle.NewSender[int](16 << 20)
	half := bundle.MaxBytes / 2
	for i, size := range []int{half, half, 1, 3 * bundle.MaxBytes, 1, 1} {
		s.Post(i, size)
	}
	var got [][]int
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx, func(items []int) error { got = append(got, slices.Clone(items)); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := [][]int{{0, 1}, {2}, {3}, {4, 5}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("bundles %v, want %v", got, want)
	}
}

// A sender that is full says so. A caller that waits for room continues when there is room.
func TestRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := bundle.NewSender[int](16 << 20)
		s.Post(1, bundle.MaxWaiting)
		if !s.IsFull() {
			t.Fatal("the sender is not full")
		}
		ended, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		cancel(why)
		if err := s.WaitForRoom(ended); !errors.Is(err, why) {
			t.Errorf("the wait ended with %v", err)
		}

		room := make(chan error, 1)
		go func() { room <- s.WaitForRoom(t.Context()) }()
		synctest.Wait()
		select {
		case <-room:
			t.Error("there is room in a full sender")
		default:
		}

		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := s.Run(ctx, func([]int) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := <-room; err != nil {
			t.Error(err)
		}
	})
}

// The error of a stream ends the sender.
func TestSendFails(t *testing.T) {
	t.Parallel()
	s := bundle.NewSender[int](16 << 20)
	s.Post(1, 1)
	broken := errors.New("broken")
	if err := s.Run(t.Context(), func([]int) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the sender ended with %v", err)
	}
}

// The goroutine of the caller sends an item that is alone. An item keeps its place behind others
// that wait or are being sent.
func TestSenderSendsAloneItemsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := bundle.NewSender[int](16 << 20)
		ctx, cancel := context.WithCancel(t.Context())
		var got [][]int
		hold := make(chan struct{})
		done := make(chan error, 1)
		s.PostAlone(0, 1) // before Run
		go func() {
			done <- s.Run(ctx, func(items []int) error {
				got = append(got, slices.Clone(items))
				if items[0] == 2 {
					<-hold
				}
				return nil
			})
		}()
		synctest.Wait()

		s.PostAlone(1, 1)
		if len(got) != 2 || got[1][0] != 1 {
			t.Errorf("sent %v, want 0 and 1", got)
		}
		s.Post(2, 1)
		synctest.Wait()
		s.PostAlone(3, 1)
		s.PostAlone(4, 1)
		close(hold)
		synctest.Wait()
		if want := [][]int{{0}, {1}, {2}, {3, 4}}; !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("sent %v, want %v", got, want)
		}

		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		s.PostAlone(5, 1)
		if len(got) != 4 {
			t.Error("an item was sent after Run had returned")
		}
	})
}

// Run returns the error that the goroutine of a caller got.
func TestSenderEndsWhenACallerCannotSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := bundle.NewSender[int](16 << 20)
		broken := errors.New("broken")
		done := make(chan error, 1)
		go func() { done <- s.Run(t.Context(), func([]int) error { return broken }) }()
		synctest.Wait()
		s.PostAlone(1, 1)
		if err := <-done; !errors.Is(err, broken) {
			t.Errorf("Run returned %v, want %v", err, broken)
		}
	})
}
