package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// streamPatience bounds waits on a busy machine.
const streamPatience = 2 * time.Minute

// streamer is an entity with a stream. The test decides what the code of the stream does.
type streamer struct {
	logs *perdure.Entity[[]string]
	add  *perdure.Operation[string, int]
	tail *perdure.Stream[int, string]

	// run replaces the code of the stream. If it is nil, the code sends the lines of the state.
	run   func(ctx context.Context, send func(string) error) error
	sent  atomic.Int64 // items of run that were sent
	ended chan error   // gets what run returns
}

func newStreamer() *streamer {
	s := &streamer{logs: perdure.NewEntity[[]string]("log"), ended: make(chan error, 100)}
	s.add = perdure.NewOperation(s.logs, "add", func(_ perdure.EntityCtx, lines *[]string, line string) (int, error) {
		*lines = append(*lines, line)
		return len(*lines), nil
	})
	s.tail = perdure.NewStream(s.logs, "tail", func(ctx context.Context, lines []string, from int, send func(string) error) error {
		if s.run == nil {
			for _, line := range lines[from:] {
				if err := send(line); err != nil {
					return err
				}
			}
			return nil
		}
		err := s.run(ctx, func(item string) error {
			err := send(item)
			if err == nil {
				s.sent.Add(1)
			}
			return err
		})
		s.ended <- err
		return err
	})
	return s
}

// end waits until the code of a stream has returned.
func (s *streamer) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(streamPatience):
		t.Fatal("the code of the stream does not return")
		return nil
	}
}

// endless sends items until send returns an error.
func endless(_ context.Context, send func(string) error) error {
	for i := 0; ; i++ {
		if err := send(fmt.Sprint(i)); err != nil {
			return err
		}
	}
}

// A stream has the items of the state at the time of the call, in order, and then ends. Operations
// can run at the same time.
func TestStream(t *testing.T) {
	t.Parallel()
	s := newStreamer()
	app := embedded.MustOpen("memory:", s.logs)
	defer app.Close()
	c := app.With(t.Context())

	for range s.tail.Read(c, "empty", 0) {
		t.Error("a stream of nothing has an item")
	}
	const lines = 300 // more than the code may be ahead of the caller
	for i := range lines {
		if _, err := s.add.Call(c, "a", fmt.Sprint("line ", i)); err != nil {
			t.Fatal(err)
		}
	}

	n := 100
	for line, err := range s.tail.Read(c, "a", n) {
		if err != nil || line != fmt.Sprint("line ", n) {
			t.Fatalf("item %d is %q, %v", n, line, err)
		}
		if n++; n == 200 {
			if _, err := s.add.Call(c, "a", "another"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n != lines {
		t.Errorf("the stream ends at %d, want %d", n, lines)
	}
}

// The code of a stream waits for a caller that reads slowly. This wait delays no other stream and
// no operation, of the same key or of other keys, no matter how many slow callers there are.
func TestStreamBackPressure(t *testing.T) {
	t.Parallel()
	s := newStreamer()
	s.run = endless
	cfg := embedded.Config{MaxCalls: 4} // streams must not take slots of the worker
	app, err := cfg.Open(t.Context(), "memory:", s.logs)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()

	// The code may be ahead of the caller by 64 items at the owner of the entity, and 64 at the
	// worker.
	const ahead, slow = 128, 8
	var callers sync.WaitGroup
	defer callers.Wait()
	defer leave()
	got := make(chan struct{})
	for range slow {
		callers.Go(func() {
			for item, err := range s.tail.Read(app.With(ctx), "a", 0) {
				if err != nil || item != "0" {
					t.Errorf("item %q, %v", item, err)
				}
				got <- struct{}{}
				<-ctx.Done()
				return
			}
		})
		<-got
	}
	until(t, "the code is as far ahead as it may be", func() bool { return s.sent.Load() == slow*ahead })
	for i := range 20 {
		for _, key := range []string{"a", "b"} {
			if n, err := s.add.Call(app.With(t.Context()), key, "line"); err != nil || n != i+1 {
				t.Fatal(n, err)
			}
		}
	}
	if n := s.sent.Load(); n != slow*ahead {
		t.Errorf("the code has sent %d items, want %d", n, slow*ahead)
	}

	// When the callers leave, the code ends.
	leave()
	for range slow {
		if err := s.end(t); !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("the code ends with %v", err)
		}
	}
}

// until waits until done returns true.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(streamPatience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after %s: %s", streamPatience, what)
		}
	}
}

// When a caller leaves its loop, or its deadline passes, the code of the stream ends, even if the
// code sends nothing at that time.
func TestStreamCallerLeaves(t *testing.T) {
	t.Parallel()
	s := newStreamer()
	s.run = func(ctx context.Context, send func(string) error) error {
		if err := send("one"); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	app := embedded.MustOpen("memory:", s.logs)
	defer app.Close()

	for item, err := range s.tail.Read(app.With(t.Context()), "a", 0) {
		if err != nil || item != "one" {
			t.Errorf("item %q, %v", item, err)
		}
		break
	}
	if err := s.end(t); !errors.Is(err, perdure.ErrCanceled) {
		t.Errorf("the caller has left: %v", err)
	}

	// On a busy machine the deadline may pass before the first item.
	for items, limit := 0, 200*time.Millisecond; items == 0; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		var last error
		for _, err := range s.tail.Read(app.With(ctx), "a", 0) {
			if last = err; err == nil {
				items++
			}
		}
		cancel()
		if !errors.Is(last, perdure.ErrTimeout) {
			t.Errorf("the deadline has passed: %v", last)
		}
	}
	if err := s.end(t); !errors.Is(err, perdure.ErrCanceled) {
		t.Errorf("the code ends with %v", err)
	}
}

