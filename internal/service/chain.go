package service

import (
	"context"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// maxChain bounds how many links an explanation follows.
const maxChain = 8

// follow follows the main reason of a run to its cause: a child, the section that holds a lock, or
// the entity or execution that must answer. A link that cannot be read ends the chain without an
// error, because the chain is only an additional explanation.
func (j *judge) follow(ctx context.Context, of *model.Start, reasons []model.Reason) (chain []api.Link) {
	seen := map[model.Address]bool{of.Address: true}
	for len(reasons) > 0 && len(chain) < maxChain {
		next, ok := j.next(ctx, of.Address.Tenant, &reasons[0])
		if !ok {
			return chain
		}
		if seen[next] {
			if n := len(chain); n > 0 {
				chain = append(chain, api.Link{Subject: chain[n-1].Subject, Reason: model.Reason{Code: model.WaitCycle, Name: nameOf(next)}})
			}
			return chain
		}
		seen[next] = true

		if reasons, ok = j.why(ctx, next); !ok {
			return chain
		}
		chain = append(chain, api.Link{Subject: nameOf(next), Reason: reasons[0]})
	}
	return chain
}

// next returns the execution or entity that a reason is about.
func (j *judge) next(ctx context.Context, tenant string, r *model.Reason) (a model.Address, ok bool) {
	switch r.Code {
	case model.WaitChild, model.WaitAnswer:
		typ, key, cut := strings.Cut(r.Name, "/") // names have no slash
		return model.Address{Tenant: tenant, Type: typ, Key: key}, cut
	case model.WaitLock:
		name, key, cut := strings.Cut(r.Name, "/")
		if !cut {
			return a, false
		}
		e := model.Address{Tenant: tenant, Type: model.EntityPrefix + name, Key: key}
		stored, err := j.service.store.LoadEntity(ctx, store.EntityKey{Shard: j.service.shard(e), Address: e}, 1, 1)
		if err != nil || stored.Entity == nil || !stored.Entity.Locked() {
			return a, false
		}
		return stored.Entity.Holder.Address, true
	default:
		return a, false
	}
}

// why returns why an execution or entity makes no progress. ok is false if it makes progress, or if
// the reason is unknown.
func (j *judge) why(ctx context.Context, a model.Address) (reasons []model.Reason, ok bool) {
	if a.IsEntity() {
		info, err := j.whyEntity(ctx, a)
		return info.Reasons, err == nil && len(info.Reasons) > 0
	}
	j.ask(ctx, []model.Address{a})
	row, err := j.service.store.LoadExecution(ctx, j.service.shard(a), a, model.RunID{})
	if err != nil || row == nil || row.Outcome.Status.Closed() {
		return nil, false
	}
	if reasons, err = j.run(ctx, row, nil, false); err == nil {
		reasons, err = j.holders(ctx, &row.Start, reasons)
	}
	return reasons, err == nil && len(reasons) > 0
}

// aliveFor lists the code of the live processes if the execution, or a link of its chain, waits for
// code that no process has. Otherwise it returns nil.
func (j *judge) aliveFor(d *api.Description) []string {
	lacks := func(r *model.Reason) bool { return r.Code == model.WaitWorker || r.Code == model.WaitElsewhere }
	for i := range d.Reasons {
		if lacks(&d.Reasons[i]) {
			return j.world.Alive(j.tenant)
		}
	}
	for i := range d.Chain {
		if lacks(&d.Chain[i].Reason) {
			return j.world.Alive(j.tenant)
		}
	}
	return nil
}

// nameOf returns an address as people write it.
func nameOf(a model.Address) string {
	return strings.TrimPrefix(a.Type, model.EntityPrefix) + "/" + a.Key
}
