package engine_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// mortal is a store that can die. A dead store takes no writes and says so. The last commit or
// refence before its death has an unknown outcome.
type mortal struct {
	store.Store
	dying atomic.Value // the call with which it dies: commit, refence, renew
	dead  atomic.Bool
}

func (m *mortal) write(op string) error {
	class := store.Away
	if m.dying.Load() == op {
		m.dead.Store(true)
		class = store.Unknown
	}
	if !m.dead.Load() {
		return nil
	}
	return &store.Error{Class: class, Op: op, Final: true, Err: &fault.Error{Kind: fault.Unavailable, Text: "the disk is gone", Hint: "restart the process"}}
}

func (m *mortal) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	if m.dying.Load() == "refence" {
		return store.Committed{}, store.Errorf(store.Unknown, "commit", "lost")
	}
	if err := m.write("commit"); err != nil {
		return store.Committed{}, err
	}
	return m.Store.Commit(ctx, b)
}

func (m *mortal) Refence(ctx context.Context, l store.LaneRef) (epoch, landed int64, err error) {
	if err := m.write("refence"); err != nil {
		return 0, 0, err
	}
	return m.Store.Refence(ctx, l)
}

func (m *mortal) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	if err := m.write("renew"); err != nil {
		return store.View{}, err
	}
	return m.Store.Renew(ctx, r)
}

func (m *mortal) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	if err := m.write("register"); err != nil {
		return store.Registration{}, err
	}
	return m.Store.Register(ctx, n, lanes, ttl)
}

func (m *mortal) Unregister(ctx context.Context, node model.NodeID, epoch int64) error {
	if err := m.write("unregister"); err != nil {
		return err
	}
	return m.Store.Unregister(ctx, node, epoch)
}

// errorLog keeps what is logged as an error.
type errorLog struct {
	mu    sync.Mutex
	lines []string
}

func (*errorLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *errorLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *errorLog) WithGroup(string) slog.Handler          { return l }

func (l *errorLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		l.mu.Lock()
		defer l.mu.Unlock()
		text := r.Message
		r.Attrs(func(a slog.Attr) bool {
			text += " " + a.String()
			return true
		})
		l.lines = append(l.lines, text)
	}
	return nil
}

// A store takes no writes until it is opened again. This ends the node. The node logs once what has
// happened and what to do, and no caller waits forever.
func TestFinalErrorOfTheStore(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"commit", "refence", "renew"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := &mortal{Store: memory.New(memory.Options{})}
				st.dying.Store("")
				log := &errorLog{}
				e := engine.New(engine.Config{Store: st, Log: slog.New(log)})
				done := make(chan error, 1)
				go func() { done <- e.Run(t.Context()) }()
				if err := e.Ready(t.Context()); err != nil {
					t.Fatal(err)
				}

				w := &waiter{}
				w.session = e.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
				if _, err := e.Send(t.Context(), start("a")); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				awaited := make(chan error, 1)

				go func() {
					_, err := e.Await(t.Context(), start("a").To, model.RunID{})
					awaited <- err
				}()

				synctest.Wait()
				st.dying.Store(of)
				// This is virtual time. A caller without an answer would wait until the time-out.
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()

				want := func(what string, err error) {
					t.Helper()
					if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "the disk is gone") || !strings.Contains(err.Error(), "restart the process") ||
						ctx.Err() != nil {
						t.Errorf("%s: %v; want it to name the reason, and what to do", what, err)
					}
				}

				if of == "renew" {
					time.Sleep(10 * time.Second)
				}
				_, err := e.Send(ctx, start("b"))
				want("the call that met it", err)
				want("who waited", <-awaited)
				_, err = e.Send(ctx, start("c"))
				want("a later call", err)
				_, err = e.Await(ctx, start("c").To, model.RunID{})
				want("a later wait", err)
				want("the engine", <-done)
				if err := w.session.Leave(ctx); err != nil {
					t.Error(err)
				}
				if len(log.lines) != 1 || !strings.Contains(log.lines[0], "restart the process") {
					t.Errorf("logged as errors: %q, want one line that says what to do", log.lines)
				}
			})
		})
	}
}

// forgetful is a store whose next commit and next refence take effect, but return no answer.
type forgetful struct {
	store.Store
	commit, refence atomic.Bool
}

func (f *forgetful) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	res, err := f.Store.Commit(ctx, b)
	if f.commit.CompareAndSwap(true, false) {
		return store.Committed{}, store.Errorf(store.Unknown, "commit", "lost")
	}
	return res, err
}

func (f *forgetful) Refence(ctx context.Context, l store.LaneRef) (epoch, landed int64, err error) {
	epoch, landed, err = f.Store.Refence(ctx, l)
	if f.refence.CompareAndSwap(true, false) {
		return 0, 0, store.Errorf(store.Unknown, "refence", "lost")
	}
	return epoch, landed, err
}

// A node has fenced itself, and the store still takes writes, so no person has to act. The node
// logs this, starts over, and serves when its old lease is over.
func TestNodeThatFencedItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &forgetful{Store: memory.New(memory.Options{})}
		log := &errorLog{}
		e := engine.New(engine.Config{Store: st, Log: slog.New(log)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		if err := e.Ready(ctx); err != nil {
			t.Fatal(err)
		}

		st.commit.Store(true)
		st.refence.Store(true)
		began := time.Now()
		if _, err := e.Send(ctx, start("a")); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the caller waited for %s", took)
		}
		if len(log.lines) != 1 || !strings.Contains(log.lines[0], "starts over") {
			t.Errorf("logged as errors: %q", log.lines)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