// The caller gets the items before an error, and then the error with its kind.
func TestStreamErrors(t *testing.T) {
	t.Parallel()
	s := newStreamer()
	app := embedded.MustOpen("memory:", s.logs)
	defer app.Close()
	c := app.With(t.Context())
	odd := errors.New("it is odd")
	large := strings.Repeat("x", 256<<10)

	for name, test := range map[string]struct {
		run   func(ctx context.Context, send func(string) error) error
		items int
		is    func(error) bool
	}{
		"of the code": {
			func(_ context.Context, send func(string) error) error { return errors.Join(send("a"), send("b"), odd) }, 2,
			func(err error) bool {
				re, ok := errors.AsType[*perdure.RemoteError](err)
				return ok && strings.Contains(re.Message, odd.Error())
			},
		},
		"a panic": {
			func(_ context.Context, send func(string) error) error { _ = send("a"); panic("oh") }, 1,
			func(err error) bool {
				re, ok := errors.AsType[*perdure.RemoteError](err)
				return ok && re.Kind == "panic" && strings.Contains(re.Stack(), "entity_stream_e2e_test.go")
			},
		},
		"an item too large": {
			func(_ context.Context, send func(string) error) error { return errors.Join(send("a"), send(large)) }, 1,
			func(err error) bool {
				return errors.Is(err, perdure.ErrInvalid) && strings.Contains(err.Error(), "262146 bytes, at most 262144")
			},
		},
		"an item too large, and then others": {
			func(_ context.Context, send func(string) error) error { _ = send(large); return send(large[:200<<10]) }, 1, nil,
		},
		"the end of the goroutine": {
			func(_ context.Context, send func(string) error) error { _ = send("a"); runtime.Goexit(); return nil }, 1,
			func(err error) bool { return strings.Contains(err.Error(), "ended its goroutine") || err != nil },
		},
	} {
		s.run = test.run
		n := 0
		var last error
		for _, err := range s.tail.Read(c, "a", 0) {
			if err != nil {
				last = err
				continue
			}
			n++
		}
		if n != test.items || test.is == nil && last != nil || test.is != nil && (last == nil || !test.is(last)) {
			t.Errorf("%s: %d items, %v", name, n, last)
		}
	}
}

// Call refuses a stream, and Read refuses an operation. A stream without code is refused like any
// other call without code.
func TestStreamRefused(t *testing.T) {
	t.Parallel()
	s := newStreamer()
	app := embedded.MustOpen("memory:", s.logs)
	defer app.Close()
	c := app.With(t.Context())

	if _, err := perdure.DeclareOperation[int, string]("log", "tail").Call(c, "a", 0); !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), "answers with a stream") {
		t.Errorf("a call of a stream: %v", err)
	}
	for name, test := range map[string]struct {
		stream *perdure.Stream[int, string]
		key    string
		want   error
	}{
		"an operation":   {perdure.DeclareStream[int, string]("log", "add"), "a", perdure.ErrInvalid},
		"no such stream": {perdure.DeclareStream[int, string]("log", "none"), "a", perdure.ErrNotFound},
		"no key":         {s.tail, "", perdure.ErrInvalid},
		"no name":        {perdure.DeclareStream[int, string]("", "tail"), "a", perdure.ErrInvalid},
	} {
		n := 0
		for _, err := range test.stream.Read(c, test.key, 0) {
			if n++; !errors.Is(err, test.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d items", name, n)
		}
	}
	if state, exists, err := s.logs.Get(c, "a"); err != nil || exists {
		t.Errorf("the state is %v, %v", state, err)
	}
}

// When an app closes, its streams end: both the code and the caller get an error.
func TestStreamAppCloses(t *testing.T) {
	t.Parallel()
	s := newStreamer()
	s.run = endless
	app := embedded.MustOpen("memory:", s.logs)
	got, last := make(chan struct{}), make(chan error, 1)
	go func() {
		var end error
		for item, err := range s.tail.Read(app.With(context.WithoutCancel(t.Context())), "a", 0) {
			if end = err; err == nil && item == "0" {
				close(got)
			}
		}
		last <- end
	}()
	<-got

	if err := app.Close(); err != nil {
		t.Error(err)
	}
	if err := s.end(t); err == nil {
		t.Error("the code goes on")
	}
	select {
	case err := <-last:
		if !errors.Is(err, perdure.ErrUnavailable) {
			t.Errorf("the caller gets %v", err)
		}
	case <-time.After(streamPatience):
		t.Error("the caller waits for ever")
	}
}
