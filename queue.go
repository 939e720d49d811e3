package perdure

import (
	"context"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// Queues lists, pauses and resumes the queues that carry tasks.
type Queues struct{ app *App }

// Queues operates the queues of the store.
func (a *App) Queues() Queues { return Queues{a} }

// List lists the queues that this process serves, that tasks of it wait in, and that are paused.
func (q Queues) List(ctx context.Context) ([]QueueInfo, error) {
	found, err := q.app.cfg.Backend.Queues(ctx, model.DefaultTenant)
	list := make([]QueueInfo, len(found))
	for i, q := range found {
		list[i] = QueueInfo{
			Name: q.Name, Paused: q.Paused, Reason: q.Why, Waiting: q.Waiting, Delayed: q.Delayed, Running: q.Claimed, Workers: q.Workers, Slots: q.Slots,
		}
	}
	return list, public(err)
}

// Pause stops every process from starting tasks of a queue until Resume. Tasks that run go on.
func (q Queues) Pause(ctx context.Context, name, reason string) error {
	return public(q.app.cfg.Backend.PauseQueue(ctx, model.DefaultTenant, name, strings.TrimSpace(reason)))
}

// Resume undoes Pause. Resuming a queue that is not paused does nothing.
func (q Queues) Resume(ctx context.Context, name string) error {
	return public(q.app.cfg.Backend.ResumeQueue(ctx, model.DefaultTenant, name))
}

// QueueInfo is how a queue stands. The numbers are those of this process: of tasks whose runs it owns, whoever executes them, and of its own workers.
type QueueInfo struct {
	Name    string
	Paused  bool
	Reason  string // why it is paused
	Waiting int    // could begin
	Delayed int    // will be able to, later
	Running int
	Workers int
	Slots   int
}

// DefaultQueue carries what is submitted without a queue.
const DefaultQueue = model.DefaultQueue

// OnQueue has an activity carried out by whoever serves the queue, instead of by the process that runs the workflow: it becomes a task.
func OnQueue(name string) TaskOption {
	return taskOption{"OnQueue", func(s *taskSettings) { s.queue, s.queued = name, true }}
}
