package service_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
	"github.com/perdure/perdure/internal/store/memory"
)

// The store accepts no commits. Every call that starts a run fails with an error that says why it
// did not succeed before the deadline.
func TestLateStartsSayWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		plan := faultstore.PlanFunc(func(c faultstore.Call) faultstore.Fault {
			if c.Method == faultstore.Commit && away.Load() {
				return faultstore.Fault{Kind: faultstore.FailBefore, Class: store.Away}
			}
			return faultstore.Fault{}
		})
		st := faultstore.Wrap(memory.New(memory.Options{Shards: shards}), faultstore.Config{Plan: plan})
		e := engine.New(engine.Config{Store: st})
		running, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(running) }()
		if err := e.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		svc := service.New(e, st, service.Limits{})
		open, failed := api.Target{Address: order("open")}, api.Target{Address: order("failed")}
		for _, to := range []api.Target{open, failed} {
			if _, err := svc.Start(t.Context(), api.StartRequest{Address: to.Address}); err != nil {
				t.Fatal(err)
			}
		}
		if err := svc.Terminate(t.Context(), api.CancelRequest{Target: failed}); err != nil {
			t.Fatal(err)
		}

		away.Store(true)
		for what, do := range map[string]func(ctx context.Context) error{
			"start many": func(ctx context.Context) error {
				replies, err := svc.StartMany(ctx, []api.StartRequest{{Address: order("m1")}, {Address: order("m2")}})
				if err != nil {
					return err
				}
				if replies[0].Err == nil {
					return nil
				}
				return replies[1].Err
			},
			"fork": func(ctx context.Context) error {
				_, err := svc.Fork(ctx, api.PastRequest{Source: open, Key: "fork", Placed: true})
				return err
			},
			"retry": func(ctx context.Context) error {
				_, err := svc.Retry(ctx, api.PastRequest{Source: failed})
				return err
			},
			"reset": func(ctx context.Context) error {
				_, err := svc.Reset(ctx, api.PastRequest{Source: open, Placed: true})
				return err
			},
			"import": func(ctx context.Context) error {
				_, err := svc.Import(ctx, api.ImportRequest{Tenant: "default", History: model.History{
					Start:   model.Start{Address: order("import"), Run: model.RunID{9}, At: model.TimeOf(time.Now())},
					Outcome: model.Outcome{Status: model.Completed, At: model.TimeOf(time.Now())},
				}})
				return err
			},
			"signal": func(ctx context.Context) error {
				return svc.Signal(ctx, api.SignalRequest{Target: open, Name: "s"})
			},
		} {
			brief, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			err := do(brief)
			cancel()
			if err == nil || !strings.Contains(err.Error(), "the store accepts no commits") {
				t.Errorf("%s: %v", what, err)
			}
		}
		away.Store(false)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// If the reason cannot be read in time, the error says that it is unknown.
func TestLateWithoutAReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		plan := faultstore.PlanFunc(func(c faultstore.Call) faultstore.Fault {
			if c.Method == faultstore.LoadExecution && slow.Load() {
				return faultstore.Fault{Kind: faultstore.Slow, Delay: 10 * time.Second}
			}
			return faultstore.Fault{}
		})
		st := faultstore.Wrap(memory.New(memory.Options{Shards: shards}), faultstore.Config{Plan: plan})
		e := engine.New(engine.Config{Store: st})
		running, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(running) }()
		if err := e.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		svc := service.New(e, st, service.Limits{})
		open := api.Target{Address: order("open")}
		if _, err := svc.Start(t.Context(), api.StartRequest{Address: open.Address}); err != nil {
			t.Fatal(err)
		}

		slow.Store(true)
		brief, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		if _, err := svc.Await(brief, open); err == nil || !strings.Contains(err.Error(), "the reason is unknown") {
			t.Errorf("the error is %v", err)
		}
		slow.Store(false)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
