package feed

import "github.com/perdure/perdure/internal/model"

// mostTasks bounds the open tasks whose queues a topic knows. A task takes about 200 bytes.
const mostTasks = 10_000

// taskQueues knows the queues of the open tasks of workflows, while a caller watches. While a task
// is open, only its first change contains its queue. The zero value knows none.
type taskQueues struct {
	of    map[model.RunID]map[string]string // by task
	tasks int
}

// complete returns a change with the queue of its task, if the topic knows the queue.
func (q *taskQueues) complete(c model.Change) model.Change {
	if c.Class == model.ClassExecution {
		if c.Status.Closed() || c.Kind == model.ChangeRemoved {
			q.forgetRun(c.Run)
		}
		return c
	}
	if c.Class != model.ClassTask || c.Task == "" {
		return c
	}

	if c.Queue == "" {
		c.Queue = q.of[c.Run][c.Task]
	} else if c.Kind == model.ChangeScheduled || c.Kind == model.ChangeClaimed {
		q.remember(c.Run, c.Task, c.Queue)
	}
	if c.Kind == model.ChangeCompleted || c.Kind == model.ChangeFailed {
		q.forget(c.Run, c.Task)
	}
	return c
}

// remember notes the queue of a task. If there is no room, it forgets all other tasks. Some of them
// may belong to runs that have moved to another node, so that this node never learns that they end.
func (q *taskQueues) remember(run model.RunID, task, queue string) {
	if _, known := q.of[run][task]; known {
		return
	}
	if q.of == nil || q.tasks >= mostTasks {
		q.of, q.tasks = map[model.RunID]map[string]string{}, 0
	}
	if q.of[run] == nil {
		q.of[run] = map[string]string{}
	}
	q.of[run][task] = queue
	q.tasks++
}

// forget drops a task that has ended.
func (q *taskQueues) forget(run model.RunID, task string) {
	if _, known := q.of[run][task]; !known {
		return
	}
	delete(q.of[run], task)
	q.tasks--
	if len(q.of[run]) == 0 {
		delete(q.of, run)
	}
}

// forgetRun drops the tasks of a run that has ended.
func (q *taskQueues) forgetRun(run model.RunID) {
	q.tasks -= len(q.of[run])
	delete(q.of, run)
}
