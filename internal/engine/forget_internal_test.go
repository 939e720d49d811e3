package engine

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// startEngine starts an engine that serves the store until the test ends.
func startEngine(t *testing.T, st *memory.Store) *Engine {
	t.Helper()
	e := New(Config{Store: st})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	if err := e.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return e
}

// wantNobodyWaits checks that no lane remembers a waiting caller.
func wantNobodyWaits(t *testing.T, e *Engine) {
	t.Helper()
	for _, s := range e.current().lanes {
		c := newCall()
		text := ""
		err := s.inbox.put(t.Context(), op{token: c, do: func(l *lane.Lane, _ model.Time) {
			text = l.String()
			c.finish(&lane.Answer{})
		}})
		if err != nil {
			t.Fatal(err)
		}
		<-c.done
		if !strings.Contains(text, "with waiting callers: 0, with watchers: 0; queries: 0") {
			t.Errorf("a caller that no longer waits is remembered: %s", text)
		}
	}
}

// The engine immediately forgets a caller that gives up, even before the lane knows that the caller
// waits.
func TestCanceledWaitsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := startEngine(t, memory.New(memory.Options{}))
		to := model.Address{Tenant: model.DefaultTenant, Type: "wf", Key: "k"}
		if _, err := e.Send(t.Context(), &model.Message{Kind: model.MessageStart, To: to}); err != nil {
			t.Fatal(err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()

		for name, wait := range map[string]func(ctx context.Context) error{
			"await": func(ctx context.Context) error { _, err := e.Await(ctx, to, model.RunID{}); return err },
			"run": func(ctx context.Context) error {
				_, err := e.ExecuteToEnd(ctx, &model.Message{Kind: model.MessageStart, To: to})
				return err
			},
			"update": func(ctx context.Context) error {
				_, err := e.Send(ctx, &model.Message{Kind: model.MessageUpdate, To: to, Name: "u"})
				return err
			},
			"updates": func(ctx context.Context) error {
				return e.SendMany(ctx, []*model.Message{{Kind: model.MessageUpdate, To: to, Name: "u"}})[0].Err
			},
			"query": func(ctx context.Context) error {
				_, err := e.Query(ctx, &model.Message{Kind: model.MessageQuery, To: to, Name: "q"})
				return err
			},
			"listen": func(ctx context.Context) error {
				_, stop, err := e.WatchChanges(ctx, to)
				if err == nil {
					stop()
				}
				return err
			},
		} {
			for range 20 {
				_ = wait(over)
				brief, cancel := context.WithTimeout(t.Context(), time.Second)
				_ = wait(brief)
				cancel()
			}
			synctest.Wait()
			t.Log(name)
			wantNobodyWaits(t, e)
		}
	})
}

// sharedStore is a store that several processes may open.
type sharedStore struct{ store.Store }

func (s sharedStore) Info() store.Info {
	i := s.Store.Info()
	i.Shared = true
	return i
}

// The clerk forgets addresses without listeners after a while, even if no other listener comes.
// Until then a new listener need not inform the owner again.
func TestListenersThatHaveLeftAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := New(Config{Store: sharedStore{memory.New(memory.Options{})}}).clerk
		known := func() int {
			k.mu.Lock()
			defer k.mu.Unlock()
			return len(k.listens)
		}

		var stops []func()
		for i := range 100 {
			_, stop, err := k.listen(t.Context(), model.Address{Tenant: model.DefaultTenant, Type: "wf", Key: strconv.Itoa(i)})
			if err != nil {
				t.Fatal(err)
			}
			stops = append(stops, stop)
		}
		time.Sleep(watchAgain / 2)
		for _, stop := range stops[1:] {
			stop()
		}
		if n := known(); n != 100 {
			t.Errorf("%d addresses are known, want 100", n)
		}
		time.Sleep(2 * watchAgain)
		if n := known(); n != 1 {
			t.Errorf("%d addresses are known, want the one with a listener", n)
		}
		stops[0]()
		time.Sleep(2 * watchAgain)
		if n := known(); n != 0 {
			t.Errorf("%d addresses are known, want none", n)
		}
	})
}
