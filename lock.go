package perdure

import (
	"context"
	"iter"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// LockSet is a set of entities. Their order does not matter. Lock locks an entity that is listed
// twice only once.
type LockSet []EntityRef

// Lock waits until all entities of the set are locked for this execution, runs fn, and unlocks
// them:
//
//	set := perdure.LockSet{Accounts.Ref(t.From), Accounts.Ref(t.To)}
//	err := ctx.Lock(set, func(ctx perdure.WorkflowCtx) error {
//		if _, err := Withdraw.Call(ctx, t.From, t.Amount); err != nil {
//			return err
//		}
//		_, err := Deposit.Call(ctx, t.To, t.Amount)
//		return err
//	})
//
// While fn runs, only calls through its ctx reach the entities. All other operations wait until fn
// ends, and then run in their order. Views and Entity.Get do not wait. An entity need not exist to
// be locked. If several executions ask for a lock, they get it in the order of their requests. The
// engine locks the entities of every set in the same order, so executions that lock several
// entities never deadlock.
//
// The locks end when fn returns, fails or panics. If the run ends before that, the locks end in the
// same commit as the run. A crash does not end the locks. If the deadline of ctx or a cancellation
// ends the wait for the locks, Lock returns the error of ctx, fn does not run, and nothing stays
// locked. Otherwise Lock returns the error of fn. If fn fails, the engine undoes nothing.
//
// Inside fn, the following return ErrInvalid and record nothing: another Lock; a call of an entity
// that is not in the set; a Send to an entity in the set; a second call of an entity before the
// first call is answered; a wait for another execution, because that execution may need the same
// locks. fn may wait for activities, timers, signals and promises, call services, and start
// executions. fn cannot call an entity that another coroutine of the same execution has locked,
// because the execution would wait for itself.
func (ctx WorkflowCtx) Lock(set LockSet, fn func(WorkflowCtx) error) error {
	if fn == nil {
		return fault.New(fault.Invalid, "the function of Lock is nil")
	}

	locks := make([]model.Address, len(set))
	for i, ref := range set {
		a, err := ref.address(ctx.host().tenant)
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

// Fence returns the fencing token of an entity that the workflow had locked when it called the
// activity or Do. Each later lock of the entity has a higher token. Pass the token to the system
// that the activity writes to, and let that system refuse a token that is lower than a token that
// it has seen. After the next holder of the lock has written there, the system refuses the writes
// of an activity that continues although its lock has ended.
//
//	token, locked := perdure.Fence(ctx, Accounts.Ref(key))
//	// update ledger set … , fence = $1 where key = $2 and fence <= $1
//
// locked is false outside Lock and for an entity that is not in the set.
func Fence(ctx context.Context, ref EntityRef) (int64, bool) {
	step := replay.StepFrom(ctx)
	if step == nil {
		return 0, false
	}
	_, self := step.Run()
	a, err := ref.address(self.Tenant)
	if err != nil {
		return 0, false
	}
	return step.Fence(a)
}

// EntityRef is the address of an entity: its name and its key.
type EntityRef struct{ Type, Key string }

func (r EntityRef) address(tenant string) (model.Address, error) {
	return model.Address{Tenant: tenant, Type: model.EntityPrefix + r.Type, Key: r.Key}, entityKind.check(r.Type, r.Key)
}

// Locks lists the locks of entities and removes them in an emergency. Workflow code locks entities
// with [WorkflowCtx.Lock].
type Locks struct{ app *App }

// Locks returns the operations on the locks of entities.
func (a *App) Locks() Locks { return Locks{a} }

// List returns the locked entities of one type, sorted by key. entity is the name of the type. If
// it is empty, List returns the locked entities of all types, sorted by type and key.
func (l Locks) List(ctx context.Context, entity string) iter.Seq2[EntityInfo, error] {
	return l.app.listEntities(ctx, entity, api.EntityListRequest{Locked: true})
}

// Unlock takes the lock of an entity away from the run that holds it, even while that run works.
// The next waiter gets the lock, and further calls of the entity by the old holder return
// ErrConflict. epoch is the EntityInfo.Epoch of the lock. If another run holds the lock by now,
// Unlock changes nothing and returns ErrConflict.
//
// Unlock is for emergencies. Cancelling or terminating the execution releases all its locks.
func (l Locks) Unlock(ctx context.Context, ref EntityRef, epoch int64) error {
	to, err := ref.address(l.app.host.tenant)
	if err == nil && epoch <= 0 {
		err = fault.New(fault.Invalid, "unlock %s/%s: the epoch of the lock is 0: take it from EntityInfo.Epoch", ref.Type, ref.Key)
	}
	if err != nil {
		return err
	}
	return public(l.app.host.backend.Unlock(ctx, api.UnlockRequest{Address: to, Epoch: epoch}))
}
