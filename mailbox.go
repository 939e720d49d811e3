package perdure

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// ErrDropped is the error of a call that an operator has dropped from the mailbox of its entity: it was not made.
var ErrDropped = errors.New("an operator dropped the call")

// MailboxCall is a call, or the request of a lock, that waits for an entity.
type MailboxCall struct {
	// ID names it for ShowCall, SkipCall and DropCall.
	ID       string
	Position int // from 1, in the order in which calls are made
	// Operation is empty for the request of a lock.
	Operation string
	Since     time.Time
	Bytes     int // of its input
	// From is the execution that called, if one did. RequestID is that of a client.
	From      Ref
	RequestID string
	OneWay    bool // its caller does not wait for the reply
	Stored    bool // else it waits in the memory of the owner, where its caller waits too
	Running   bool // it has been handed to the code, and can be neither skipped nor dropped
	// Input is JSON, or nil when this app cannot decode it; InputIs tells how it is stored. Only ShowCall has it.
	Input   []byte
	InputIs string
}

// Mailbox lists what waits for an entity, in order, at most the first 1,000 calls. Its owner answers, wherever it is; where the entity has no
// owner, it lists what is stored.
func (a *App) Mailbox(ctx context.Context, ref EntityRef) ([]MailboxCall, error) {
	return a.mailbox(ctx, ref, model.MailboxList, "")
}

// ShowCall tells of one call that waits for an entity, with its input.
func (a *App) ShowCall(ctx context.Context, ref EntityRef, id string) (MailboxCall, error) {
	return a.mailboxCall(ctx, ref, model.MailboxShow, id)
}

// SkipCall puts a call behind the others that wait for the entity, and returns it with its new ID. Calls that its sender sent later are made
// before it then. A call that runs is refused with ErrConflict.
func (a *App) SkipCall(ctx context.Context, ref EntityRef, id string) (MailboxCall, error) {
	return a.mailboxCall(ctx, ref, model.MailboxSkip, id)
}

// DropCall removes a call that waits for an entity: it is not made, and its caller gets ErrDropped. A call that runs is refused with
// ErrConflict, and the request of a lock with ErrInvalid.
func (a *App) DropCall(ctx context.Context, ref EntityRef, id string) error {
	_, err := a.mailboxCall(ctx, ref, model.MailboxDrop, id)
	return err
}

func (a *App) mailboxCall(ctx context.Context, ref EntityRef, do, id string) (MailboxCall, error) {
	calls, err := a.mailbox(ctx, ref, do, id)
	if err != nil || len(calls) == 0 {
		return MailboxCall{}, err
	}

	return calls[0], nil
}

func (a *App) mailbox(ctx context.Context, ref EntityRef, do, id string) ([]MailboxCall, error) {
	to, err := ref.address()
	if err != nil {
		return nil, public(err)
	}
	found, err := a.host.backend.Mailbox(ctx, api.MailboxRequest{Address: to, Do: do, ID: id})
	if err != nil {
		return nil, public(err)
	}

	calls := make([]MailboxCall, len(found.Calls))
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
			calls[i].Input, calls[i].InputIs = a.host.show(ctx, c.Input)
		}
	}

	return calls, nil
}
