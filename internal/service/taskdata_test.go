package service_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
)

// counted is a store that counts the events it returns.
type counted struct {
	store.Store
	events atomic.Int64
}

// LoadEvents counts the events that it returns.
//
//arch:parameters given by store.Store
func (c *counted) LoadEvents(ctx context.Context, key store.RunKey, after int64, limit, maxBytes int) ([]model.Event, error) {
	page, err := c.Store.LoadEvents(ctx, key, after, limit, maxBytes)
	c.events.Add(int64(len(page)))
	return page, err
}

// A follower of a task in a busy workflow reads each event of the history once, and learns when the
// task has ended. The test covers every kind of end.
func TestFollowReadsTheHistoryOnce(t *testing.T) {
	t.Parallel()
	for _, how := range []model.Event{
		{Kind: model.EventStepCompleted}, {Kind: model.EventStepFailed}, {Kind: model.EventWithdrawn}, {Kind: model.EventTaskTimedOut},
	} {
		t.Run(how.Kind.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newShelf(t)
				const before, meanwhile = 100, 30
				key := f.put(order("1"), 2, before)
				next := int64(2 + before)

				add := func(e model.Event) {
					next++
					e.Seq, e.At = next, f.now
					f.commit(store.Batch{Events: []store.EventRow{{RunKey: key, Event: e}}})
				}

				add(model.Event{Kind: model.EventTaskScheduled, ID: "far", Task: &model.TaskSpec{Kind: "k", Queue: "q"}})
				st := &counted{Store: f.st}
				svc := service.New(nil, st, service.Limits{})
				target := api.TaskTarget{Target: api.Target{Address: order("1")}, Step: "far"}
				type end struct {
					page api.TaskLogsPage
					err  error
				}

				ended := make(chan end, 1)
				go func() {
					page, err := svc.TaskLogs(t.Context(), api.TaskLogsRequest{TaskTarget: target, Wait: true})
					ended <- end{page, err}
				}()

				for range meanwhile {
					time.Sleep(time.Second)
					// This attempt fails, and another attempt follows.
					add(model.Event{Kind: model.EventTaskTimedOut, ID: "far", Due: f.now})
				}

				if len(ended) > 0 {
					t.Fatalf("it ended early: %+v", <-ended)
				}
				how.ID = "far"
				add(how)
				if e := <-ended; e.err != nil || !e.page.Ended {
					t.Errorf("%+v, %v", e.page, e.err)
				}
				if n := st.events.Load(); n != before+1+meanwhile+1 {
					t.Errorf("%d events were read, there are %d", n, before+1+meanwhile+1)
				}
				target.Step = "nowhere"
				_, err := svc.TaskLogs(t.Context(), api.TaskLogsRequest{TaskTarget: target, Wait: true})
				wantKind(t, "a step that there is not", err, fault.NotFound)
			})
		})
	}
}
