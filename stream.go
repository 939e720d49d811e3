package perdure

import (
	"context"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
)

// StreamKind says what a streamed item is.
type StreamKind string

// Kinds of streamed items.
const (
	StreamedToken    StreamKind = "token"
	StreamedProgress StreamKind = "progress"
	StreamedData     StreamKind = "data"
	StreamedError    StreamKind = "error"
)

// StreamItem is something that a task has streamed.
type StreamItem struct {
	// Position counts the items of the task from 1, over all attempts. A gap tells that what was there is not kept any more.
	Position int64
	Time     time.Time
	Kind     StreamKind
	// Text is that of a token, the details of progress, or the message of an error.
	Text string
	// Share is how far the task is, of progress.
	Share float64
	// Value is JSON, whatever the kind. What is stored in another way is decoded, if this app can; if not, it is nil.
	Value []byte
	// ValueIs tells how it is stored.
	ValueIs string
}

// StreamToken streams a piece of text, such as a token of a language model, to whoever listens to the task that ctx belongs to: App.TaskStream. Items leave the process
// within a tenth of a second, together; the last ones, before the outcome of the attempt. It waits only while the engine does not take what is there already, and returns an
// error once the activity should end, as Heartbeat does. An activity that runs inline has nobody who listens: there it does nothing else.
func StreamToken(ctx context.Context, text string) error { return stream(ctx, model.ItemToken, text) }

// StreamProgress streams how far the activity is, as a share from 0 to 1, and what there is to say about it. Unlike the progress of Heartbeat it is for listeners only.
func StreamProgress(ctx context.Context, share float64, details string) error {
	return stream(ctx, model.ItemProgress, streamedProgress{share, details})
}

// StreamData streams any value.
func StreamData[T any](ctx context.Context, v T) error { return stream(ctx, model.ItemData, v) }

// StreamError streams the text of an error that does not end the activity.
func StreamError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return stream(ctx, model.ItemError, streamedError{err.Error()})
}

func stream[T any](ctx context.Context, kind model.ItemKind, v T) error {
	if ctx.Err() != nil {
		return public(context.Cause(ctx))
	}
	t := pool.From(ctx)
	if t == nil {
		return nil
	}
	h := t.Owner().(*host)
	name := t.Claim().Spec.Kind
	p, err := encode(h, "streamed value of activity", name, v)
	if err == nil && p.Size() > model.MaxStreamItem {
		err = fault.New(fault.Invalid, "streamed value of activity %s has %d bytes, at most %d are allowed", name, p.Size(), model.MaxStreamItem)
	}
	if err == nil {
		err = t.Stream(ctx, model.TaskItem{Kind: kind, Value: p, At: model.TimeOf(time.Now())})
	}
	return public(err)
}

// streamedProgress and streamedError are how these are stored.
type streamedProgress struct {
	Progress float64 `json:"progress"`
	Details  string  `json:"details,omitempty"`
}

type streamedError struct {
	Message string `json:"message"`
}

// TaskTail says what is read of the lines that a task has logged, or of what it has streamed. The zero value is what is there, from the beginning.
type TaskTail struct {
	// Step is that of a task which a workflow has scheduled, as LogLine has it. A task that was submitted needs none.
	Step string
	// After is the position of the last streamed item that is known. It is for TaskStream only.
	After int64
	// Follow waits for more, until the task has ended.
	Follow bool
}

func (t TaskTail) target(of Target) (api.TaskTarget, error) {
	to, err := of.target().api()
	return api.TaskTarget{Target: to, Step: t.Step}, err
}

// TaskStream is what a task has streamed, as far as it is kept: the last 4,096 items. With Follow it goes on until the task has ended: items come as soon as they are stored,
// whatever process the task runs in. Who comes back names the position of the last item that it has seen.
func (a *App) TaskStream(ctx context.Context, t Target, tail TaskTail) iter.Seq2[StreamItem, error] {
	return func(yield func(StreamItem, error) bool) {
		to, err := tail.target(t)
		r := api.TaskStreamRequest{TaskTarget: to, After: tail.After, Wait: tail.Follow, Limit: 500}
		for err == nil {
			var page api.TaskStreamPage
			if page, err = a.host.backend.TaskStream(ctx, r); err != nil {
				break
			}
			for i := range page.Items {
				if !yield(a.streamItem(ctx, &page.Items[i]), nil) {
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

func (a *App) streamItem(ctx context.Context, it *model.StreamItem) StreamItem {
	out := StreamItem{Position: it.Position, Time: it.At.Std(), Kind: StreamKind(it.Kind.String())}
	out.Value, out.ValueIs = a.host.show(ctx, it.Value)
	r := callReader{a.host, ctx}
	switch it.Kind { // what cannot be read is left out: ValueIs tells how it is stored
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
