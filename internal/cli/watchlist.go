package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// maxWatched bounds the executions whose last status and reason a command remembers.
const maxWatched = 10_000

// watchedList prints executions of a list whose status or reason has changed. When the feed names
// an execution, watchedList reads that execution from the list, so that it prints the same line as
// the list.
type watchedList struct {
	o     *options
	b     api.Backend
	req   api.ListRequest
	limit int
	// keep reports whether to print an execution. shape returns its value for JSON. Both may be
	// nil.
	keep  func(*api.Description) bool
	shape func(*api.Description) any

	last map[model.RunID]string // the last printed status and reason, by run
}

func (o *options) watchList(b api.Backend, req api.ListRequest, limit int) *watchedList {
	return &watchedList{o: o, b: b, req: req, limit: limit, last: map[model.RunID]string{}}
}

// follow prints the list, and then what changes.
func (w *watchedList) follow(ctx context.Context, table func([]api.Description) error) error {
	r := api.WatchRequest{}
	r.Classes, r.Types, r.Key = []model.ChangeClass{model.ClassExecution, model.ClassTask}, w.req.Workflows, w.req.Key
	first := true
	return w.o.follow(ctx, w.b, r, func(page *api.ChangePage) error {
		switch {
		case page != nil:
			return w.readChanged(ctx, page)
		case !first:
			return w.readAll(ctx, w.print)
		}

		first = false
		if w.o.structured() {
			return w.readAll(ctx, w.print)
		}
		var all []api.Description
		if err := w.readAll(ctx, func(d *api.Description) error { all = append(all, *d); return nil }); err != nil {
			return err
		}

		slices.Reverse(all)
		return table(all)
	})
}

// readAll reads the list and calls show with the executions that have changed, the oldest first.
func (w *watchedList) readAll(ctx context.Context, show func(*api.Description) error) error {
	var all []api.Description
	for req := w.req; ; {
		page, err := w.b.List(ctx, req)
		if err != nil {
			return err
		}
		for i := range page.Executions {
			if d := &page.Executions[i]; w.keep == nil || w.keep(d) {
				all = append(all, *d)
			}
		}
		if req.Cursor = page.Cursor; page.Cursor == "" || w.limit > 0 && len(all) >= w.limit {
			break
		}
	}
	if w.limit > 0 && len(all) > w.limit {
		all = all[:w.limit]
	}

	for i := len(all) - 1; i >= 0; i-- {
		if w.news(&all[i]) {
			if err := show(&all[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// news reports whether the status or the reason of an execution has changed since it was last
// printed. It remembers the new status and reason.
func (w *watchedList) news(d *api.Description) bool {
	s := summarise(d)
	state := s.Status + " " + s.Reason
	if w.last[d.Start.Run] == state {
		return false
	}
	if len(w.last) >= maxWatched {
		clear(w.last)
	}
	w.last[d.Start.Run] = state
	return true
}

// readChanged reads the executions that a page of changes names, and prints them.
func (w *watchedList) readChanged(ctx context.Context, page *api.ChangePage) error {
	done := map[model.RunID]bool{}
	for i := len(page.Changes) - 1; i >= 0; i-- { // only the last change of a run matters
		c := &page.Changes[i]
		skip := done[c.Run] || c.Class == model.ClassTask && c.Task != model.TaskStep || !strings.HasPrefix(c.Address.Key, w.req.KeyPrefix)
		done[c.Run] = true
		if skip {
			page.Changes = slices.Delete(page.Changes, i, i+1)
		}
	}

	for i := range page.Changes {
		if err := w.readOne(ctx, &page.Changes[i]); err != nil {
			return err
		}
	}
	return nil
}

// readOne reads one execution again. If the list no longer has the execution, readOne prints the
// change itself, which says why.
func (w *watchedList) readOne(ctx context.Context, c *api.Change) error {
	req := w.req
	req.Workflows, req.Key, req.KeyPrefix, req.Cursor, req.Limit = []string{c.Address.Type}, c.Address.Key, "", "", 10
	page, err := w.b.List(ctx, req)
	if err != nil {
		return err
	}
	for i := range page.Executions {
		if d := &page.Executions[i]; d.Start.Run == c.Run {
			if (w.keep == nil || w.keep(d)) && w.news(d) {
				return w.print(d)
			}
			return nil
		}
	}

	_, listed := w.last[c.Run]
	if !listed || c.Kind != model.ChangeRemoved && !c.Status.Closed() {
		return nil // the change that removed it from the list follows
	}
	delete(w.last, c.Run)
	gone := api.Description{Start: model.Start{Address: c.Address, Run: c.Run}, Outcome: model.Outcome{Status: c.Status, At: c.At}}
	if c.Kind == model.ChangeRemoved {
		return w.line(&gone, string(c.Kind), "")
	}
	return w.print(&gone)
}

// print prints an execution on one line.
func (w *watchedList) print(d *api.Description) error {
	s := summarise(d)
	return w.line(d, s.Status, s.Reason)
}

func (w *watchedList) line(d *api.Description, status, reason string) error {
	if w.o.structured() {
		if status == string(model.ChangeRemoved) {
			return w.o.jsonLine(removedLine{Workflow: d.Start.Address.Type, Key: d.Start.Address.Key, Run: d.Start.Run.String(), Status: status})
		}
		if w.shape != nil {
			return w.o.jsonLine(w.shape(d))
		}
		return w.o.jsonLine(summarise(d))
	}
	return w.o.printLine("%s  %-10s  %s/%s  %s", clockText(time.Now()), status, d.Start.Address.Type, d.Start.Address.Key, shorten(reason, 200))
}

// removedLine is an execution that was deleted while the command watched, in JSON.
type removedLine struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Status   string `json:"status"`
}
