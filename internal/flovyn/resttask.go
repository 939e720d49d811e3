package flovyn

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// task returns the address of the task that a request names.
func (c *call) task() (model.Address, error) {
	return c.d.findTask(c, c.org.Tenant, c.r.PathValue("task"))
}

// taskJSON describes a task.
func (c *call) taskJSON(info *api.Description) map[string]any {
	s, o := &info.Start, &info.Outcome
	env := readEnvelope(s.Input)
	m := map[string]any{
		"id": s.Address.Key, "orgId": c.org.ID, "kind": strings.TrimPrefix(s.Address.Type, model.TaskPrefix), "status": "PENDING", "input": raw(env.Input),
		"output": raw(o.Output.Data), "error": nil, "createdAt": stamp(s.At), "completedAt": stamp(o.At), "executionCount": 0, "workflowExecutionId": nil,
		"metadata": env.Metadata, "progress": nil,
	}

	if s.Task != nil {
		m["queue"], m["maxRetries"] = strings.TrimPrefix(s.Task.Queue, Prefix), s.Task.Retry.MaxAttempts-1
	}
	if o.Failure != nil {
		m["error"] = taskError(o.Failure)
	}
	if strings.HasPrefix(s.Parent.Address.Type, Prefix) {
		m["workflowExecutionId"] = s.Parent.Address.Key
	}
	if o.Status.Closed() {
		m["status"] = c.d.statusOf(info)
	}

	for i := range info.Tasks {
		t := &info.Tasks[i]
		m["executionCount"], m["progress"] = t.Attempt, raw(t.Progress.Data)
		if t.Worker != "" {
			m["status"] = "RUNNING"
		}
		if t.Last != nil {
			m["error"] = t.Last.Message
		}
	}

	return m
}

func getTask(c *call) (int, any, error) {
	a, err := c.task()
	if err != nil {
		return 0, nil, err
	}
	info, err := c.d.backend.Describe(c, api.Target{Address: a})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, c.taskJSON(&info), nil
}

func listTasks(c *call) (int, any, error) {
	page, total, limit, offset, err := c.list(model.TaskPrefix, c.taskJSON)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]any{"tasks": page, "total": total, "limit": limit, "offset": offset}, nil
}

// listFlowTasks lists the tasks that a workflow has scheduled.
func listFlowTasks(c *call) (int, any, error) {
	a, err := c.flow()
	if err != nil {
		return 0, nil, err
	}
	j, err := c.d.journal(c, a, false)
	if err != nil {
		return 0, nil, err
	}

	list := []any{}
	for _, id := range slices.Sorted(maps.Keys(j.scheduled)) {
		task, err := c.d.findTask(c, a.Tenant, id)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		info, err := c.d.backend.Describe(c, api.Target{Address: task})
		if err != nil {
			return 0, nil, err
		}
		list = append(list, c.taskJSON(&info))
	}

	return http.StatusOK, map[string]any{"tasks": list, "total": len(list)}, nil
}

// maxRetriesHTTP is how many retries a task that is created over HTTP may have.
const maxRetriesHTTP = 10

func createTask(c *call) (int, any, error) {
	m := struct {
		Kind        string            `json:"kind"`
		Input       json.RawMessage   `json:"input"`
		Queue       string            `json:"queue"`
		MaxRetries  *int32            `json:"maxRetries"`
		TimeoutMs   int64             `json:"timeoutMs"`
		ScheduledAt *time.Time        `json:"scheduledAt"`
		Metadata    map[string]string `json:"metadata"`
	}{}
	if err := c.read(&m); err != nil {
		return 0, nil, err
	}

	r := taskRequest{kind: m.Kind, queue: m.Queue, input: m.Input, metadata: m.Metadata, retries: defaultRetries, timeoutMs: m.TimeoutMs}
	if m.MaxRetries != nil {
		r.retries = *m.MaxRetries
	}
	if r.retries < 0 || r.retries > maxRetriesHTTP {
		return 0, nil, fault.New(fault.Invalid, "maxRetries is %d, must be 0 to %d", r.retries, maxRetriesHTTP)
	}

	if m.ScheduledAt != nil {
		r.delay = max(time.Until(*m.ScheduledAt), 0)
	}
	id, _, err := c.d.submitTask(c, c.org.Tenant, r)
	if err != nil {
		return 0, nil, err
	}

	info, err := c.d.backend.Describe(c, api.Target{Address: taskAddress(c.org.Tenant, m.Kind, id)})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, c.taskJSON(&info), nil
}

// deleteTask cancels a task that no worker has.
func deleteTask(c *call) (int, any, error) {
	a, err := c.task()
	if err != nil {
		return 0, nil, err
	}
	info, err := c.d.backend.Describe(c, api.Target{Address: a})
	if err != nil {
		return 0, nil, err
	}
	if status := c.taskJSON(&info)["status"]; status != "PENDING" {
		return 0, nil, fault.New(fault.Conflict, "task %s is %s: only a pending one can be deleted", a.Key, status)
	}
	err = c.d.backend.Terminate(c, api.CancelRequest{Target: api.Target{Address: a}, Reason: "deleted"})
	return http.StatusNoContent, nil, err
}

func getTaskLogs(c *call) (int, any, error) {
	a, err := c.task()
	if err != nil {
		return 0, nil, err
	}
	page, err := c.d.backend.TaskLogs(c, api.TaskLogsRequest{TaskTarget: api.TaskTarget{Target: api.Target{Address: a}}, After: c.r.URL.Query().Get("cursor")})
	if err != nil {
		return 0, nil, err
	}
	lines := []any{}
	for _, l := range page.Lines {
		lines = append(lines, map[string]any{"level": slog.Level(l.Level).String(), "message": l.Text, "timestamp": stamp(l.At)})
	}
	return http.StatusOK, map[string]any{"logs": lines, "cursor": page.Cursor}, nil
}

// getTaskAttempts lists the attempts of a task, from its history.
func getTaskAttempts(c *call) (int, any, error) {
	a, err := c.task()
	if err != nil {
		return 0, nil, err
	}
	info, err := c.d.backend.Describe(c, api.Target{Address: a})
	if err != nil {
		return 0, nil, err
	}
	page, err := c.d.backend.History(c, api.HistoryRequest{Target: api.Target{Address: a, Run: info.Start.Run}, After: -1})
	if err != nil {
		return 0, nil, err
	}

	list := []any{}
	var last map[string]any
	begin := func(attempt int, at model.Time, worker string) {
		last = map[string]any{"attempt": attempt, "startedAt": stamp(at), "finishedAt": nil, "status": "RUNNING", "worker": worker, "error": nil}
		list = append(list, last)
	}
	if info.Start.Worker != "" { // if a worker waited for the task, the first claim is part of the start
		begin(1, info.Start.At, info.Start.Worker)
	}
	for i := range page.Events {
		switch e := &page.Events[i]; e.Kind {
		case model.EventTaskClaimed:
			begin(e.Attempt, e.At, e.Worker)
		case model.EventAttemptFailed, model.EventStepFailed, model.EventTaskTimedOut:
			if last != nil && e.Failure != nil {
				last["status"], last["finishedAt"], last["error"] = "FAILED", stamp(e.At), e.Failure.Message
			}
		case model.EventClosed:
			if last != nil && e.Status == model.Completed {
				last["status"], last["finishedAt"], last["output"] = "COMPLETED", stamp(e.At), raw(e.Output.Data)
			}
		default:
		}
	}

	return http.StatusOK, map[string]any{"attempts": list}, nil
}
