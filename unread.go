package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/model"
)

// Signals shows the signals that the code of an execution has not received, and skips or drops one
// of them.
type Signals struct{ app *App }

// Signals returns the operations on the unread signals of executions.
func (a *App) Signals() Signals { return Signals{a} }

// UnreadSignal is a signal that the code of an execution has not received.
type UnreadSignal struct {
	// ID identifies the signal for Describe, Skip and Drop. It changes when the execution continues
	// as new.
	ID        string
	Position  int // from 1, in the order in which the signals arrived
	Name      string
	Since     time.Time
	Bytes     int    // of its value
	RequestID string // of the request that sent it; may be empty
	// Value is the value as JSON, or nil if this app cannot decode it. ValueIs says how the value
	// is stored. Only Describe sets these two fields.
	Value   []byte
	ValueIs string
}

// List returns the signals that the code of an execution has not received, oldest first, and at
// most 1,000 of them.
func (s Signals) List(ctx context.Context, t Target) ([]UnreadSignal, error) {
	return s.signals(ctx, t, api.SignalsRequest{Do: model.MailboxList})
}

// Describe returns one signal that the code of an execution has not received, with its value.
func (s Signals) Describe(ctx context.Context, t Target, id string) (UnreadSignal, error) {
	return s.signal(ctx, t, api.SignalsRequest{Do: model.MailboxShow, ID: id})
}

// Skip moves a signal behind all other unread signals of the same name, and returns the signal with
// its new ID. The history keeps the reason. Code that is running may be about to receive the
// signal. So Skip gives the code a few seconds to reach a wait. If the code still runs after that,
// Skip returns ErrConflict. For a signal that the code has already received, Skip returns
// ErrNotFound.
func (s Signals) Skip(ctx context.Context, t Target, id, reason string) (UnreadSignal, error) {
	return s.signal(ctx, t, api.SignalsRequest{Do: model.MailboxSkip, ID: id, Reason: reason})
}

// Drop removes an unread signal, so that the code never receives it. The history keeps the reason.
// Drop returns the same errors as Skip.
func (s Signals) Drop(ctx context.Context, t Target, id, reason string) error {
	_, err := s.signal(ctx, t, api.SignalsRequest{Do: model.MailboxDrop, ID: id, Reason: reason})
	return err
}

// DropAll drops the signals of a name that the code of an execution has not received, oldest first,
// and returns how many it dropped. Signals that arrive during the call may remain. The history
// keeps the reason. DropAll works page by page. If it returns an error, the signals that it has
// counted are gone, and you can call it again to drop the remaining signals. Like Skip, it may
// return ErrConflict.
func (s Signals) DropAll(ctx context.Context, t Target, name, reason string) (dropped int, err error) {
	to, err := t.target().api(s.app.host)
	if err != nil {
		return 0, err
	}
	if err := checkText("the name of the signal", name, maxName); err != nil {
		return 0, err
	}
	err = batch.DropSignals(ctx, s.app.host.backend.Signals, api.SignalsRequest{Target: to, ID: name, Reason: reason}, func(*model.Call) { dropped++ })

	return dropped, public(err)
}

func (s Signals) signal(ctx context.Context, t Target, r api.SignalsRequest) (UnreadSignal, error) {
	signals, err := s.signals(ctx, t, r)
	if err != nil || len(signals) == 0 {
		return UnreadSignal{}, err
	}

	return signals[0], nil
}

func (s Signals) signals(ctx context.Context, t Target, r api.SignalsRequest) ([]UnreadSignal, error) {
	to, err := t.target().api(s.app.host)
	if err != nil {
		return nil, err
	}
	r.Target = to
	found, err := s.app.host.backend.Signals(ctx, r)
	if err != nil {
		return nil, public(err)
	}

	signals := make([]UnreadSignal, len(found.Calls))
	for i := range found.Calls {
		c := &found.Calls[i]
		signals[i] = UnreadSignal{ID: c.ID, Position: c.Position, Name: c.Operation, Since: c.At.Std(), Bytes: c.Bytes, RequestID: c.RequestID}
		if r.Do == model.MailboxShow {
			signals[i].Value, signals[i].ValueIs = s.app.host.show(ctx, c.Input)
		}
	}

	return signals, nil
}
