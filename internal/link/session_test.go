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

			var arrived []time.Time // times of the frames without an acknowledgement
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

// An item that the other side waits for goes out before Post or Send returns. Other items wait for
// the goroutine that sends, so that they share frames and Post never blocks.
func TestAwaitedItemsAreSentAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		post, late bool // the item is sent with Post; a frame without items may be unread
		items      int  // items of the last frame that arrived
		open       int  // items that the other side has not acknowledged
		atOnce     bool
	}{
		"send":               {items: 1, atOnce: true},
		"post":               {post: true, items: 1, atOnce: true},
		"busy other side":    {post: true, items: 2},
		"unacknowledged":     {post: true, items: 1, open: 3},
		"unread frame":       {post: true, items: 1, late: true},
		"unread frame, send": {items: 1, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := link.New[int, int](link.Config{Pace: link.NewPace()})
				in, out, end := running(t, s)
				for i := range c.open {
					must(t, s.Send(t.Context(), i, 1))
				}
				in <- packet{1, 0, make([]int, c.items)}
				if c.late {
					time.Sleep(time.Second) // the session acknowledges the frame
				}
				synctest.Wait()
				for len(out) > 0 {
					<-out
				}
				// A stream that is full would block the caller if the caller sent the item itself.
				for !c.atOnce && len(out) < cap(out) {
					out <- packet{}
				}

				if c.post {
					must(t, s.Post(1, 1))
				} else {
					must(t, s.Send(t.Context(), 1, 1))
				}
				if c.atOnce && len(out) == 0 {
					t.Error("the item was not sent at once")
				}
				end()
			})
		})
	}
}

// A caller that posts to many sessions at the same moment sends one item itself.
func TestPostKeepsPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pace := link.NewPace()
		var sessions []*link.Session[int, int]
		var first chan packet
		for i := range 20 {
			s := link.New[int, int](link.Config{Pace: pace})
			in, out, end := running(t, s)
			defer end()
			in <- packet{1, 0, []int{1}}
			if sessions = append(sessions, s); i == 0 {
				first = out
				continue
			}
			for len(out) < cap(out) { // the caller must not send to the others
				out <- packet{}
			}
		}
		synctest.Wait()

		for _, s := range sessions {
			must(t, s.Post(1, 1))
		}
		if len(first) != 1 {
			t.Error("the caller did not send the first item itself")
		}
	})
}

// running runs a session on a stream until the test calls end. The stream has room for a few
// frames.
func running(t *testing.T, s *link.Session[int, int]) (in, out chan packet, end func()) {
	in, out = make(chan packet), make(chan packet, 10)
	broken, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(t.Context(), pipe{in: in, out: out, broken: broken}, 0, func(int) error { return nil })
	}()
	return in, out, func() {
		close(broken)
		<-ended
	}
}
