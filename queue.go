package perdure

import (
	"context"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// Queues lists, pauses and resumes the queues that carry tasks.
type Queues struct{ app *App }

// Queues returns the operations on the queues of the store.
func (a *App) Queues() Queues { return Queues{a} }

// List returns the queues that workers of this node serve, the queues in which tasks of runs of
// this node wait, and the queues that are paused. The node is this process or, for an app that Dial
// has opened, the server.
func (q Queues) List(ctx context.Context) ([]QueueInfo, error) {
	found, err := q.app.cfg.Backend.Queues(ctx, q.app.host.tenant)
	list := make([]QueueInfo, len(found))
	for i, q := range found {
		list[i] = QueueInfo{
			Name: q.Name, Paused: q.Paused, Reason: q.Why, Waiting: q.Waiting, Delayed: q.Delayed, Running: q.Claimed, Workers: q.Workers, Slots: q.Slots,
		}
	}
	return list, public(err)
}

// Pause stops every process from starting tasks of a queue until Resume. Running tasks continue.
func (q Queues) Pause(ctx context.Context, name, reason string) error {
	return public(q.app.cfg.Backend.PauseQueue(ctx, q.app.host.tenant, name, strings.TrimSpace(reason)))
}

// Resume undoes Pause. Resuming a queue that is not paused does nothing.
func (q Queues) Resume(ctx context.Context, name string) error {
	return public(q.app.cfg.Backend.ResumeQueue(ctx, q.app.host.tenant, name))
}

// QueueInfo is the state of a queue. The numbers are about only one node, as in Queues.List. They
// count the workers of that node, and the tasks of the runs that it owns, even if workers of
// another node execute these tasks.
type QueueInfo struct {
	Name    string
	Paused  bool
	Reason  string // why it is paused
	Waiting int    // tasks that could start now
	Delayed int    // tasks that may start later
	Running int
	Workers int
	Slots   int
}

// DefaultQueue is the queue of a submission that names no queue. Every process that executes tasks
// serves it.
const DefaultQueue = model.DefaultQueue

// OnQueue makes an activity a task: a worker that serves the queue executes it, in any process,
// instead of the process that runs the workflow. Options such as Priority, HeartbeatTimeout and
// Delay need a queue.
func OnQueue(name string) TaskOption {
	return taskOption{"OnQueue", func(s *taskSettings) { s.queue, s.queued = name, true }}
}
