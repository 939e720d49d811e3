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

// List lists what waits for an entity, in order, at most the first 1,000 calls. Its owner answers, wherever it is; where the entity has no
// owner, it lists what is stored.
func (m Mailboxes) List(ctx context.Context, ref EntityRef) ([]MailboxCall, error) {
	return m.mailbox(ctx, ref, model.MailboxList, "")
}

// Describe tells of one call that waits for an entity, with its input.
func (m Mailboxes) Describe(ctx context.Context, ref EntityRef, id string) (MailboxCall, error) {
	return m.mailboxCall(ctx, ref, model.MailboxShow, id)
}

// Skip puts a call behind the others that wait for the entity, and returns it with its new ID. Calls that its sender sent later are made
// before it then. A call that runs is refused with ErrConflict.
func (m Mailboxes) Skip(ctx context.Context, ref EntityRef, id string) (MailboxCall, error) {
	return m.mailboxCall(ctx, ref, model.MailboxSkip, id)
}

// Drop removes a call that waits for an entity: it is not made, and its caller gets ErrDropped. A call that runs is refused with
// ErrConflict, and the request of a lock with ErrInvalid.
func (m Mailboxes) Drop(ctx context.Context, ref EntityRef, id string) error {
	_, err := m.mailboxCall(ctx, ref, model.MailboxDrop, id)
	return err
}

// ErrDropped is the error of a call that an operator has dropped from the mailbox of its entity: it was not made.
var ErrDropped = errors.New("an operator dropped the call")

// MailboxCall is a call, or the request of a lock, that waits for an entity.
type MailboxCall struct {
	// ID names the call for Describe, Skip and Drop.
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
	// Input is JSON, or nil when this app cannot decode it; InputIs tells how it is stored. Only Describe has it.
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
	to, err := ref.address()
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
