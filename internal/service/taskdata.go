package service

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// lookEvery is how often the service polls a store that is open for reading only, where no engine
// reports changes.
const lookEvery = 500 * time.Millisecond

// sealed is the number of bytes by which a value may grow when it is encrypted.
const sealed = 1 << 10

// write checks a TaskWrite, which has the data that a worker stores for the task that it executes.
func (v validator) write(w *model.TaskWrite) {
	v.Address(w.Ref.Address)
	if w.First < 0 {
		v.Wrong("its first item has the number %d", w.First)
	}
	if n := len(w.Items); n == 0 || n > model.MaxTaskItems {
		v.Wrong("it has %d items, at least one and at most %d are allowed", n, model.MaxTaskItems)
		return
	}
	for i := range w.Items {
		v.item(&w.Items[i])
	}
}

func (v validator) item(it *model.TaskItem) {
	if it.At < 0 {
		v.Wrong("an item has a time before all times")
	}

	switch it.Kind {
	case model.ItemSet:
		v.Name("state", it.Name)
		v.Payload("state "+it.Name, it.Value)
	case model.ItemRemove:
		v.Name("state", it.Name)
	case model.ItemClear:
	case model.ItemLog:
		switch {
		case len(it.Text) > model.MaxLogLine:
			v.Wrong("a log line has %d bytes, at most %d are allowed", len(it.Text), model.MaxLogLine)
		case !utf8.ValidString(it.Text):
			v.Wrong("a log line is not valid UTF-8")
		}
	case model.ItemToken, model.ItemProgress, model.ItemData, model.ItemError:
		if n := it.Value.Size(); n > model.MaxStreamItem+sealed {
			v.Wrong("a streamed item has %d bytes, at most %d are allowed", n, model.MaxStreamItem+sealed)
		}
	default:
		v.Wrong("there are no items of kind %d", it.Kind)
	}
}

func statesOf(rows []store.TaskDatum) []api.TaskState {
	states := make([]api.TaskState, len(rows))
	for i := range rows {
		states[i] = api.TaskState{Name: rows[i].Name, Value: rows[i].Value}
	}
	return states
}

// task is a task whose data the service reads.
type task struct {
	key  store.RunKey
	row  *store.Execution
	step string // empty for all tasks of a workflow

	// These fields reflect the part of the history that was read so far.
	read             int64 // the last position
	scheduled, ended bool
}

// note updates the task from events of the run.
func (k *task) note(events []model.Event) {
	for i := range events {
		switch e := &events[i]; {
		case e.ID != k.step:
		case e.Kind == model.EventTaskScheduled:
			k.scheduled = true
		case e.Kind == model.EventStepCompleted, e.Kind == model.EventStepFailed, e.Kind == model.EventWithdrawn, e.TimedOutForGood():
			k.ended = true
		}
	}
}

// taskOf finds a task. If all is true, the step may be empty, which means all tasks of a workflow.
func (s *Service) taskOf(ctx context.Context, op string, t *api.TaskTarget, all bool) (*task, error) {
	row, err := s.execution(ctx, op, t.Target)
	if err != nil {
		return nil, err
	}
	k := &task{key: store.RunKey{Shard: row.Shard, Run: row.Start.Run}, row: row, step: t.Step}
	switch alone := row.Start.Task != nil; {
	case alone && k.step == "":
		k.step = model.TaskStep
	case alone && k.step != model.TaskStep:
		return nil, fault.New(fault.NotFound, "%s is a task and has no step %s", t.Address, k.step)
	case k.step == "" && !all:
		return nil, fault.New(fault.Invalid, "%s: %s is a workflow: name the step of the task", op, t.Address)
	}
	return k, nil
}

// TaskStates returns the states of a task.
func (s *Service) TaskStates(ctx context.Context, t api.TaskTarget) (api.TaskStatesReply, error) {
	k, err := s.taskOf(ctx, "states", &t, false)
	if err != nil {
		return api.TaskStatesReply{}, err
	}
	rows, err := s.store.LoadTaskData(ctx, k.key, store.StateRange(k.step))
	return api.TaskStatesReply{Run: k.key.Run, States: statesOf(rows)}, err
}

// TaskLogs returns log lines of a task.
func (s *Service) TaskLogs(ctx context.Context, r api.TaskLogsRequest) (page api.TaskLogsPage, err error) {
	k, err := s.taskOf(ctx, "logs", &r.TaskTarget, !r.Wait)
	if err != nil {
		return page, err
	}
	place, err := parseLogCursor(r.After)
	if err != nil {
		return page, err
	}

	page.Run, page.Cursor = k.key.Run, r.After
	limit := pageSize(r.Limit)
	page.Ended, err = s.follow(ctx, k, pageRead{wait: r.Wait, limit: limit, read: func() (n int, err error) {
		rows, err := s.store.LoadLogs(ctx, k.key, k.step, place, limit)
		for i := range rows {
			l := &rows[i]
			page.Lines = append(page.Lines, api.TaskLine{Step: l.Task, At: l.At, Level: l.Level, Text: l.Text})
		}
		if len(rows) > 0 {
			place = rows[len(rows)-1].Place()
			page.Cursor = logCursor(place)
		}
		return len(rows), err
	}})

	return page, err
}

