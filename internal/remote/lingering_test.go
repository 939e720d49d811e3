package remote_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
)

// A user terminates a task while its code runs in a remote worker, and the code ignores that. The
// code keeps the permit of the task until it has ended, or until the worker is gone.
func TestRemoteCodeKeepsItsPermit(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, err := node.Open(t.Context(), node.Config{URL: "memory:", Shards: 2})
			if err != nil {
				t.Fatal(err)
			}
			served := grpcapi.NewWork(grpcapi.WorkConfig{Backend: n.Backend(), Tenant: func(context.Context) string { return tenant }})
			conn, stop := listen(t, served)
			release, begun := make(chan struct{}), atomic.Int32{}
			task := perdure.NewActivity("task", func(context.Context, int) (int, error) {
				if begun.Add(1) == 1 {
					<-release
				}
				return 0, nil
			}, perdure.OnQueue("q"), perdure.Limit("one"))
			worker := func() (*perdure.App, *remote.Work) {
				work := remote.NewWork(conn, remote.WorkConfig{})
				app, err := attach.Open(t.Context(), attach.Config{
					Backend: backend{n.Backend(), work}, Served: true, Tenant: tenant, IdleAfter: time.Second, OnClose: func() error { work.Close(); return nil },
				}, task)
				if err != nil {
					t.Fatal(err)
				}
				return app, work
			}
			first, doomed := worker()
			if err := first.Limits().Set(t.Context(), perdure.LimitRule{Name: "one", Concurrency: 1}); err != nil {
				t.Fatal(err)
			}
			c := first.With(t.Context())
			one, err := task.Submit(c, 1)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := first.Executions().Terminate(t.Context(), one, "enough"); err != nil {
				t.Fatal(err)
			}
			if _, err := task.Submit(c, 2); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			if begun.Load() != 1 {
				t.Errorf("another task starts while the code of the first one runs")
			}

			second := first
			if dies {
				doomed.Close()
				second, _ = worker()
			} else {
				close(release)
			}
			time.Sleep(time.Minute)
			if begun.Load() != 2 {
				t.Errorf("the worker is gone: %v; %d tasks have started, want 2", dies, begun.Load())
			}

			if dies {
				close(release)
				_ = first.Close() // its worker is gone
			}
			if err := second.Close(); err != nil {
				t.Error(err)
			}
			served.Close(t.Context())
			stop()
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
