package perdure

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
	"github.com/perdure/perdure/internal/replay"
)

// Log is the log of the activity that ctx belongs to. On a queue, lines are kept with the task, where App.TaskLogs and perdure task logs find them; they leave the process within
// a second, and before the outcome of the attempt. To log never waits and never fails: what the engine does not take in time, or what is more than it keeps, is dropped. Lines of an
// activity that runs inline go to the logger of the app, with the execution that it belongs to. Outside of activities there is no log: lines are dropped.
//
// Lines are text, and are stored as they are: they are not encrypted as payloads are.
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

// taskLog makes lines of records: the message, and the attributes as slog writes them.
type taskLog struct {
	task  *pool.Task
	line  *lineBuffer
	attrs slog.Handler // writes the attributes of a record to line
}

// lineBuffer holds one line at a time, for a logger and those that are made of it.
type lineBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func newTaskLog(t *pool.Task) *taskLog {
	line := &lineBuffer{}
	return &taskLog{task: t, line: line, attrs: slog.NewTextHandler(&line.buf, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{} // they have columns of their own
			}
			return a
		},
	})}
}

func (l *taskLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelDebug }

func (l *taskLog) Handle(ctx context.Context, r slog.Record) error {
	text := r.Message
	r.Message = ""
	l.line.mu.Lock()
	l.line.buf.Reset()
	err := l.attrs.Handle(ctx, r)
	attrs := strings.TrimPrefix(strings.TrimSuffix(l.line.buf.String(), "\n"), `msg=""`)
	l.line.mu.Unlock()
	if err != nil {
		return err
	}
	item := model.TaskItem{Kind: model.ItemLog, Level: int16(max(min(r.Level, 1000), -1000)), Text: cutLine(text + attrs)}
	if !r.Time.IsZero() {
		item.At = model.TimeOf(r.Time)
	}
	l.task.Log(item)
	return nil
}

func (l *taskLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &taskLog{l.task, l.line, l.attrs.WithAttrs(attrs)}
}

func (l *taskLog) WithGroup(name string) slog.Handler {
	return &taskLog{l.task, l.line, l.attrs.WithGroup(name)}
}

// cutLine makes a line one that is kept.
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
