package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// picky is a store that refuses to keep outputs of tasks for other nodes, for good.
type picky struct{ common }

func (p picky) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	for i := range rows {
		if r := rows[i].Message.Report; r != nil && len(r.Output.Data) > 0 {
			return &store.Error{Class: store.Refused, Op: "put inbox", Err: errors.New("the value is too large")}
		}
	}
	return p.common.PutInbox(ctx, rows)
}

// A report that goes to another node, and that the store will never take, does not leave the task to wait for its worker as long as that lives: the attempt fails and says why.
// It is not repeated, because the work is done and the same would come of it.
func TestReportThatTheStoreRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, hints := picky{common{memory.New(memory.Options{Shards: 64})}}, &notify.Local{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		begin := func() *engine.Engine {
			e := engine.New(engine.Config{Store: st, Hints: hints})
			go func() { done <- e.Run(ctx) }()
			if err := e.Ready(ctx); err != nil {
				t.Fatal(err)
			}
			return e
		}
		const tasks = 64
		first := begin()
		h := newHand(first, tasks, func(model.Claim) *model.TaskReport { return nil })
		for i := range tasks {
			if _, err := first.Send(ctx, submit(fmt.Sprint(i), model.TaskSpec{})); err != nil {
				t.Fatal(err)
			}
		}
		h.until(func() bool { return len(h.claims) == tasks })
		second := begin()
		other := newHand(second, 1, func(model.Claim) *model.TaskReport { return nil }) // a node without workers gets no shards
		time.Sleep(time.Minute)                                                         // until the shards have moved
		for _, c := range h.claims {
			if err := h.session.Report(ctx, model.TaskReport{Ref: c.Ref, Output: model.Payload{Data: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
		}
		brief, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		refused := 0
		for i := range tasks {
			r, err := second.Await(brief, submit(fmt.Sprint(i), model.TaskSpec{}).To, model.RunID{})
			switch f := r.Outcome.Failure; {
			case err != nil:
				t.Fatalf("task %d: %v", i, err)
			case r.Outcome.Status == model.Completed:
			case r.Outcome.Status != model.Failed || f == nil || !strings.Contains(f.Message, "the value is too large"):
				t.Errorf("task %d: %+v", i, r.Outcome)
			default:
				refused++
			}
		}
		if refused == 0 || refused == tasks || len(h.claims) != tasks || len(other.claims) > 0 {
			t.Errorf("%d of %d reports were refused, after %d and %d claims", refused, tasks, len(h.claims), len(other.claims))
		}
		if err := h.session.Leave(brief); err != nil {
			t.Errorf("leave: %v", err)
		}
		h.until(func() bool { return len(h.settled) == tasks })
		told := 0
		for _, err := range h.settled {
			if err != nil {
				told++
			}
		}
		if told != refused {
			t.Errorf("the worker heard of %d, and %d were refused", told, refused)
		}
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
