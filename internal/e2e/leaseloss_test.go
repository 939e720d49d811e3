package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/store"
)

// losing is a store whose node loses its lease when the test says so.
type losing struct {
	store.Store
	shared bool
	fenced *atomic.Bool  // the next renewal says that the node has lost its lease
	got    chan struct{} // gets a value for each shard that the node has acquired
}

func (l losing) Info() store.Info {
	i := l.Store.Info()
	i.Shared = l.shared
	return i
}

func (l losing) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	if l.fenced.CompareAndSwap(true, false) {
		return store.View{}, store.ErrFenced
	}
	return l.Store.Renew(ctx, r)
}

func (l losing) Acquire(ctx context.Context, id model.NodeID, epoch int64, shards []model.ShardID) ([]store.AcquiredShard, error) {
	got, err := l.Store.Acquire(ctx, id, epoch, shards)
	for range got {
		l.got <- struct{}{}
	}
	return got, err
}

// awaitShards waits until the node has acquired every shard, and has handed out everything that can
// run.
func (l losing) awaitShards() {
	for range l.Store.Info().Shards {
		<-l.got
	}
	synctest.Wait()
}

// stubborn is code that ignores the end of its context. It ends when the test says so.
type stubborn struct {
	began, free chan struct{}

	mu               sync.Mutex
	begun, now, most int
}

func newStubborn() *stubborn {
	return &stubborn{began: make(chan struct{}, 100), free: make(chan struct{})}
}

func (s *stubborn) run() {
	s.mu.Lock()
	s.begun++
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	s.began <- struct{}{}
	<-s.free
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
}

func (s *stubborn) counts() (begun, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun, s.most
}

// openLosing opens an app whose process can lose its lease. The caller must close the app.
func openLosing(t *testing.T, shared bool, defs ...perdure.Definition) (losing, *perdure.App) {
	t.Helper()
	var l losing
	n, err := node.Open(t.Context(), node.Config{URL: "memory:", Wrap: func(st store.Store) store.Store {
		l = losing{st, shared, new(atomic.Bool), make(chan struct{}, 10*st.Info().Shards)}
		return l
	}})
	must(t, err)
	l.awaitShards()
	app, err := attach.Embed(t.Context(), attach.Config{Backend: n.Backend(), Tenant: model.DefaultTenant, OnClosing: n.Stopping, OnClose: n.Close}, defs...)
	must(t, err)
	return l, app
}

// A process loses its lease while code of users runs, and registers again. The code ignores that
// its context has ended. The process does not start the code a second time beside the code that
// still runs, and uses its outcome when it ends. Time is virtual.
func TestCodeThatOutlivesALease(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"inline step", "parallel step", "limited step", "task", "operation"} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, " shared ", shared), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { codeOutlivesALease(t, kind, shared) })
			})
		}
	}
}

func codeOutlivesALease(t *testing.T, kind string, shared bool) {
	code := newStubborn()
	body := func(context.Context, int) (int, error) {
		code.run()
		return 7, nil
	}
	step := perdure.NewActivity("step", body)
	limited := perdure.NewActivity("limited", body, perdure.Limit("two"))
	task := perdure.NewActivity("task", body, perdure.OnQueue("work"))
	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
		switch kind {
		case "limited step":
			return limited.Run(ctx, 0)
		case "task":
			return task.Run(ctx, 0)
		case "parallel step":
			other := perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) { return 0, ctx.Sleep(time.Second) })
			got, err := step.Go(ctx, 0).Get(ctx)
			_, slept := other.Get(ctx)
			return got, errors.Join(err, slept)
		}
		return step.Run(ctx, 0)
	})
	boxes := perdure.NewEntity[int]("box", perdure.OperationTimeout(time.Hour))
	put := perdure.NewOperation(boxes, "put", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		code.run()
		*s += n
		return *s, nil
	})
	// Unlike a view, this operation waits for the one before it.
	look := perdure.NewOperation(boxes, "look", func(_ perdure.EntityCtx, s *int, _ perdure.Void) (int, error) { return *s, nil })

	l, app := openLosing(t, shared, step, limited, task, flow, boxes)
	c := app.With(t.Context())
	must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "two", Concurrency: 2}))
	var x perdure.Execution[int]
	if kind == "operation" {
		must(t, put.Send(c, "b", 7))
	} else {
		x = mustStart(t, c, flow, 0)
	}
	<-code.began

	l.fenced.Store(true)
	l.awaitShards()
	if _, most := code.counts(); most > 1 {
		t.Errorf("%d executions of the code run at a time", most)
	}
	close(code.free)
	var got int
	var err error
	if kind == "operation" {
		got, err = look.Call(c, "b", perdure.Void{})
	} else {
		got, err = x.Result(c)
	}
	equal(t, "result", got, err, 7)
	if begun, _ := code.counts(); begun > 1 {
		t.Errorf("the code began %d times", begun)
	}
	must(t, app.Close())
}

// A process loses its lease while a canceled task runs whose code ignores the end of its context.
// The worker has slots left, so it takes other tasks.
func TestOtherTasksOutliveALease(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				code, canceled := newStubborn(), make(chan struct{})
				task := perdure.NewActivity("task", func(ctx context.Context, n int) (int, error) {
					if n == 0 {
						go func() { <-ctx.Done(); close(canceled) }()
						code.run()
					}
					return n, nil
				}, perdure.OnQueue("work"))
				flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, n int) (int, error) { return task.Run(ctx, n) })
				l, app := openLosing(t, shared, task, flow)
				c := app.With(t.Context())
				x := mustStart(t, c, flow, 0)
				<-code.began
				must(t, x.Cancel(c, "enough"))
				<-canceled

				l.fenced.Store(true)
				l.awaitShards()
				got, err := mustStart(t, c, flow, 1).Result(c)
				equal(t, "another task", got, err, 1)
				close(code.free)
				if _, err := x.Result(c); !errors.Is(err, perdure.ErrCanceled) {
					t.Errorf("the canceled execution ended with %v", err)
				}
				if begun, _ := code.counts(); begun > 1 {
					t.Errorf("the code began %d times", begun)
				}
				must(t, app.Close())
			})
		})
	}
}
