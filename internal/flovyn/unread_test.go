package flovyn_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/flovyn"
	"github.com/perdure/perdure/internal/model"
)

// reader counts the events that the door reads from the store.
type reader struct {
	api.Backend

	events atomic.Int64
}

func (b *reader) History(ctx context.Context, r api.HistoryRequest) (api.HistoryPage, error) {
	page, err := b.Backend.History(ctx, r)
	b.events.Add(int64(len(page.Events)))
	return page, err
}

// patient gives workers the time that they need.
func patient(c *flovyn.Config) { c.Unconfirmed, c.Silence = time.Hour, time.Hour }

func (r *rig) signal(id, name, value string) (int64, error) {
	reply, err := r.flows.SignalWorkflow(r.ctx(), &pb.SignalWorkflowRequest{WorkflowExecutionId: id, SignalName: name, SignalValue: []byte(value)})
	return reply.GetSignalEventSequence(), err
}

// refused checks that a call was refused with a reason.
func (r *rig) refused(err error, why string) {
	r.t.Helper()
	if err == nil || !strings.Contains(err.Error(), why) {
		r.t.Errorf("the call is answered with %v, must be refused because %s", err, why)
	}
}

// Each of many signals gets its place in the log. To find it, the door reads the events since the
// last signal, and not the whole log again.
func TestManySignals(t *testing.T) {
	t.Parallel()
	const senders, each = 8, 25
	store := &reader{}
	r := impatient(t, func(c *flovyn.Config) {
		patient(c)
		store.Backend = c.Backend
		c.Backend = store
	})
	id := r.start("many", "1")
	r.poll()

	var mu sync.Mutex
	numbers := map[int64]bool{}
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for range each {
				n, err := r.signal(id, "s", "1")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				numbers[n] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for n := int64(2); n <= senders*each+1; n++ {
		if !numbers[n] {
			t.Errorf("no signal has the number %d", n)
		}
	}
	if n := store.events.Load(); n > 2*senders*each {
		t.Errorf("for %d signals the door has read %d events", senders*each, n)
	}

	// The number of a signal is also right after further activations.
	r.submit(id, suspended)
	r.poll()
	r.submit(id, suspended, cmdOperation("op", "1"), cmdSuspend("more"))
	if n, err := r.signal(id, "s", "1"); err != nil || n != senders*each+4 {
		t.Errorf("a later signal has the number %d, %v", n, err)
	}
}

// A workflow that reads none of its signals keeps a bounded number of them. Signals of another name
// still arrive, and the workflow can continue.
func TestSignalsThatNobodyReads(t *testing.T) {
	t.Parallel()
	const most = 10_000
	var backend api.Backend
	r := impatient(t, func(c *flovyn.Config) {
		patient(c)
		backend = c.Backend
	})
	// The first signals are sent together with the start, which is faster.
	id := uuid.NewString()
	s := api.StartRequest{
		Address: model.Address{Tenant: orgID, Type: flovyn.Prefix + r.queue, Key: id}, Input: model.Payload{Data: []byte(`{"flovyn":1,"kind":"deaf"}`), Encoding: model.JSON},
	}
	for range most - 3 {
		s.With = append(s.With, api.Message{Name: "s", Input: model.Payload{Data: []byte("1"), Encoding: model.JSON}})
	}
	_, err := backend.Start(t.Context(), s)
	r.must(err)

	for n := int64(most - 1); n <= most+1; n++ {
		if got, err := r.signal(id, "s", "1"); err != nil || got != n {
			t.Errorf("signal %d has the number %d, %v", n, got, err)
		}
	}
	_, err = r.signal(id, "s", "1")
	r.refused(err, "10000 unread signals")
	_, err = r.signal(id, "other", "1")
	r.must(err)

	r.poll()
	if n := len(r.events(id)); n != most+2 {
		t.Errorf("the log has %d events", n)
	}
	r.submit(id, completed, cmdComplete("1"))
}

// Clients can read logs only up to a limit. So signals leave some room in the log, and a run whose
// log has become too long fails with that reason.
func TestLogsThatClientsCannotRead(t *testing.T) {
	t.Parallel()
	const most = 64 << 10
	r := impatient(t, func(c *flovyn.Config) {
		patient(c)
		c.MaxLog = most
	})
	large := func(kib int) string { return `"` + strings.Repeat("x", kib<<10) + `"` }
	id := r.start("full", "1")
	r.poll()
	for range 6 {
		_, err := r.signal(id, "s", large(8))
		r.must(err)
	}
	_, err := r.signal(id, "s", large(8))
	r.refused(err, "would exceed the limit of 57344")
	_, err = r.signal(id, "s", "1")
	r.must(err)
	_, err = r.flows.SignalWithStartWorkflow(r.ctx(), &pb.SignalWithStartWorkflowRequest{
		WorkflowId: "w", WorkflowKind: "k", Queue: r.queue, SignalName: "s", WorkflowInput: []byte(large(30)), SignalValue: []byte(large(30)),
	})
	r.refused(err, "would exceed the limit of 57344")

	// The workflow has room to continue.
	task := uuid.NewString()
	r.submit(id, suspended, cmdTask(task, "work", "1", nil))
	r.poll()
	r.submit(id, suspended)

	// The result of a task cannot be refused.
	r.complete(r.pollTask().GetTaskExecutionId(), large(20))
	for !strings.Contains(r.types(id), "WORKFLOW_EXECUTION_FAILED") {
		time.Sleep(time.Millisecond)
	}
	if got := r.event(id, "WORKFLOW_EXECUTION_FAILED"); !strings.Contains(got["error"].(string), "read at most 65536") || got["failureType"] != model.FailureHistory {
		t.Errorf("the run failed with %v", got)
	}
	r.nothing()
}
