package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// TaskData reads what tasks write next to the history: states, log lines, streamed items. Reading
// needs no worker.
type TaskData interface {
	// TaskStates returns the states of a task, ordered by name.
	TaskStates(ctx context.Context, t TaskTarget) (TaskStatesReply, error)
	// TaskLogs returns log lines of a task, oldest first.
	TaskLogs(ctx context.Context, r TaskLogsRequest) (TaskLogsPage, error)
	// TaskStream returns the streamed items of a task that the engine still keeps, oldest first.
	TaskStream(ctx context.Context, r TaskStreamRequest) (TaskStreamPage, error)
}

// TaskTarget names a task: an execution that is a task, or a step of a workflow.
type TaskTarget struct {
	Target
	// Step is the step of a workflow; empty for a submitted task.
	Step string
}

// TaskState is a named value that a task keeps across its attempts.
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
	After string // the cursor of the previous page; empty for the first page
	Limit int    // at most; 0 for the default
	// Wait makes the call wait until there is a line or the task has ended. For a workflow, Wait
	// needs a Step.
	Wait bool
}

// TaskLine is a line that a task logged.
type TaskLine struct {
	Step  string
	At    model.Time
	Level int16 // a level of log/slog
	Text  string
}

// TaskLogsPage is a page of lines. Ask for the next page with the run and the cursor of this page.
type TaskLogsPage struct {
	Run    model.RunID
	Lines  []TaskLine
	Cursor string
	// Ended is true if the task has ended and this is the last page.
	Ended bool
}

// TaskStreamRequest asks for streamed items.
type TaskStreamRequest struct {
	TaskTarget
	After int64 // the position of the last item read; 0 starts at the first item kept
	Limit int   // at most; 0 for the default
	// Wait makes the call wait until there is an item, or the task has ended.
	Wait bool
}

// TaskStreamPage is a page of streamed items. If the first item does not directly follow After, the
// engine no longer keeps the items between them.
type TaskStreamPage struct {
	Run   model.RunID
	Items []model.StreamItem
	// Ended is true if the task has ended and this is the last page.
	Ended bool
}