// TaskStream returns what a task has streamed.
func (s *Service) TaskStream(ctx context.Context, r api.TaskStreamRequest) (page api.TaskStreamPage, err error) {
	if r.After < 0 {
		return page, fault.New(fault.Invalid, "stream of %s: position %d is before the first", r.Address, r.After)
	}
	k, err := s.taskOf(ctx, "stream", &r.TaskTarget, false)
	if err != nil {
		return page, err
	}

	page.Run = k.key.Run
	limit := pageSize(r.Limit)
	page.Ended, err = s.follow(ctx, k, pageRead{wait: r.Wait, limit: limit, read: func() (int, error) {
		rows, err := s.store.LoadTaskData(ctx, k.key, store.StreamRange(k.step, r.After, limit))
		for i := range rows {
			it, bad := rows[i].StreamItem()
			if bad != nil {
				return i, bad
			}
			page.Items = append(page.Items, it)
		}
		return len(rows), err
	}})

	return page, err
}

// pageRead has the parameters of Service.follow. Its function read appends the rows that exist to
// the page, and returns their number.
type pageRead struct {
	wait  bool // whether to wait for the next rows if there are none
	limit int
	read  func() (int, error)
}

// follow reads a page. If the page is empty and wait is true, it waits for the next rows. It
// reports whether the task has ended and the page is the last.
func (s *Service) follow(ctx context.Context, k *task, p pageRead) (ended bool, err error) {
	for {
		// Listen before the read, so that no change in between is missed.
		changed, stop, err := s.watchChanges(ctx, k, p.wait)
		if err != nil {
			return false, err
		}

		n, err := p.read()
		if err == nil && n == 0 && k.step != "" {
			if ended, err = s.taskEnded(ctx, k); ended && err == nil {
				n, err = p.read() // read what the task wrote before it ended
			}
		}

		if err != nil || n > 0 || ended || !p.wait {
			stop()
			return ended && n < p.limit, err
		}

		select {
		case <-changed:
			stop()
		case <-ctx.Done():
			stop()
			return false, fault.New(fault.KindOf(ctx.Err()), "follow %s: %w", k.row.Start.Address, context.Cause(ctx))
		}
	}
}

// watchChanges returns a channel that becomes ready when the execution changes. Without an engine,
// the channel becomes ready after lookEvery.
func (s *Service) watchChanges(ctx context.Context, k *task, wait bool) (<-chan struct{}, func(), error) {
	switch {
	case !wait:
		return nil, func() {}, nil
	case s.engine != nil:
		return s.engine.WatchChanges(ctx, k.row.Start.Address)
	}
	again := make(chan struct{})
	timer := time.AfterFunc(lookEvery, func() { close(again) })
	return again, func() { timer.Stop() }, nil
}

// taskEnded reports whether a task has ended, so that it will not write again.
func (s *Service) taskEnded(ctx context.Context, k *task) (bool, error) {
	at := api.Target{Address: k.row.Start.Address, Run: k.key.Run}
	row, err := s.execution(ctx, "follow", at)
	switch {
	case fault.Is(err, fault.NotFound):
		return true, nil // the execution was removed
	case err != nil || row.Outcome.Status.Closed():
		return err == nil, err
	case row.Start.Task != nil:
		return false, nil
	}

	if k.read == 0 {
		k.note(row.Start.Carried)
		k.read = int64(len(row.Start.Carried))
	}

	for !k.ended { // k keeps the position between calls, so follow reads each event only once
		page, err := s.store.LoadEvents(ctx, k.key, k.read, historyPage, 4<<20)
		if err != nil {
			return false, err
		}
		if len(page) == 0 {
			break
		}
		k.note(page)
		k.read = page[len(page)-1].Seq
	}

	if !k.scheduled {
		return false, fault.New(fault.NotFound, "%s has no task with the step %s", at.Address, k.step)
	}
	return k.ended, nil
}

// logCursor encodes a place among log lines.
func logCursor(p store.LogPlace) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.At))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Batch))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, uint32(p.N)))
}

func parseLogCursor(s string) (p store.LogPlace, err error) {
	if s == "" {
		return p, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != 28 {
		return p, fault.New(fault.Invalid, "%q is no cursor of log lines", s)
	}
	return store.LogPlace{
		At: model.Time(binary.BigEndian.Uint64(b)), Epoch: int64(binary.BigEndian.Uint64(b[8:])), Batch: int64(binary.BigEndian.Uint64(b[16:])), N: int32(binary.BigEndian.Uint32(b[24:])),
	}, nil
}
