package perdure

import (
	"context"
	"time"

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

// StreamItem is an item that a task has streamed.
type StreamItem struct {
	// Position counts the items of the task from 1, over all attempts. A gap means that older items
	// are no longer kept.
	Position int64
	Time     time.Time
	Kind     StreamKind
	// Text is the text of a token, the details of progress, or the message of an error.
	Text string
	// Share is the progress of the task, from 0 to 1.
	Share float64
	// Value is JSON for every kind of item. It is nil when the value is stored in another form that
	// this app cannot decode.
	Value []byte
	// ValueIs says how the value is stored.
	ValueIs string
}

// StreamToken streams a piece of text, such as a token of a language model, to the readers of the
// task that ctx belongs to (Tasks.Stream). The worker collects items for up to a tenth of a second
// and sends them together. It sends all items before the outcome of the attempt. StreamToken waits
// only while the engine accepts no items. Like Heartbeat, it returns an error once the activity
// should end. In an activity without a queue, it streams nothing and only returns that error.
func StreamToken(ctx context.Context, text string) error {
	return public(stream(ctx, model.ItemToken, text))
}

// StreamProgress streams the progress of the activity, as a share from 0 to 1 and a text. Only
// readers of the stream get it. It is independent of the progress that Heartbeat reports.
func StreamProgress(ctx context.Context, share float64, details string) error {
	return public(stream(ctx, model.ItemProgress, streamedProgress{share, details}))
}

// StreamData streams any value.
func StreamData[T any](ctx context.Context, v T) error {
	return public(stream(ctx, model.ItemData, v))
}

// StreamError streams the text of an error that does not end the activity.
func StreamError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return public(stream(ctx, model.ItemError, streamedError{err.Error()}))
}

func stream[T any](ctx context.Context, kind model.ItemKind, v T) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
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

	return err
}

// streamedProgress and streamedError are the stored forms of progress and errors.
type streamedProgress struct {
	Progress float64 `json:"progress"`
	Details  string  `json:"details,omitempty"`
}

type streamedError struct {
	Message string `json:"message"`
}
