package perdure

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/model"
)

// Mailboxes shows the calls that wait for an entity, skips or drops one of them, and interrupts the
// call that runs.
type Mailboxes struct{ app *App }

// Mailboxes returns the operations on the mailboxes of entities.
func (a *App) Mailboxes() Mailboxes { return Mailboxes{a} }

// List returns the waiting calls of an entity, in order. It reads them in pages, so a long mailbox
// needs little memory in this process. List may leave out calls that arrive or end during the loop.
// The owner of the entity answers, even if it is another node. Without an owner, List returns the
// stored calls.
func (m Mailboxes) List(ctx context.Context, ref EntityRef) iter.Seq2[MailboxCall, error] {
	return pages(mailboxCallOf, func(cursor string) ([]model.Call, string, error) {
		to, err := ref.address(m.app.host.tenant)
		if err != nil {
			return nil, "", err
		}
		page, err := m.app.host.backend.Mailbox(ctx, api.MailboxRequest{Address: to, Do: model.MailboxList, Cursor: cursor})

		return page.Calls, page.Cursor, err
	})
}

// Describe returns one call that waits for an entity, with its input.
func (m Mailboxes) Describe(ctx context.Context, ref EntityRef, id string) (MailboxCall, error) {
	return m.mailboxCall(ctx, ref, model.MailboxShow, id)
}

// Skip moves a call behind all other calls that wait for the entity, and returns the call with its
// new ID. So later calls of the same sender run before the skipped call. Skip returns ErrConflict
// for a call that runs.
func (m Mailboxes) Skip(ctx context.Context, ref EntityRef, id string) (MailboxCall, error) {
	return m.mailboxCall(ctx, ref, model.MailboxSkip, id)
}

// Drop removes a call that waits for an entity. The call does not run, and its caller gets
// ErrDropped. Drop returns ErrConflict for a call that runs and ErrInvalid for a lock request.
func (m Mailboxes) Drop(ctx context.Context, ref EntityRef, id string) error {
	_, err := m.mailboxCall(ctx, ref, model.MailboxDrop, id)
	return err
}

// Interrupt ends the running operation of an entity. The context of the call ends with the cause
// ErrInterrupted. If the code returns the error of its context, the call fails with ErrInterrupted.
// If the code does not return within a second, the worker abandons it, and the call fails in the
// same way. The state does not change, the engine sends no messages of the call, and the next call
// of the key runs. If the code succeeds nevertheless, the call succeeds. Interrupt does not affect
// views. With an id, Interrupt ends only the call with that ID. With an empty id it ends the call
// that runs, and returns all calls that the worker has received, including the call that runs. It
// returns ErrNotFound if the worker has received no calls. It does not wait until the calls have
// ended.
func (m Mailboxes) Interrupt(ctx context.Context, ref EntityRef, id string) (calls []MailboxCall, err error) {
	defer publish(&err)
	to, err := ref.address(m.app.host.tenant)
	if err != nil {
		return nil, err
	}
	found, err := m.app.host.backend.Mailbox(ctx, api.MailboxRequest{Address: to, Do: model.MailboxInterrupt, ID: id})
	for i := range found.Calls {
		calls = append(calls, mailboxCallOf(&found.Calls[i]))
	}

	return calls, err
}

// ErrInterrupted is the error of a call that an operator interrupted, and the cause with which the
// context of the call ended. The operation has changed nothing.
var ErrInterrupted = entity.ErrInterrupted

// ErrDropped is the error of a call that an operator dropped from the mailbox of its entity. The
// call did not run.
var ErrDropped = errors.New("an operator dropped the call")

// MailboxCall is a call or a lock request that waits for an entity.
type MailboxCall struct {
	// ID names the call for Describe, Skip, Drop and Interrupt.
	ID       string
	Position int // from 1, in the order in which the calls run
	// Operation is empty for a lock request.
	Operation string
	Since     time.Time
	Bytes     int // of its input
	// From is the caller if it is an execution. RequestID is the request id of a client.
	From      Ref
	RequestID string
	OneWay    bool // its caller does not wait for the reply
	Stored    bool // false if only the memory of the owner has the call
	Running   bool // a worker has received it, so it can be neither skipped nor dropped
	// Input is the input as JSON, or nil if this app cannot decode it. InputIs says how the input
	// is stored. Only Describe sets these two fields.
	Input   []byte
	InputIs string
}

// mailboxCall asks the owner of an entity to do something with one waiting call, and returns that
// call.
func (m Mailboxes) mailboxCall(ctx context.Context, ref EntityRef, do, id string) (call MailboxCall, err error) {
	defer publish(&err)
	to, err := ref.address(m.app.host.tenant)
	if err != nil {
		return call, err
	}
	found, err := m.app.host.backend.Mailbox(ctx, api.MailboxRequest{Address: to, Do: do, ID: id})
	if err != nil || len(found.Calls) == 0 {
		return call, err
	}

	c := &found.Calls[0]
	call = mailboxCallOf(c)
	if do == model.MailboxShow {
		call.Input, call.InputIs = m.app.host.show(ctx, c.Input)
	}

	return call, nil
}

func mailboxCallOf(c *model.Call) MailboxCall {
	call := MailboxCall{
		ID: c.ID, Position: c.Position, Operation: c.Operation, Since: c.At.Std(), Bytes: c.Bytes, RequestID: c.RequestID,
		OneWay: c.OneWay, Stored: c.Stored, Running: c.Running,
	}
	if !c.From.Address.IsZero() {
		call.From = linkRef(c.From)
	}

	return call
}
