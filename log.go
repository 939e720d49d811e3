package perdure

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
	"github.com/perdure/perdure/internal/replay"
)

// Log returns the logger of the activity that ctx belongs to. The engine keeps the lines of a task
// with the task, for Tasks.Logs and `perdure task logs`. The worker sends the lines within a
// second, and before the outcome of the attempt. Logging never waits and never fails: the worker
// drops lines that the engine does not accept in time, and lines beyond the amount that the engine
// keeps. Lines of an activity without a queue, and of a step of Do, go to the logger of the app,
// with attributes that name the execution. Outside steps, Log drops all lines.
//
// Lines are stored as plain text: they are not encrypted as payloads are.
func Log(ctx context.Context) *slog.Logger {
	if t := pool.From(ctx); t != nil {
		return slog.New(newTaskLog(t))
	}
	if s := replay.StepFrom(ctx); s != nil {
		if h, ok := s.Host().(*host); ok {
			run, a := s.Run()
			return h.logger.With("workflow", a.Type, "key", a.Key, "run_id", run.String(), "attempt", s.Attempt())
		}
	}
	return silent
}

// taskLog turns records into lines: the message, and the attributes as slog writes them.
type taskLog struct {
	task *pool.Task
	with []func(slog.Handler) slog.Handler // attributes and groups that every line has
}

func newTaskLog(t *pool.Task) *taskLog { return &taskLog{task: t} }

// attributes has the options with which slog writes the attributes of a record. They leave out the
// level of the record, because TaskItem has a field for the level. An attribute of the user that is
// named "level" stays: its value is not a slog.Level.
var attributes = slog.HandlerOptions{
	Level: slog.LevelDebug,
	ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if _, level := a.Value.Any().(slog.Level); level && len(groups) == 0 && a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	},
}

func (l *taskLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelDebug }

// Handle uses a separate buffer for every line, because user code may produce the text of a value,
// and that code may log too.
func (l *taskLog) Handle(ctx context.Context, r slog.Record) error {
	item := model.TaskItem{Kind: model.ItemLog, Level: int16(max(min(r.Level, 1000), -1000))}
	if !r.Time.IsZero() {
		item.At = model.TimeOf(r.Time)
	}
	text := r.Message
	r.Message, r.Time = "", time.Time{}
	var line bytes.Buffer
	h := slog.Handler(slog.NewTextHandler(&line, &attributes))
	for _, with := range l.with {
		h = with(h)
	}
	if err := h.Handle(ctx, r); err != nil {
		return err
	}

	attrs := strings.TrimPrefix(strings.TrimSuffix(line.String(), "\n"), `msg=""`)
	item.Text = cutLine(text + attrs)
	l.task.Log(item)
	return nil
}

func (l *taskLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return l.also(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

func (l *taskLog) WithGroup(name string) slog.Handler {
	return l.also(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (l *taskLog) also(with func(slog.Handler) slog.Handler) *taskLog {
	return &taskLog{l.task, append(slices.Clip(l.with), with)}
}

// cutLine shortens a line to the length that the engine keeps.
func cutLine(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= model.MaxLogLine {
		return text
	}
	note := fmt.Sprintf(" … %d bytes in all", len(text))
	cut := model.MaxLogLine - len(note)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + note
}
