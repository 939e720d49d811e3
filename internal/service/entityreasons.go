package service

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// entityReasons say why what waits for an entity does not move, without owning it: from its row, its mailbox and who serves it. Calls that are only in the memory of the
// owner are not known here.
func (s *Service) entityReasons(ctx context.Context, info *api.EntityInfo) ([]model.Reason, error) {
	if len(info.Waiting) == 0 {
		return nil, nil
	}
	a := info.Entity.Address
	view, err := s.store.Members(ctx)
	if err != nil {
		return nil, err
	}
	shard := s.shard(a)
	owner := ownerOf(view, shard)
	out := slices.ContainsFunc(info.Waiting, func(it model.MailboxItem) bool { return core.LockedOut(&info.Entity, &it.Message) })
	if owner.IsZero() {
		reasons := []model.Reason{{Code: model.WaitOwner, Name: strconv.Itoa(int(shard))}}
		if out {
			reasons = append(reasons, core.EntityReason(&info.Entity, true)) // which is so whoever will own it
		}
		return reasons, nil
	}
	calls := func(it model.MailboxItem) bool { return it.Message.Kind == model.MessageCall }
	if slices.ContainsFunc(info.Waiting, calls) && !serves(&view, owner, a) {
		word, name, _ := strings.Cut(a.Type, ":")
		return []model.Reason{{Code: model.WaitWorker, Name: name, Detail: word}}, nil
	}
	return []model.Reason{core.EntityReason(&info.Entity, out)}, nil
}

// serves reports whether a node has the code of an entity or a service. That of other nodes is of no use to the owner.
func serves(view *store.View, node model.NodeID, a model.Address) bool {
	return slices.ContainsFunc(view.Members, func(m store.Member) bool {
		return m.ID == node && slices.ContainsFunc(m.Serves, func(w store.Served) bool { return w.Tenant == a.Tenant && w.Workflow == a.Type })
	})
}

// throughEntities adds what the entities wait for that a run waits for, by a lock or a call: who holds the lock, and why a call is not made.
func (s *Service) throughEntities(ctx context.Context, of *model.Start, reasons []model.Reason) ([]model.Reason, error) {
	all, asked := reasons, 0
	for i, r := range reasons {
		a, ok := entityOf(of.Address.Tenant, r)
		if !ok {
			continue
		}
		if asked++; asked > maxExplained {
			break
		}
		info, err := s.Entity(ctx, a)
		if err != nil {
			return reasons, err
		}
		if asked == 1 {
			all = slices.Clone(reasons) // its owner may have them as well
		}
		own := info.Entity.Holder.Run == of.Run
		if r.Code == model.WaitLock && info.Entity.Locked() {
			asks := func(it model.MailboxItem) bool {
				return it.Message.Kind == model.MessageLock && it.Message.From.Run == of.Run
			}
			if !own || slices.ContainsFunc(info.Waiting, asks) { // else it is about to hear that the lock is its own
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

// entityOf is the entity or the service that a reason is about.
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
