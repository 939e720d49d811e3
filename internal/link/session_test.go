package link_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/link"
)

// packet is a frame on a stream.
type packet struct {
	number, acknowledged uint64
	items                []int
}

// pipe is a stream in memory. It breaks when the test says so.
type pipe struct {
	in, out chan packet
	broken  chan struct{}
	// left is how many more frames may be sent before the stream breaks; negative for no end.
	left *int
}

func (p pipe) Send(number, acknowledged uint64, items []int) error {
	if p.left != nil {
		if *p.left == 0 {
			close(p.broken)
			return io.ErrUnexpectedEOF
		}
		*p.left--
	}
	select {
	case p.out <- packet{number, acknowledged, items}:
		return nil
	case <-p.broken:
		return io.ErrUnexpectedEOF
	}
}

func (p pipe) Receive() (number, acknowledged uint64, items []int, err error) {
	select {
	case f := <-p.in:
		return f.number, f.acknowledged, f.items, nil
	case <-p.broken:
		return 0, 0, nil, io.ErrUnexpectedEOF
	}
}

// The test repeats an exchange and breaks the stream before another frame each time, on either
// side. Each side takes everything once and in order.
func TestSessionOutlivesStreams(t *testing.T) {
	t.Parallel()
	const items, streams = 40, 12
	for _, side := range []string{"left", "right"} {
		synctest.Test(t, func(t *testing.T) {
			left, right := link.New[int, int](link.Config{MaxFrame: 3}), link.New[int, int](link.Config{MaxFrame: 5})
			var atLeft, atRight []int
			takeLeft := func(v int) error { atLeft = append(atLeft, v); return nil }
			takeRight := func(v int) error { atRight = append(atRight, v); return nil }

			for n := range streams {
				for i := range items {
					must(t, left.Send(t.Context(), n*items+i, 1))
					must(t, right.Send(t.Context(), n*items+i, 1))
				}

				there, back, broken := make(chan packet), make(chan packet), make(chan struct{})
				l, r := pipe{in: back, out: there, broken: broken}, pipe{in: there, out: back, broken: broken}
				switch left := n; {
				case n == streams-1: // the last one lasts
				case side == "left":
					l.left = &left
				default:
					r.left = &left
				}

				ended := make(chan error, 2)
				ctx, cancel := context.WithCancel(t.Context())
				fromRight, fromLeft := right.Received(), left.Received()
				go func() { ended <- left.Run(ctx, l, fromRight, takeLeft) }()
				go func() { ended <- right.Run(ctx, r, fromLeft, takeRight) }()
				if n == streams-1 {
					synctest.Wait()
					cancel()
					close(broken)
				}
				<-ended
				<-ended
				cancel()
				synctest.Wait()
			}

			for name, got := range map[string][]int{"left": atLeft, "right": atRight} {
				if len(got) != items*streams || !slices.IsSorted(got) {
					t.Errorf("streams broken on the %s: the %s side took %d items, want %d in order", side, name, len(got), items*streams)
				}
			}
		})
	}
}

// A side that sends faster than the other side takes must wait. An item that must not wait is
// refused.
func TestSessionIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := link.New[int, int](link.Config{MaxItems: 10, MaxBytes: 100})
		must(t, s.Post(0, 1000)) // one item is always taken
		if err := s.Post(1, 1); !fault.Is(err, fault.Exhausted) {
			t.Fatalf("posted over the bound: %v", err)
		}

		sent := make(chan error)
		go func() { sent <- s.Send(t.Context(), 1, 1) }()
		synctest.Wait()
		select {
		case err := <-sent:
			t.Fatalf("Send did not wait for room: %v", err)
		default:
		}
		gone := errors.New("gone")
		s.End(gone)
		if err := <-sent; !errors.Is(err, gone) {
			t.Fatalf("Send returned %v after the end", err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A side that has nothing to send acknowledges every frame in time, and many frames at once. That
// also holds on a new stream.
func TestAcknowledgesManyFramesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const after, frames = 100 * time.Millisecond, 250
		s := link.New[int, int](link.Config{AckAfter: after})
		for stream := range 2 {
			in, out, broken := make(chan packet), make(chan packet), make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = s.Run(t.Context(), pipe{in: in, out: out, broken: broken}, 0, func(int) error { return nil })
			}()

			var arrived []time.Time // of frames without an acknowledgement
			first, acks := s.Received(), 0
			next, pause := first, time.After(0)
			for acked := first; acked < first+frames; {
				select {
				case <-pause:
					if next++; next <= first+frames {
						in <- packet{next, 0, []int{1}}
						arrived = append(arrived, time.Now())
						pause = time.After(2 * time.Millisecond)
					}
				case f := <-out:
					acks++
					if late := time.Since(arrived[0]); late > after || f.acknowledged <= acked {
						t.Fatalf("stream %d: frame %d is acknowledged with %d after %s, want at most %s", stream, acked+1, f.acknowledged, late, after)
					}
					arrived = arrived[f.acknowledged-acked:]
					acked = f.acknowledged
				}
			}
			if most := int(frames*2*time.Millisecond/after) + 1; acks > most {
				t.Errorf("stream %d: %d acknowledgements, want at most %d", stream, acks, most)
			}
			close(broken)
			<-ended
		}
	})
}
