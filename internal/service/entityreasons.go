package service

import (
	"context"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// entity returns why the calls in the mailbox of an entity do not run. The owner of the entity
// knows best. Without an answer of the owner, entity looks at the row, the mailbox and the code
// that the nodes have. In that case it misses calls that are only in the memory of the owner.
func (j *judge) entity(info *api.EntityInfo) []model.Reason {
	a := info.Entity.Address
	told, known := j.told[a]
	if !known && len(info.Waiting) == 0 {
		return nil
	}
	out := slices.ContainsFunc(info.Waiting, func(it model.MailboxItem) bool { return core.LockedOut(&info.Entity, &it.Message) })
	shard := j.service.shard(a)
	if why, ok := j.world.WhyUnowned(shard); ok {
		reasons := []model.Reason{why}
		if out {
			// The lock is stored, so the calls wait for it on every owner.
			reasons = append(reasons, core.EntityReason(&info.Entity, true))
		}
		return reasons
	}

	calls := func(it model.MailboxItem) bool { return it.Message.Kind == model.MessageCall }
	if known && (told[0].Code.Blocks() || told[0].Code != model.WaitWorker && !slices.ContainsFunc(info.Waiting, calls)) {
		return told
	}
	if why, ok := j.world.WhyNoCode(shard, a, "", told); ok && (known || slices.ContainsFunc(info.Waiting, calls)) {
		return []model.Reason{why}
	}
	if known {
		return told
	}
	return []model.Reason{core.EntityReason(&info.Entity, out)}
}

// whyEntity is like entityAt, but explains why callers of the entity wait. If the entity cannot be
// read, whyEntity returns that as the reason, and no error.
func (j *judge) whyEntity(ctx context.Context, a model.Address) (api.EntityInfo, error) {
	info, err := j.entityAt(ctx, a)
	if !fault.Is(err, fault.Corrupt) {
		return info, err
	}
	info.Entity.Address, info.Reasons = a, []model.Reason{model.Unreadable(err)}
	if told := j.told[a]; len(told) > 0 && told[0].Code.Blocks() {
		info.Reasons = told
	}
	return info, nil
}

// holders names the sections that hold the locks that a run waits for.
func (j *judge) holders(ctx context.Context, of *model.Start, reasons []model.Reason) ([]model.Reason, error) {
	if len(reasons) == 0 || reasons[0].Code != model.WaitLock {
		return reasons, nil // the list shows only the main reason
	}
	return j.throughEntities(ctx, of, reasons)
}

// throughEntities looks at the entities that a run waits for, because of a lock or a call. It adds
// to the reasons which section holds the lock, or why the call does not run.
func (j *judge) throughEntities(ctx context.Context, of *model.Start, reasons []model.Reason) ([]model.Reason, error) {
	all, asked := reasons, 0
	for i, r := range reasons {
		a, ok := entityOf(of.Address.Tenant, r)
		if !ok {
			continue
		}
		if asked++; asked > maxExplained {
			break
		}

		info, err := j.whyEntity(ctx, a)
		if err != nil {
			return reasons, err
		}
		if asked == 1 {
			all = slices.Clone(reasons) // the owner of the run may still use the slice
		}
		own := info.Entity.Holder.Run == of.Run

		if r.Code == model.WaitLock && info.Entity.Locked() {
			asks := func(it model.MailboxItem) bool {
				return it.Message.Kind == model.MessageLock && it.Message.From.Run == of.Run
			}
			// If the run holds the lock and no longer asks for it, the message that grants the lock
			// is on its way to the run.
			if !own || slices.ContainsFunc(info.Waiting, asks) {
				all[i] = core.EntityReason(&info.Entity, true)
			}
			continue
		}

		for _, why := range info.Reasons {
			if keepsOthersOut := own && why.Code == model.WaitLock; !keepsOthersOut && !slices.Contains(all, why) {
				all = append(all, why)
			}
		}
	}

	return all, nil
}

// entityOf returns the entity or service that a reason is about.
func entityOf(tenant string, r model.Reason) (a model.Address, ok bool) {
	name, key, ok := strings.Cut(r.Name, "/") // names have no slash
	a = model.Address{Tenant: tenant, Type: name, Key: key}
	switch {
	case !ok:
	case r.Code == model.WaitAnswer:
		return a, a.IsEntity()
	case r.Code == model.WaitLock && r.Detail == "":
		a.Type = model.EntityPrefix + name
		return a, true
	}
	return a, false
}
