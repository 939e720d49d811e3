package perdure

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Watch yields changes of executions, tasks, entities, workers and settings as they happen. It
// continues until the loop ends or ctx ends. When ctx ends, it yields the error of ctx.
//
//	for c, err := range app.Watch(ctx, perdure.WatchQuery{Classes: []string{"execution"}}) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(c.Ref, c.Kind, c.Status)
//	}
//
// Changes of one execution come in order, after they are stored. The first change has the class
// "feed" and the kind "begun". A program that reads a list when it gets this change, and then
// applies the changes that follow, misses nothing. Two more kinds of that class say which changes
// the feed does not have:
//
//   - "missed": the watch has missed changes, because the loop was too slow, the cursor was too
//     old, or executions have moved between processes. Read the list again.
//   - "partial": the feed does not have the changes of some executions, because this process has no
//     connection to the process that owns them, or because they are moving between processes. A
//     change of the kind "complete" follows when the feed has all changes again.
//
// A slow loop does not slow down the engine or other watchers.
func (a *App) Watch(ctx context.Context, q WatchQuery) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		enough := errors.New("enough")
		first, partial := true, false

		r, err := q.request(a.host.tenant)
		if err != nil {
			yield(Change{}, public(err))
			return
		}
		err = a.host.backend.Watch(ctx, r, func(p api.ChangePage) error {
			var notices []string
			if first {
				notices = append(notices, "begun")
			}
			if p.Gap {
				notices = append(notices, "missed")
			}
			switch {
			case p.Partial && !partial:
				notices = append(notices, "partial")
			case partial && !p.Partial:
				notices = append(notices, "complete")
			}
			first, partial = false, p.Partial

			for _, kind := range notices {
				if !yield(Change{Class: "feed", Kind: kind, Cursor: p.Cursor}, nil) {
					return enough
				}
			}
			for i := range p.Changes {
				c := changeOf(&p.Changes[i])
				if i+1 == len(p.Changes) {
					c.Cursor = p.Cursor
				}
				if !yield(c, nil) {
					return enough
				}
			}
			return nil
		})
		if !errors.Is(err, enough) {
			yield(Change{}, public(err))
		}
	}
}

// WatchQuery selects the changes that fulfil all its conditions. A zero field sets no condition.
type WatchQuery struct {
	// Classes selects classes of changes: execution, task, entity, worker, setting.
	Classes []string
	// Workflows selects executions of these workflows and their tasks. "task:" and the name of an
	// activity selects the tasks of that activity. "entity:" and the name of an entity selects the
	// changes of that entity.
	Workflows []string
	Key       string
	// Statuses selects changes after which an execution or a task has one of these statuses.
	Statuses []Status
	// Kinds selects what has happened, such as "claimed".
	Kinds []string
	// Queues selects tasks of these queues, and the queues themselves. A change of a task that has
	// no Queue is selected as well.
	Queues []string
	// Cursor makes the watch continue after a change of an earlier watch: it is the Cursor of that
	// change. A cursor works for about a minute, and only in the same process or server. If it does
	// not work, the watch starts with "missed".
	Cursor string
}

func (q *WatchQuery) request(tenant string) (api.WatchRequest, error) {
	r := api.WatchRequest{Tenant: tenant, Cursor: q.Cursor}
	r.Types, r.Key, r.Queues = q.Workflows, q.Key, q.Queues
	for _, k := range q.Kinds {
		r.Kinds = append(r.Kinds, model.ChangeKind(k))
	}
	for _, c := range q.Classes {
		r.Classes = append(r.Classes, model.ChangeClass(c))
	}
	for _, s := range q.Statuses {
		status, ok := model.ParseStatus(string(s))
		if !ok {
			return r, fault.New(fault.Invalid, "watch: there is no status %.40q", string(s))
		}
		r.Statuses = append(r.Statuses, status)
	}
	return r, nil
}

// Change is something that has become durable. It contains no inputs and outputs.
type Change struct {
	// Class is execution, task, entity, worker, setting, or feed for a notice of the feed itself.
	Class string
	// Kind is what has happened: started, progressed, waiting, paused, resumed, cancel_requested,
	// blocked, removed; for tasks also scheduled, claimed, returned, retrying, dead, requeued and
	// requeue_undone; for entities created and changed; for settings changed; for workers joined,
	// changed and left. For the end of an execution, Kind is the word for its status.
	// docs/watching.md explains the kinds.
	Kind string
	// Ref is the execution or the task. If a task belongs to a workflow, Ref is the execution of
	// the workflow, and Step is the step of the task.
	Ref  Ref
	Step string
	// Name is the activity of a task, or the name of an entity, a worker or a setting. Key is the
	// key of an entity. Of is the kind of a setting, or the workflow of a worker.
	Name, Key, Of string
	// Queue is the queue of a task. It is empty in some changes of tasks.
	Queue string
	// Status is the status of the execution or the task after the change.
	Status Status
	// Reason is the code of the reason why an execution waits or is blocked.
	Reason string
	// Locked says that a workflow holds the lock of an entity.
	Locked bool
	// Seq is the position of the last event of the execution. It is 0 in some changes.
	Seq  int64
	Time time.Time
	// Cursor continues a watch after this change. It is empty for some changes.
	Cursor string
}

// changeOf turns a change of the engine into a Change for programs.
func changeOf(c *api.Change) Change {
	out := Change{
		Class: string(c.Class), Kind: string(c.Kind), Step: c.Task, Name: c.Name, Of: c.Of, Queue: c.Queue, Reason: string(c.Reason),
		Locked: c.Locked, Seq: c.Seq, Time: c.At.Std(),
	}
	if c.Status != 0 {
		out.Status = Status(c.Status.String())
	}
	switch c.Class {
	case model.ClassExecution, model.ClassTask:
		out.Ref = Ref{Workflow: c.Address.Type, Key: c.Address.Key, Run: c.Run.String()}
	case model.ClassEntity:
		out.Name, out.Key = strings.TrimPrefix(c.Address.Type, model.EntityPrefix), c.Address.Key
	case model.ClassWorker, model.ClassSetting:
	}
	return out
}
