package entity_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine/replies"
	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// outlet is the owner of the entity. Some of its answers get lost.
type outlet struct {
	*replies.Buffers

	mu   sync.Mutex
	lose int // how many more answers get lost
	away atomic.Bool
}

func (o *outlet) SendItems(ctx context.Context, r model.ItemsSend) (int64, error) {
	if o.away.Load() {
		return 0, fault.New(fault.Unavailable, "no connection to the owner")
	}
	last, err := o.Send(ctx, &r)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil && o.lose > 0 && len(r.Items) > 0 { // repeat the request, as package remote does
		o.lose--
		return o.Send(ctx, &r)
	}
	return last, err
}

// streaming is a worker with one stream, and the owner of the entity.
type streaming struct {
	t      *testing.T
	out    *outlet
	worker *entity.Worker
	s      *session
}

func newStreaming(t *testing.T, most int, code entity.StreamFunc) *streaming {
	t.Helper()
	out := &outlet{Buffers: replies.New(replies.Config{})}
	s := newSession()
	w := entity.New(entity.Config{Outlet: out, Streams: most, Types: map[string]entity.Type{"service:log": {Calls: map[string]entity.Handler{
		"tail": {View: true, Run: func(c *entity.Call, _ any) (model.Payload, error) {
			return model.Payload{}, c.Stream(string(c.Input.Data), code)
		}},
	}}}})
	w.Serve(s)
	return &streaming{t: t, out: out, worker: w, s: s}
}

func (s *streaming) at(id string, do model.TakeVerb) *model.ItemsTake {
	return &model.ItemsTake{Entity: model.Address{Tenant: "default", Type: "service:log", Key: "k"}, ID: id, Do: do}
}

// begin opens a stream and calls the view.
func (s *streaming) begin(id string) *model.Failure {
	s.t.Helper()
	at := s.at(id, model.TakeOpen)
	if _, err := s.out.Take(s.t.Context(), at); err != nil {
		s.t.Fatal(err)
	}
	s.worker.Operate(model.Operations{Entity: at.Entity, Calls: []model.OperationCall{{Name: "tail", Input: model.Payload{Data: []byte(id)}}}})
	<-s.s.arrived
	all := s.s.results()
	return all[len(all)-1].Results[0].Failure
}

// read reads items until the stream ends.
func (s *streaming) read(id string) (items []string, f *model.Failure, err error) {
	for at := s.at(id, model.TakeNext); ; {
		page, err := s.out.Take(s.t.Context(), at)
		if err != nil {
			return items, nil, err
		}
		for _, p := range page.Items {
			items = append(items, string(p.Data))
			at.After++
		}
		if page.Ended {
			return items, page.Failure, nil
		}
	}
}

// If a worker cannot reach the owner for a while, it sends its items later. It sends all items: the
// items that it had at first, and the items that the code added while the worker tried to report
// that the code still runs.
func TestStreamWaitsForTheOwner(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]time.Duration{"at the beginning": 0, "while the code is silent": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStreaming(t, 0, func(_ context.Context, send func(model.Payload) error) error {
					time.Sleep(before)
					return send(model.Payload{Data: []byte("item")})
				})
				s.out.away.Store(true)
				if f := s.begin("a"); f != nil {
					t.Fatal(f)
				}
				time.Sleep(before + 20*time.Second)
				s.out.away.Store(false)
				if items, f, err := s.read("a"); len(items) != 1 || f != nil || err != nil {
					t.Errorf("%q, %v, %v", items, f, err)
				}
			})
		})
	}
}

// Items arrive once and in order, even if answers get lost and the code is slow.
func TestStreamItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		s := newStreaming(t, 0, func(_ context.Context, send func(model.Payload) error) error {
			for i := range n {
				if i%70 == 0 {
					time.Sleep(3 * time.Minute) // longer than the owner waits for a silent worker
				}
				if err := send(model.Payload{Data: fmt.Append(nil, i)}); err != nil {
					return err
				}
			}
			return errors.New("no more")
		})
		s.out.lose = 5

		if f := s.begin("a"); f != nil {
			t.Fatal(f)
		}
		items, f, err := s.read("a")
		if err != nil || f == nil || f.Message != "no more" || len(items) != n {
			t.Fatalf("%d items, %v, %v", len(items), f, err)
		}
		for i, item := range items {
			if item != fmt.Sprint(i) {
				t.Fatalf("item %d is %s", i, item)
			}
		}
		if err := s.worker.Close(t.Context()); err != nil {
			t.Error(err)
		}
		s.out.Close()
	})
}

// The number of streams of a worker is limited. When a worker closes, it ends its streams and tells
// the callers, even callers that read nothing, and waits for the code of the streams.
func TestStreamsOfAWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		var keep atomic.Pointer[func(model.Payload) error]
		s := newStreaming(t, 2, func(_ context.Context, send func(model.Payload) error) error {
			for keep.Store(&send); ; {
				if err := send(model.Payload{Data: []byte("x")}); err != nil {
					time.Sleep(time.Second)
					return err
				}
				sent.Add(1)
			}
		})
		if f := s.begin("a"); f != nil {
			t.Fatal(f)
		}
		if f := s.begin("b"); f != nil {
			t.Fatal(f)
		}
		if f := s.begin("c"); f == nil || f.Kind != fault.Exhausted.String() || !strings.Contains(f.Message, "runs 2 streams") {
			t.Errorf("a stream too many: %v", f)
		}

		synctest.Wait()
		if n := sent.Load(); n != 2*2*model.MaxItemsAhead {
			t.Errorf("the code has sent %d items that no caller reads", n)
		}
		begun := time.Now()
		if err := s.worker.Close(t.Context()); err != nil || time.Since(begun) != time.Second {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		for _, id := range []string{"a", "b"} {
			items, f, err := s.read(id)
			if err != nil || f == nil || f.Kind != fault.Unavailable.String() || len(items) != model.MaxItemsAhead {
				t.Errorf("%d items, %v, %v", len(items), f, err)
			}
		}
		if err := (*keep.Load())(model.Payload{}); err == nil {
			t.Error("an item is sent after the end")
		}
		s.out.Close()
	})
}

// A closing worker does not wait forever for code that ignores its context. It reports such code.
func TestStreamThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		s := newStreaming(t, 0, func(context.Context, func(model.Payload) error) error {
			<-stop
			return nil
		})
		if f := s.begin("a"); f != nil {
			t.Fatal(f)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.worker.Close(ctx); !fault.Is(err, fault.Timeout) || !strings.Contains(err.Error(), "streams has not returned") {
			t.Errorf("the worker closes with %v", err)
		}
		close(stop)
		synctest.Wait()
		s.out.Close()
	})
}

// The code learns immediately that its caller leaves.
func TestStreamCallerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		s := newStreaming(t, 0, func(ctx context.Context, _ func(model.Payload) error) error {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		})
		if f := s.begin("a"); f != nil {
			t.Fatal(f)
		}
		time.Sleep(20 * time.Second)
		begun := time.Now()
		if _, err := s.out.Take(t.Context(), s.at("a", model.TakeLeave)); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !fault.Is(err, fault.Canceled) || time.Since(begun) > time.Second {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		if err := s.worker.Close(t.Context()); err != nil {
			t.Error(err)
		}
		s.out.Close()
	})
}
