package perdure

import (
	"context"
	"iter"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// LockSet is a set of entities. Their order does not matter, and one that is in it twice counts once.
type LockSet []EntityRef

// Lock waits until all entities of the set are locked for this execution, runs fn, and lets go of them:
//
//	err := ctx.Lock(perdure.LockSet{Accounts.Ref(t.From), Accounts.Ref(t.To)}, func(ctx perdure.WorkflowCtx) error {
//		if _, err := Withdraw.Call(ctx, t.From, t.Amount); err != nil {
//			return err
//		}
//		_, err := Deposit.Call(ctx, t.To, t.Amount)
//		return err
//	})
//
// Meanwhile only what fn calls by its own context is made of them; everybody else's operations wait for the end of fn, in their order. Views and Entity.Get wait for nobody. Entities need not exist
// to be locked. Who asks first is first; executions that lock several entities never wait for each other in a circle, because the engine locks them in an order that is the same for all.
//
// The locks end with fn, whether it returns, fails or panics, and with the run at the latest: with the same commit, however it ends, also when it is terminated, reset or continues as new. A crash
// is no end. The deadline of ctx and the cancellation of the execution end the wait, and Lock returns their error; fn has not run then, and nothing stays locked. Otherwise the error is that of fn. Nothing is
// undone when fn fails: what it called has been done.
//
// Inside of fn these are errors (ErrInvalid), of which nothing is recorded: another Lock; a call of an entity that is not in the set; Send to one that is; a second call of one before the first has been
// answered; to wait for another execution, which may want what is locked here. Activities, timers, signals and promises may be waited for, services may be called, and executions may be started. To
// call an entity that this execution locks elsewhere, in another coroutine, is an error too: the call would wait for its own end.
func (ctx WorkflowCtx) Lock(set LockSet, fn func(WorkflowCtx) error) error {
	if fn == nil {
		return fault.New(fault.Invalid, "the function that Lock is given is nil")
	}
	locks := make([]model.Address, len(set))
	for i, ref := range set {
		a, err := ref.address()
		if err != nil {
			return err
		}
		locks[i] = a
	}
	entered := false
	err := ctx.x.Lock(locks, func(x replay.Ctx) error {
		entered = true
		return fn(WorkflowCtx{x})
	})
	if entered {
		return err
	}
	return remote(err)
}

// Fence is the token under which an entity is locked where an activity, or a function given to Do, was called: inside of Lock, by its context. It grows with every lock of the entity. Give it to
// whatever the activity writes to, and have that refuse a token that is smaller than one that it has seen: then an activity that wakes up when its lock is over, and somebody else has it, changes nothing.
//
//	token, locked := perdure.Fence(ctx, Accounts.Ref(key))
//	// update ledger set … , fence = $1 where key = $2 and fence <= $1
//
// The second result is false outside of locks, and for an entity that is not in the set.
func Fence(ctx context.Context, ref EntityRef) (int64, bool) {
	step := replay.StepFrom(ctx)
	a, err := ref.address()
	if step == nil || err != nil {
		return 0, false
	}
	return step.Fence(a)
}

// EntityRef is the address of an entity: its name and its key.
type EntityRef struct{ Type, Key string }

func (r EntityRef) address() (model.Address, error) {
	return model.Address{Tenant: model.DefaultTenant, Type: model.EntityPrefix + r.Type, Key: r.Key}, entityKind.check(r.Type, r.Key)
}

// Locks lists the locks of entities and takes them away in an emergency. Workflow code locks entities
// with [WorkflowCtx.Lock].
type Locks struct{ app *App }

// Locks operates the locks of entities.
func (a *App) Locks() Locks { return Locks{a} }

// List lists the entities of a type that are locked, by key; those of all types when the type is empty.
func (l Locks) List(ctx context.Context, entity string) iter.Seq2[EntityInfo, error] {
	return l.app.listEntities(ctx, entity, api.EntityListRequest{Locked: true})
}

// Unlock takes the lock of an entity from the section that holds it, whatever that does: further calls of the entity in that section are refused with ErrConflict, and whoever
// waits gets the lock. epoch is that of the lock that is meant (EntityInfo.Epoch): when another section holds the entity by now, nothing is done and the error is ErrConflict.
// It is for emergencies. To cancel or terminate the execution releases all its locks.
func (l Locks) Unlock(ctx context.Context, ref EntityRef, epoch int64) error {
	to, err := ref.address()
	if err == nil && epoch <= 0 {
		err = fault.New(fault.Invalid, "unlock %s/%s: the epoch of the lock that is meant is not given", ref.Type, ref.Key)
	}
	if err != nil {
		return err
	}
	return public(l.app.host.backend.Unlock(ctx, api.UnlockRequest{Address: to, Epoch: epoch}))
}
