package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// TaskData reads what tasks write beside the history: states, log lines, streamed items. None of it
// needs a worker.
type TaskData interface {
	// TaskStates returns the states of a task, ordered by name.
	TaskStates(ctx context.Context, t TaskTarget) (TaskStatesReply, error)
	// TaskLogs returns lines of a task, oldest first.
	TaskLogs(ctx context.Context, r TaskLogsRequest) (TaskLogsPage, error)
	// TaskStream returns what a task has streamed, as far as it is kept, oldest first.
	TaskStream(ctx context.Context, r TaskStreamRequest) (TaskStreamPage, error)
}

// TaskTarget names a task: the one that an execution is, or a step of it.
type TaskTarget struct {
	Target
	// Step is that of a workflow; empty for a task that stands alone.
	Step string
}

// TaskState is a named value that a task keeps over its attempts.
type TaskState struct {
	Name  string
	Value model.Payload
}

// TaskStatesReply are the states of a task.
type TaskStatesReply struct {
	Run    model.RunID
	States []TaskState
}

// TaskLogsRequest asks for log lines.
type TaskLogsRequest struct {
	TaskTarget
	After string // the cursor of the page before; empty for the beginning
	Limit int    // at most; 0 for the default
	// Wait has the call return when there is something, or when the task has ended. It needs a step
	// where there is one.
	Wait bool
}

// TaskLine is a line that a task has logged.
type TaskLine struct {
	Step  string
	At    model.Time
	Level int16 // as log/slog has them
	Text  string
}

// TaskLogsPage is a page of lines. The next one has its run, and its cursor.
type TaskLogsPage struct {
	Run    model.RunID
	Lines  []TaskLine
	Cursor string
	// Ended tells that the task has ended and that there are no more lines.
	Ended bool
}

// TaskStreamRequest asks for streamed items.
type TaskStreamRequest struct {
	TaskTarget
	After int64 // the position of the last item that is known; 0 for the first that is kept
	Limit int   // at most; 0 for the default
	// Wait has the call return when there is something, or when the task has ended.
	Wait bool
}

// TaskStreamPage is a page of streamed items. When the first has not the position behind After,
// those between are not kept any more.
type TaskStreamPage struct {
	Run   model.RunID
	Items []model.StreamItem
	// Ended tells that the task has ended and that there are no more items.
	Ended bool
}
