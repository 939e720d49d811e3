package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/store"
)

// fillable is a store whose disk can be full. It outlives the apps that use it.
type fillable struct {
	store.Store
	full    atomic.Bool
	refused atomic.Int32 // number of refused commits
}

func (f *fillable) err(op string) error {
	if !f.full.Load() {
		return nil
	}
	return &store.Error{Class: store.Away, Op: op, Err: fault.New(fault.Unavailable, "no space left on the disk")}
}

func (f *fillable) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	if err := f.err("commit"); err != nil {
		f.refused.Add(1)
		return store.Committed{}, err
	}
	return f.Store.Commit(ctx, b)
}

func (f *fillable) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	if err := f.err("renew"); err != nil {
		return store.View{}, err
	}
	return f.Store.Renew(ctx, r)
}

func (f *fillable) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	if err := f.err("register"); err != nil {
		return store.Registration{}, err
	}
	return f.Store.Register(ctx, n, lanes, ttl)
}

func (*fillable) Close() error { return nil }

// attach opens a node on the store and an app on the node.
func (f *fillable) attach(t *testing.T, defs ...perdure.Definition) *perdure.App {
	t.Helper()
	n, err := node.Open(t.Context(), node.Config{URL: "memory:", Wrap: func(st store.Store) store.Store {
		if f.Store == nil {
			f.Store = st
		}
		return f
	}})
	if err != nil {
		t.Fatal(err)
	}
	app, err := attach.Embed(t.Context(), attach.Config{Backend: n.Backend(), Tenant: model.DefaultTenant, OnClosing: n.Stopping, OnClose: n.Close}, defs...)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// Close on a full disk returns soon, reports what was not stored, and loses no acknowledged work.
// Time is virtual.
func TestCloseOnAFullDisk(t *testing.T) {
	t.Parallel()
	// after is how long the disk is full before Close. The lease lasts ten seconds.
	for _, after := range []time.Duration{0, time.Second, time.Minute} {
		t.Run(fmt.Sprint("full for ", after), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { closeOnAFullDisk(t, after) })
		})
	}
}

func closeOnAFullDisk(t *testing.T, after time.Duration) {
	gate := make(chan struct{})
	wait := func(ctx context.Context) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	work := perdure.NewActivity("work", func(ctx context.Context, in int) (int, error) { wait(ctx); return in, nil }, perdure.OnQueue("q"))
	keep := perdure.NewWorkflow("keep", func(ctx perdure.WorkflowCtx, in int) (int, error) {
		return perdure.Do(ctx, "step", func(ctx context.Context) (int, error) { wait(ctx); return in, nil })
	})
	counter := perdure.NewEntity[int]("counter")
	add := perdure.NewOperation(counter, "add", func(_ perdure.EntityCtx, s *int, n int) (int, error) { *s += n; return *s, nil })
	defs := []perdure.Definition{work, keep, counter}

	st := &fillable{}
	app := st.attach(t, defs...)
	c := app.With(t.Context())
	run, err := keep.Start(c, 1, perdure.RawKey("acknowledged"))
	if err != nil {
		t.Fatal(err)
	}
	task, err := work.Submit(c, 2, perdure.RawKey("acknowledged"))
	if err != nil {
		t.Fatal(err)
	}
	equalNow(t, "a call before", 1)(add.Call(c, "k", 1))

	synctest.Wait()
	st.full.Store(true)
	close(gate)
	var calls sync.WaitGroup
	errs := make(chan error, 3)
	calls.Go(func() { _, err := keep.Start(c, 1, perdure.RawKey("late")); errs <- err })
	calls.Go(func() { _, err := add.Call(c, "k", 1); errs <- err })
	calls.Go(func() { _, err := run.Result(c); errs <- err })
	synctest.Wait()
	time.Sleep(after)
	synctest.Wait()

	before, began := st.refused.Load(), time.Now()
	closed := app.Close()
	// The error lists the call among the requests if it did not run, and among the outcomes if it
	// ran.
	wantError(t, "Close", closed, perdure.ErrUnavailable, "not stored: ", " requests", "keep/late", "no space left on the disk")
	t.Logf("after %s and %d commits: %v", time.Since(began), st.refused.Load()-before, closed)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Close took %s", took)
	}
	if tries := st.refused.Load() - before; tries > 5 {
		t.Errorf("the node sent %d commits after Close was called", tries)
	}
	calls.Wait()
	for range cap(errs) {
		err := <-errs
		wantError(t, "a caller", err, perdure.ErrUnavailable, "no space left on the disk")
		t.Log(err)
	}

	// Once there is room, acknowledged executions continue. Refused requests have had no effect.
	st.full.Store(false)
	app = st.attach(t, defs...)
	c = app.With(t.Context())
	equalNow(t, "the run", 1)(keep.Run(c, 1, perdure.RawKey("acknowledged")))
	equalNow(t, "the task", 2)(task.Result(c))
	equalNow(t, "the next call", 3)(add.Call(c, "k", 2))
	if got := list(t, app, `workflow = "keep"`); len(got) != 1 {
		t.Errorf("stored: %v", got)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
}

// equalNow checks that a call returns a value.
func equalNow[T comparable](t *testing.T, what string, want T) func(got T, err error) {
	return func(got T, err error) {
		t.Helper()
		equal(t, what, got, err, want)
	}
}
