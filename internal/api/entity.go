package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// EntityWorker runs the code of entities and services.
type EntityWorker interface {
	// Operate hands over calls of one entity. It must not block. The worker runs the calls of one
	// hand-over one after the other, and different hand-overs in parallel. It reports each
	// hand-over once, with EntitySession.FinishCalls. The calls have no effect until the engine
	// commits that report.
	// A hand-over occupies one of EntityOffer.Slots until the worker reports it. The engine never
	// uses more slots than the worker offers. Without a free slot, the calls go to another worker,
	// or wait with the reason model.WaitSlot.
	Operate(o model.Operations)
}

// EntitySession is how a worker of entities talks to the engine.
type EntitySession interface {
	// FinishCalls reports the results of a hand-over. It blocks while the engine is full, and fails
	// if the session or ctx has ended. If the worker does not report a call, the next worker that
	// gets the call runs it again.
	FinishCalls(ctx context.Context, r model.Operated) error
	// Leave accepts no new calls, waits until the worker has reported the running calls, and ends
	// the session.
	Leave(ctx context.Context) error
	// Lose ends the session of a worker that has disappeared. The engine counts that for the calls
	// that the worker had, and sets aside a call that several workers have disappeared with. unseen
	// returns the generations of hand-overs that cannot have reached the worker. The engine calls
	// it when nothing more can be handed over, because a hand-over may begin while Lose runs.
	Lose(unseen func() []uint64)
}

// Entities has the calls that clients and operators make to entities and services.
type Entities interface {
	// Call runs an operation, a view or an RPC and waits for its result; a one-way call returns as
	// soon as it is stored. Two calls with the same request id are one call. An error of the code
	// is a *model.Failure.
	Call(ctx context.Context, r CallRequest) (model.Payload, error)
	// Entity returns the committed state of an entity and its waiting calls. It does not wait for
	// operations or locks. For an entity that does not exist, EntityInfo.Entity has only the
	// address.
	Entity(ctx context.Context, a model.Address) (EntityInfo, error)
	// ListEntities returns entities ordered by type and key.
	ListEntities(ctx context.Context, r EntityListRequest) (EntityListPage, error)
	// Unlock takes a lock from its holder, whatever the holder is doing. From then on, the entity
	// refuses calls of the old holder.
	Unlock(ctx context.Context, r UnlockRequest) error
	// Mailbox lists the waiting calls of an entity or a service, or shows, skips or drops one of
	// them, or interrupts running calls. The owner of the entity answers. If no live node owns the
	// entity, a list has only the stored calls.
	Mailbox(ctx context.Context, r MailboxRequest) (model.Calls, error)
	// EditEntity replaces the state of an entity if its version is still r.Version, and returns the
	// new version. It fails with fault.Conflict if the entity has another version, while an
	// operation runs, and while a workflow holds the lock.
	EditEntity(ctx context.Context, r EditRequest) (model.EntityVersion, error)
	// TakeItems opens, reads, keeps open or leaves the stream of a view. A read waits a while for
	// items. After an empty page the caller should ask again. TakeItems returns NotFound if the
	// stream is lost. The caller may repeat every request.
	TakeItems(ctx context.Context, r model.ItemsTake) (model.ItemsPage, error)
	// SendItems receives items from the worker that runs a view with a stream. It waits a while for
	// room, and returns the number of the last item that the owner of the entity has. The worker
	// sends later items again. SendItems returns NotFound if the caller has left or the owner has
	// changed.
	SendItems(ctx context.Context, r model.ItemsSend) (int64, error)
}

// EditRequest replaces the state of an entity.
type EditRequest struct {
	Address model.Address
	// Version is the version that the entity must have; 0 if it must have neither a state nor a
	// lock.
	Version   model.EntityVersion
	State     model.Payload
	RequestID string
}

// MailboxRequest lists waiting calls, or names one of them to show, skip, drop or interrupt.
type MailboxRequest struct {
	Address model.Address
	Do      string // model.MailboxList or another of these constants
	ID      string // of the call; empty for a list, and for an interrupt of the call that runs
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
	// OneWay means that Call returns as soon as the call is stored.
	OneWay bool
	// Brief means that the call exists in memory only: it is a view, or an RPC that is not
	// Persisted. Such a call runs at most once.
	Brief bool
	// View means that the call changes nothing, so the engine may repeat it.
	View bool
}

// EntityInfo is the state of an entity.
type EntityInfo struct {
	Entity model.Entity
	// Waiting is the first part of the stored mailbox, without inputs. More is true if the mailbox
	// is longer.
	Waiting []model.MailboxItem
	More    bool
	// Reasons say why the waiting calls do not run.
	Reasons []model.Reason
}

// EntityListRequest selects entities. All conditions must hold; an empty field sets no condition.
type EntityListRequest struct {
	Tenant    string
	Type      string // including its prefix
	KeyPrefix string
	Locked    bool
	// MinVersion and MaxVersion bound the version. ChangedFrom and ChangedTo bound the time of the
	// last change; ChangedTo is excluded.
	MinVersion, MaxVersion int64
	ChangedFrom, ChangedTo model.Time
	// Waiting selects entities for which stored calls wait, even entities that do not exist yet, in
	// the order of their shards. Services selects services instead; it needs Waiting.
	Waiting  bool
	Services bool
	// Expired selects entities whose state has expired but is not removed yet. Without Expired,
	// lists leave these entities out.
	Expired bool
	Limit   int
	Cursor  string // opaque, from the previous page
}

// EntityListPage is one page of entities.
type EntityListPage struct {
	// Entities may be fewer than the limit, or none, although more pages follow, because the engine
	// reads a bounded number of entities per page.
	Entities []model.Entity
	Cursor   string // empty on the last page
}

// UnlockRequest takes a lock from its holder.
type UnlockRequest struct {
	Address model.Address
	// Epoch is the epoch of the lock to take; 0 takes the current lock, whatever its epoch.
	Epoch     int64
	RequestID string
}
