package perdure

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// Mailboxes shows the calls that wait for an entity, and skips or drops one of them.
type Mailboxes struct{ app *App }

// Mailboxes operates the mailboxes of entities.
func (a *App) Mailboxes() Mailboxes { return Mailboxes{a} }

// List returns the waiting calls of an entity, in order, at most the first 1,000. The owner of the
// entity answers, on whichever node it is. Without an owner, List returns what is stored.
func (m Mailboxes) List(ctx context.Context, ref EntityRef) ([]MailboxCall, error) {
	return m.mailbox(ctx, ref, model.MailboxList, "")
}

// Describe returns one call that waits for an entity, with its input.
func (m Mailboxes) Describe(ctx context.Context, ref EntityRef, id string) (MailboxCall, error) {
	return m.mailboxCall(ctx, ref, model.MailboxShow, id)
}

// Skip moves a call behind the others that wait for the entity and returns it with its new ID.
// Later calls of the same sender then run before it. Skip returns ErrConflict for a call that runs.
func (m Mailboxes) Skip(ctx context.Context, ref EntityRef, id string) (MailboxCall, error) {
	return m.mailboxCall(ctx, ref, model.MailboxSkip, id)
}

// Drop removes a call that waits for an entity. The call does not run, and its caller gets
// ErrDropped. Drop returns ErrConflict for a call that runs and ErrInvalid for a lock request.
func (m Mailboxes) Drop(ctx context.Context, ref EntityRef, id string) error {
	_, err := m.mailboxCall(ctx, ref, model.MailboxDrop, id)
	return err
}

// ErrDropped is the error of a call that an operator dropped from the mailbox of its entity. The
// call did not run.
var ErrDropped = errors.New("an operator dropped the call")

// MailboxCall is a call or a lock request that waits for an entity.
type MailboxCall struct {
	// ID names the call for Describe, Skip and Drop.
	ID       string
	Position int // from 1, in the order in which calls are made
	// Operation is empty for a lock request.
	Operation string
	Since     time.Time
	Bytes     int // of its input
	// From is the execution that called, if an execution did. RequestID is that of a client.
	From      Ref
	RequestID string
	OneWay    bool // its caller does not wait for the reply
	Stored    bool // else it waits in the memory of the owner, where its caller waits too
	Running   bool // it has been handed to the code, and can be neither skipped nor dropped
	// Input is JSON, or nil when this app cannot decode it. InputIs says how it is stored. Only
	// Describe fills them.
	Input   []byte
	InputIs string
}

func (m Mailboxes) mailboxCall(ctx context.Context, ref EntityRef, do, id string) (MailboxCall, error) {
	calls, err := m.mailbox(ctx, ref, do, id)
	if err != nil || len(calls) == 0 {
		return MailboxCall{}, err
	}

	return calls[0], nil
}

func (m Mailboxes) mailbox(ctx context.Context, ref EntityRef, do, id string) (calls []MailboxCall, err error) {
	defer publish(&err)
	to, err := ref.address(m.app.host.tenant)
	if err != nil {
		return nil, err
	}
	found, err := m.app.host.backend.Mailbox(ctx, api.MailboxRequest{Address: to, Do: do, ID: id})
	if err != nil {
		return nil, err
	}

	calls = make([]MailboxCall, len(found.Calls))
	for i := range found.Calls {
		c := &found.Calls[i]
		calls[i] = MailboxCall{
			ID: c.ID, Position: c.Position, Operation: c.Operation, Since: c.At.Std(), Bytes: c.Bytes, RequestID: c.RequestID,
			OneWay: c.OneWay, Stored: c.Stored, Running: c.Running,
		}
		if !c.From.Address.IsZero() {
			calls[i].From = linkRef(c.From)
		}
		if do == model.MailboxShow {
			calls[i].Input, calls[i].InputIs = m.app.host.show(ctx, c.Input)
		}
	}

	return calls, nil
}
