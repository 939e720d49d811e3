package perdure

import (
	"context"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

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

// Queues lists the queues that this process serves, that tasks of it wait in, and that are paused.
func (a *App) Queues(ctx context.Context) ([]QueueInfo, error) {
	found, err := a.cfg.Backend.Queues(ctx, model.DefaultTenant)
	list := make([]QueueInfo, len(found))
	for i, q := range found {
		list[i] = QueueInfo{
			Name: q.Name, Paused: q.Paused, Reason: q.Why, Waiting: q.Waiting, Delayed: q.Delayed, Running: q.Claimed, Workers: q.Workers, Slots: q.Slots,
		}
	}
	return list, public(err)
}

// PauseQueue has no task of a queue begin, in any process, until ResumeQueue; those that run go on.
func (a *App) PauseQueue(ctx context.Context, name, reason string) error {
	return public(a.cfg.Backend.PauseQueue(ctx, model.DefaultTenant, name, strings.TrimSpace(reason)))
}

// ResumeQueue undoes PauseQueue. It is no mistake when the queue is not paused.
func (a *App) ResumeQueue(ctx context.Context, name string) error {
	return public(a.cfg.Backend.ResumeQueue(ctx, model.DefaultTenant, name))
}
