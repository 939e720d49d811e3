package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// EntityWorker has the code of entities and services.
type EntityWorker interface {
	// Operate hands calls of one entity over. It must not block. The worker makes them one after the other, or side by side those of different
	// hand-overs, and reports each hand-over once by Operated. Until that is committed nothing of it has happened.
	Operate(o model.Operations)
}

// EntitySession is what a worker of entities may do.
type EntitySession interface {
	// Operated hands in what came of Operations. It blocks while the engine is full and fails when the session or ctx has ended. What is not
	// reported is made again by whoever gets it next.
	Operated(ctx context.Context, r model.Operated) error
	// Leave stops the flow of new calls, waits until those that are being made have been reported, and ends the session.
	Leave(ctx context.Context) error
}

// Entities is what clients and operators may ask of entities and services.
type Entities interface {
	// Call calls an operation, a view or an RPC and waits for what comes of it; a one-way call only until it is stored. The same request id
	// is the same call. An error of the code is a *model.Failure.
	Call(ctx context.Context, r CallRequest) (model.Payload, error)
	// Entity reads what is committed of an entity; it waits for nobody. One that does not exist has a zero Entity but for its address.
	Entity(ctx context.Context, a model.Address) (EntityInfo, error)
	// ListEntities returns entities in the order of type and key.
	ListEntities(ctx context.Context, r EntityListRequest) (EntityListPage, error)
	// Unlock takes a lock from the section that holds it, whatever that section does: its further calls of the entity are refused.
	Unlock(ctx context.Context, r UnlockRequest) error
	// Mailbox asks the owner of an entity or a service for what waits for it, or has it show, skip or drop one call.
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
	// OneWay calls are answered when they are stored.
	OneWay bool
	// Brief calls are kept in memory only: views, and RPCs that are not persisted. They are made at most once.
	Brief bool
	// View tells that nothing is changed, so that the call may be repeated.
	View bool
}

// EntityInfo is how an entity stands.
type EntityInfo struct {
	Entity model.Entity
	// Waiting is the beginning of its mailbox, as far as that is stored; inputs are left out. More tells that there is more.
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
