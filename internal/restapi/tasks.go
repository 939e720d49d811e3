package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
)

const tasksTag = "Tasks"

// TaskPath names a task: an execution that is a task, or a step of a workflow.
type TaskPath struct {
	TargetPath

	Step string `query:"step" example:"charge" doc:"The step of a workflow; absent for a task without a workflow"`
}

func (p *TaskPath) task(who *authn.Identity) (api.TaskTarget, error) {
	t, err := p.target(who)
	return api.TaskTarget{Target: t, Step: p.Step}, err
}

// addTasks adds the operations that read the data that tasks write.
func (s *Server) addTasks() {
	const one = "/executions/{workflow}/{key}"
	add(s, operation{id: "get-task-states", method: http.MethodGet, path: one + "/task-states", tag: tasksTag, summary: "Read the states of a task"}, s.taskStates)
	add(s, operation{id: "get-task-logs", method: http.MethodGet, path: one + "/task-logs", tag: tasksTag, summary: "Read log lines of a task", waits: true}, s.taskLogs)
	add(s, operation{id: "get-task-stream", method: http.MethodGet, path: one + "/task-stream", tag: tasksTag, summary: "Read the items that a task has streamed", waits: true}, s.taskStream)
}

// taskStates are the states of a task.
type taskStates struct {
	Run    string         `json:"run"`
	States map[string]any `json:"states"`
}

func (s *Server) taskStates(ctx context.Context, who *authn.Identity, in *TaskPath) (*reply[taskStates], error) {
	t, err := in.task(who)
	if err != nil {
		return nil, err
	}
	got, err := s.config.Backend.TaskStates(ctx, t)
	if err != nil {
		return nil, err
	}
	r := taskStates{got.Run.String(), make(map[string]any, len(got.States))}
	for _, state := range got.States {
		r.States[state.Name] = value(state.Value)
	}
	return ok(r)
}

type taskLogsInput struct {
	TaskPath

	After string `query:"after" doc:"The cursor of the previous page"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"200"`
	Wait  bool   `query:"wait" doc:"Wait until there is a line or the task has ended"`
}

// taskLogs is a page of log lines.
type taskLogs struct {
	Run    string    `json:"run"`
	Lines  []logLine `json:"lines"`
	Cursor string    `json:"cursor,omitempty"`
	Ended  bool      `json:"ended" doc:"Whether the task has ended and this is the last page"`
}

type logLine struct {
	Step  string     `json:"step,omitempty"`
	At    *time.Time `json:"at"`
	Level int        `json:"level" doc:"-4 debug, 0 info, 4 warning, 8 error"`
	Text  string     `json:"text"`
}

func (s *Server) taskLogs(ctx context.Context, who *authn.Identity, in *taskLogsInput) (*reply[taskLogs], error) {
	t, err := in.task(who)
	if err != nil {
		return nil, err
	}
	got, err := s.config.Backend.TaskLogs(ctx, api.TaskLogsRequest{TaskTarget: t, After: in.After, Limit: in.Limit, Wait: in.Wait})
	if err != nil {
		return nil, err
	}
	lines := each(got.Lines, func(l *api.TaskLine) logLine { return logLine{l.Step, at(l.At), int(l.Level), l.Text} })
	return ok(taskLogs{got.Run.String(), lines, got.Cursor, got.Ended})
}

type taskStreamInput struct {
	TaskPath

	After int64 `query:"after" minimum:"0" doc:"The position of the last item read"`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"200"`
	Wait  bool  `query:"wait" doc:"Wait until there is an item or the task has ended"`
}

// taskStream is a page of streamed items.
type taskStream struct {
	Run   string       `json:"run"`
	Items []streamItem `json:"items"`
	Ended bool         `json:"ended"`
}

type streamItem struct {
	Position int64      `json:"position"`
	At       *time.Time `json:"at"`
	Value    any        `json:"value"`
}

func (s *Server) taskStream(ctx context.Context, who *authn.Identity, in *taskStreamInput) (*reply[taskStream], error) {
	t, err := in.task(who)
	if err != nil {
		return nil, err
	}
	got, err := s.config.Backend.TaskStream(ctx, api.TaskStreamRequest{TaskTarget: t, After: in.After, Limit: in.Limit, Wait: in.Wait})
	if err != nil {
		return nil, err
	}
	return ok(taskStream{got.Run.String(), each(got.Items, itemOf), got.Ended})
}
