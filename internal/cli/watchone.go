package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// changesOf selects the changes of one execution.
func changesOf(t api.Target) (r api.WatchRequest) {
	r.Classes, r.Types, r.Key = []model.ChangeClass{model.ClassExecution, model.ClassTask}, []string{t.Address.Type}, t.Address.Key
	return r
}

// watchDescription prints an execution again when its description has changed, until it ends.
func (o *options) watchDescription(ctx context.Context, b api.Backend, t api.Target, stack bool) error {
	last := ""
	return o.follow(ctx, b, changesOf(t), func(*api.ChangePage) error {
		d, err := b.Describe(ctx, t)
		if err != nil {
			return err
		}
		t.Run = d.Start.Run // watch this run, even if the execution gets another one

		var text bytes.Buffer
		quiet := *o
		quiet.Out = &text
		if err := quiet.describe(ctx, b, t, stack); err != nil {
			return err
		}
		if text.String() != last {
			if err := o.printAgain(text.Bytes(), last == ""); err != nil {
				return err
			}
			last = text.String()
		}
		if d.Outcome.Status.Closed() {
			return errWatched
		}
		wait(ctx, watchRest) // changes that follow soon are printed together
		return nil
	})
}

// printAgain prints a new version of a description. For programs it prints one line.
func (o *options) printAgain(text []byte, first bool) error {
	if o.structured() {
		return o.line(text)
	}
	if !first {
		fmt.Fprintln(o.Out)
	}
	_, err := o.Out.Write(text)
	return err
}

// watchHistory prints the history of a run, and then new events, until the run ends.
func (o *options) watchHistory(ctx context.Context, b api.Backend, t api.Target) error {
	req, first := api.HistoryRequest{Target: t, After: -1}, true
	return o.follow(ctx, b, changesOf(t), func(*api.ChangePage) error {
		for {
			page, err := b.History(ctx, req)
			if err != nil {
				return err
			}
			if len(page.Events) == 0 {
				return nil
			}

			if err := o.printEvents(page.Events, first); err != nil {
				return err
			}
			last := &page.Events[len(page.Events)-1]
			req.After, req.Target.Run, first = last.Seq, page.Run, false
			if last.Kind == model.EventClosed {
				return errWatched
			}
			if !page.More {
				return nil
			}
		}
	})
}

// printEvents prints events, one per line. If first is true and the output is for people, it prints
// a table with a head.
func (o *options) printEvents(events []model.Event, first bool) error {
	if !o.structured() && first {
		return o.printHistory(events)
	}

	for i := range events {
		e := &events[i]
		if o.structured() {
			if err := o.jsonLine(eventLineOf(e)); err != nil {
				return err
			}
			continue
		}
		if err := o.printLine("%s", strings.Join(o.eventRow(e), "  ")); err != nil {
			return err
		}
	}

	return nil
}

// watchQueues prints the queues, and after that each queue that has changed.
func (o *options) watchQueues(ctx context.Context) error {
	return o.with(ctx, true, func(b api.Backend) error {
		var r api.WatchRequest
		r.Classes = []model.ChangeClass{model.ClassTask, model.ClassSetting, model.ClassWorker}
		last, first := map[string]string{}, true
		return o.follow(ctx, b, r, func(*api.ChangePage) error {
			v, err := o.readQueues(ctx, b, "")
			if err != nil {
				return err
			}
			if first && !o.structured() {
				err = o.printQueueView(&v)
			}

			for i := range v.lines {
				text := fmt.Sprint(v.rows[i])
				if last[v.lines[i].Queue] != text && (!first || o.structured()) && err == nil {
					err = o.printQueueLine(&v.lines[i], v.rows[i])
				}
				last[v.lines[i].Queue] = text
			}

			first = false
			wait(ctx, watchRest)
			return err
		})
	})
}

func (o *options) printQueueLine(l *queueLine, row []string) error {
	if o.structured() {
		return o.jsonLine(l)
	}
	return o.printLine("%s  %s  open %s  workers %s  slots %s  %s", clockText(time.Now()), row[0], row[1], row[3], row[4], row[5])
}
