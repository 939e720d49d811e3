package flow

import (
	"cmp"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// A lingering claim is a claim that has ended, while its code still runs in the worker. For example
// a user has terminated the run, or the attempt took too long, and the code needs a moment to
// notice the end of its context. The code still uses what the limit protects. So it keeps the
// permits of the claim until the worker says that the code has ended, or until the worker is gone.
// The task itself no longer has these permits: its next attempt stands in line for others.

// Linger handles a claim whose end is durable, while the code of the claim may still run. The
// caller tells the worker that the claim is lost. The breaker learns the outcome now. The permits
// belong to the code from now on. Linger does nothing if the claim has no permits here.
func (k *BoardGate) Linger(now model.Time, claim model.ClaimRef) {
	o, holds := k.takeOrphan(claim)
	if o == nil {
		return
	}
	ref := o.item.Ref
	o.item.Ref = claim.Lingering()
	k.lingering[claim] = o

	if !holds {
		// A later attempt has taken over the permits, and needs them. If the limit has too many
		// holders now, no task starts before there are fewer of them.
		k.HoldLingering(now, &o.item)
		return
	}
	k.Gate.Rename(now, ref, o.item.Ref, outcomes[o.how])
	if k.restoreEarlier(ref) {
		earlier := k.item(&k.orphans[ref].item)
		k.Gate.Hold(now, &earlier)
	}
}

// takeOrphan removes the orphan of a claim. holds says whether the orphan has permits. If not, a
// later attempt of its task has taken them over.
func (k *BoardGate) takeOrphan(claim model.ClaimRef) (o *orphan, holds bool) {
	if o = k.orphans[claim.TaskRef]; o != nil && o.claim == claim.Claim {
		delete(k.orphans, claim.TaskRef)
		return o, true
	}
	for i, o := range k.resumed[claim.TaskRef] {
		if o.claim == claim.Claim {
			k.resumed[claim.TaskRef] = append(k.resumed[claim.TaskRef][:i:i], k.resumed[claim.TaskRef][i+1:]...)
			if len(k.resumed[claim.TaskRef]) == 0 {
				delete(k.resumed, claim.TaskRef)
			}
			return o, false
		}
	}
	return nil, false
}

// lingeringClaims returns the lingering claims in order, so that the behavior of a node is
// reproducible.
func (k *BoardGate) lingeringClaims() []model.ClaimRef {
	if len(k.lingering) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(k.lingering), func(a, b model.ClaimRef) int {
		return cmp.Or(a.TaskRef.Compare(b.TaskRef), cmp.Compare(a.Claim, b.Claim))
	})
}

// LingeringItem returns what the gate knows about a lingering claim, or nil.
func (k *BoardGate) LingeringItem(claim model.ClaimRef) *queue.Item {
	if o := k.lingering[claim]; o != nil {
		return &o.item
	}
	return nil
}

// HoldLingering takes permits for a lingering claim, although the limit may have none left.
func (k *BoardGate) HoldLingering(now model.Time, it *queue.Item) {
	g := k.item(it)
	k.Gate.Hold(now, &g)
}

// AdoptLingering makes this gate count a lingering claim of an earlier incarnation of the node.
func (k *BoardGate) AdoptLingering(now model.Time, claim model.ClaimRef, id queue.WorkerID, it queue.Item) {
	k.lingering[claim] = &orphan{item: it, claim: claim.Claim, worker: id}
	k.recount(0)
	k.HoldLingering(now, &it)
}

// freeLingering frees the permits of a lingering claim. It reports whether there was one.
func (k *BoardGate) freeLingering(now model.Time, claim model.ClaimRef) bool {
	o := k.lingering[claim]
	if o == nil {
		return false
	}
	delete(k.lingering, claim)
	k.recount(0)
	g := k.item(&o.item)
	k.Gate.Give(now, &g, breaker.Neither)
	return true
}
