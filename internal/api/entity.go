package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// EntityWorker runs the code of entities and services.
type EntityWorker interface {
	// Operate hands over calls of one entity. It must not block. The worker runs the calls of one
	// hand-over one after the other, and different hand-overs in parallel. It reports each
	// hand-over once, with Operated. The calls have no effect until the engine commits that report.
	// A hand-over takes one of EntityOffer.Slots until the worker reports it. The engine never
	// takes more slots than the worker offers. Without a free slot, the calls go to another worker,
	// or wait with the reason model.WaitSlot.
	Operate(o model.Operations)
}

// EntitySession is how a worker of entities talks to the engine.
type EntitySession interface {
	// FinishCalls reports the results of a hand-over. It blocks while the engine is full, and fails
	// when the session or ctx has ended. Calls that are not reported run again on the next worker
	// that gets them.
	FinishCalls(ctx context.Context, r model.Operated) error
	// Leave stops new calls, waits until the running ones have been reported, and ends the session.
	Leave(ctx context.Context) error
}

// Entities has the calls that clients and operators make to entities and services.
type Entities interface {
	// Call runs an operation, a view or an RPC and waits for its result; a one-way call returns as
	// soon as it is stored. Two calls with the same request id are one call. An error of the code
	// is a *model.Failure.
	Call(ctx context.Context, r CallRequest) (model.Payload, error)
	// Entity returns the committed state of an entity without waiting. For an entity that does not
	// exist it returns only the address.
	Entity(ctx context.Context, a model.Address) (EntityInfo, error)
	// ListEntities returns entities ordered by type and key.
	ListEntities(ctx context.Context, r EntityListRequest) (EntityListPage, error)
	// Unlock takes a lock from its holder, whatever the holder is doing. The entity then refuses
	// further calls of the holder.
	Unlock(ctx context.Context, r UnlockRequest) error
	// Mailbox lists the waiting calls of an entity or a service, or shows, skips or drops one of
	// them. The owner of the entity answers.
	Mailbox(ctx context.Context, r MailboxRequest) (model.Calls, error)
	// EditEntity replaces the state of an entity if its version is the expected one, and returns
	// the new version. It fails with fault.Conflict if the version is another one, while an
	// operation runs, and while a section holds the lock.
	EditEntity(ctx context.Context, r EditRequest) (model.EntityVersion, error)
	// TakeItems opens, reads, keeps open or leaves the stream of a view. A read waits a while for
	// items. After an empty page the caller asks again. It returns NotFound if the stream is lost.
	// Every request may be repeated.
	TakeItems(ctx context.Context, r model.ItemsTake) (model.ItemsPage, error)
	// SendItems takes items from the worker that runs such a view. It waits a while for room, and
	// returns the number of the last item that the owner of the entity has. The worker sends later
	// items again. It returns NotFound when the caller has left or the owner has changed.
	SendItems(ctx context.Context, r model.ItemsSend) (int64, error)
}

// EditRequest replaces the state of an entity.
type EditRequest struct {
	Address model.Address
	// Version is the version that the entity must have; 0 if it must have no state.
	Version   model.EntityVersion
	State     model.Payload
	RequestID string
}

// MailboxRequest lists waiting calls, or names one to show, skip or drop.
type MailboxRequest struct {
	Address model.Address
	Do      string // model.MailboxList or another of these constants
	ID      string // of the call; empty for a list
	// Cursor is the cursor of the previous page, and Limit bounds the calls of a page. Both are
	// only for lists.
	Cursor string
	Limit  int
}

// CallRequest calls an operation.
type CallRequest struct {
	Address   model.Address
	Name      string
	Input     model.Payload
	RequestID string
	// OneWay calls return as soon as they are stored.
	OneWay bool
	// Brief calls exist in memory only: views, and RPCs that are not persisted. They run at most
	// once.
	Brief bool
	// View calls change nothing, so the engine may repeat them.
	View bool
}

// EntityInfo is the state of an entity.
type EntityInfo struct {
	Entity model.Entity
	// Waiting is the front of its stored mailbox, without inputs. More is true when the mailbox is
	// longer.
	Waiting []model.MailboxItem
	More    bool
	// Reasons say why the waiting calls do not run.
	Reasons []model.Reason
}

// EntityListRequest selects entities. All conditions must hold; an empty field is no condition.
type EntityListRequest struct {
	Tenant    string
	Type      string // including its prefix
	KeyPrefix string
	Locked    bool
	// MinVersion and MaxVersion bound the version, and ChangedFrom and ChangedTo the time of the
	// last change; ChangedTo is excluded.
	MinVersion, MaxVersion int64
	ChangedFrom, ChangedTo model.Time
	// Waiting selects entities for which stored calls wait, in the order of their shards, whether
	// they exist or not. Services selects services instead; it needs Waiting.
	Waiting  bool
	Services bool
	// Expired selects states whose time is over and that their owner has not removed yet. Other
	// lists leave them out.
	Expired bool
	Limit   int
	Cursor  string // opaque, from the page before
}

// EntityListPage is one page of entities.
type EntityListPage struct {
	// Entities may be fewer than the limit, or none, although there are more: a page looks at a
	// bounded number of entities.
	Entities []model.Entity
	Cursor   string // empty on the last page
}

// UnlockRequest takes a lock from its holder.
type UnlockRequest struct {
	Address model.Address
	// Epoch of the lock to take; 0 takes whichever lock there is.
	Epoch     int64
	RequestID string
}
