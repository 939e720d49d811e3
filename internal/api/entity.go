package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// EntityWorker has the code of entities and services.
type EntityWorker interface {
	// Operate hands over calls of one entity. It must not block. The worker runs the calls of one
	// hand-over one after the other, and hand-overs in parallel. It reports each hand-over once by
	// Operated. Nothing has happened before the engine commits that report.
	Operate(o model.Operations)
}

// EntitySession is what a worker of entities may do.
type EntitySession interface {
	// FinishCalls reports the results of Operations. It blocks while the engine is full, and fails
	// when the session or ctx has ended. Calls that are not reported run again on the next worker
	// that gets them.
	FinishCalls(ctx context.Context, r model.Operated) error
	// Leave stops new calls, waits until the running ones have been reported, and ends the session.
	Leave(ctx context.Context) error
}

// Entities is what clients and operators may ask of entities and services.
type Entities interface {
	// Call runs an operation, a view or an RPC and waits for its result; a one-way call returns
	// when it is stored. The same request id is the same call. An error of the code is a
	// *model.Failure.
	Call(ctx context.Context, r CallRequest) (model.Payload, error)
	// Entity returns the committed state of an entity without waiting. An entity that does not
	// exist has only its address.
	Entity(ctx context.Context, a model.Address) (EntityInfo, error)
	// ListEntities returns entities in the order of type and key.
	ListEntities(ctx context.Context, r EntityListRequest) (EntityListPage, error)
	// Unlock takes a lock from its holder, whatever the holder does. Further calls of the entity by
	// the holder are refused.
	Unlock(ctx context.Context, r UnlockRequest) error
	// Mailbox asks the owner of an entity or a service for what waits for it, or to show, skip or
	// drop one call.
	Mailbox(ctx context.Context, r MailboxRequest) (model.Calls, error)
}

// MailboxRequest is what an operator asks of a mailbox.
type MailboxRequest struct {
	Address model.Address
	Do      string // model.MailboxList and the others
	ID      string // of the call, unless it is a list
}

// CallRequest calls an operation.
type CallRequest struct {
	Address   model.Address
	Name      string
	Input     model.Payload
	RequestID string
	// OneWay calls return when they are stored.
	OneWay bool
	// Brief calls are kept in memory only: views, and RPCs that are not persisted. They run at most
	// once.
	Brief bool
	// View calls change nothing, so they may be repeated.
	View bool
}

// EntityInfo is how an entity stands.
type EntityInfo struct {
	Entity model.Entity
	// Waiting is the beginning of its mailbox, as far as that is stored; inputs are left out. More
	// tells that there is more.
	Waiting []model.MailboxItem
	More    bool
	// Reasons say why what waits does not move.
	Reasons []model.Reason
}

// EntityListRequest selects entities: all conditions must hold, those that are empty always do.
type EntityListRequest struct {
	Tenant    string
	Type      string // with its prefix
	KeyPrefix string
	Locked    bool
	Limit     int
	Cursor    string // opaque, of the page before
}

// EntityListPage is one page of entities.
type EntityListPage struct {
	Entities []model.Entity
	Cursor   string // empty on the last page
}

// UnlockRequest takes a lock from its holder.
type UnlockRequest struct {
	Address model.Address
	// Epoch is that of the lock that is meant; 0 for whichever there is.
	Epoch     int64
	RequestID string
}
