package perdure

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Tasks pauses the task worker of this process and reads what tasks logged and streamed. For tasks
// that failed permanently, see [DeadTasks]. For queues, limits and breakers, see [Queues], [Limits]
// and [Breakers].
type Tasks struct{ app *App }

// Tasks returns the operations on the task worker of this process, and on what tasks have logged
// and streamed.
func (a *App) Tasks() Tasks { return Tasks{a} }

// Pause stops this process from starting tasks until Resume. Running tasks continue, and other
// processes start tasks as before. Queues.Pause stops all processes.
func (s Tasks) Pause() {
	if s.app.tasks != nil {
		s.app.tasks.Pause()
	}
}

// Resume undoes Pause.
func (s Tasks) Resume() {
	if s.app.tasks != nil {
		s.app.tasks.Resume()
	}
}

// Logs returns the lines that a task has logged, in order. Without a Step in tail, it returns the
// lines of all tasks of a workflow, sorted by time. docs/retention.md says how long the engine
// keeps lines.
func (s Tasks) Logs(ctx context.Context, t Target, tail TaskTail) iter.Seq2[LogLine, error] {
	return func(yield func(LogLine, error) bool) {
		to, err := tail.target(s.app.host, t)
		if err == nil && tail.After != 0 {
			err = fault.New(fault.Invalid, "log of %s: After is a position of streamed items", t.target())
		}

		r := api.TaskLogsRequest{TaskTarget: to, Wait: tail.Follow, Limit: 500}
		for err == nil {
			var page api.TaskLogsPage
			if page, err = s.app.host.backend.TaskLogs(ctx, r); err != nil {
				break
			}
			for _, l := range page.Lines {
				if !yield(LogLine{Step: l.Step, Time: l.At.Std(), Level: slog.Level(l.Level), Text: l.Text}, nil) {
					return
				}
			}
			if page.Ended || len(page.Lines) == 0 {
				return
			}
			r.Run, r.After = page.Run, page.Cursor
		}

		yield(LogLine{}, public(err))
	}
}

// Stream returns the items that a task has streamed. The engine keeps the last 4,096 items of a
// task. With Follow, Stream continues until the task ends, and items arrive as soon as they are
// stored, from any process. To continue an earlier read, pass the position of the last item as
// After.
func (s Tasks) Stream(ctx context.Context, t Target, tail TaskTail) iter.Seq2[StreamItem, error] {
	return func(yield func(StreamItem, error) bool) {
		to, err := tail.target(s.app.host, t)
		r := api.TaskStreamRequest{TaskTarget: to, After: tail.After, Wait: tail.Follow, Limit: 500}
		for err == nil {
			var page api.TaskStreamPage
			if page, err = s.app.host.backend.TaskStream(ctx, r); err != nil {
				break
			}
			for i := range page.Items {
				if !yield(s.streamItem(ctx, &page.Items[i]), nil) {
					return
				}
				r.After = page.Items[i].Position
			}
			if page.Ended || len(page.Items) == 0 {
				return
			}
			r.Run = page.Run
		}

		yield(StreamItem{}, public(err))
	}
}

func (s Tasks) streamItem(ctx context.Context, it *model.StreamItem) StreamItem {
	out := StreamItem{Position: it.Position, Time: it.At.Std(), Kind: StreamKind(it.Kind.String())}
	out.Value, out.ValueIs = s.app.host.show(ctx, it.Value)
	r := callReader{s.app.host, ctx}
	// If a value cannot be read, the fields for it stay empty, and ValueIs says how the value is
	// stored.
	switch it.Kind {
	case model.ItemToken:
		out.Text, _ = decode[string](r, "streamed", "token", it.Value)
	case model.ItemProgress:
		v, _ := decode[streamedProgress](r, "streamed", "progress", it.Value)
		out.Share, out.Text = v.Progress, v.Details
	case model.ItemError:
		v, _ := decode[streamedError](r, "streamed", "error", it.Value)
		out.Text = v.Message
	default:
	}
	return out
}

// TaskTail says which part of the log or the stream of a task to read. The zero value reads from
// the beginning to the current end.
type TaskTail struct {
	// Step selects one task of a workflow, as LogLine.Step names it. A submitted task needs no
	// Step.
	Step string
	// After is the position of the last item that the reader has seen. It is for Stream only.
	After int64
	// Follow waits for more lines or items until the task has ended.
	Follow bool
}

func (t TaskTail) target(h *host, of Target) (api.TaskTarget, error) {
	to, err := of.target().api(h)
	return api.TaskTarget{Target: to, Step: t.Step}, err
}

// LogLine is a line that a task has logged.
type LogLine struct {
	Step  string // the name of the task as a step of its workflow
	Time  time.Time
	Level slog.Level
	Text  string
}
