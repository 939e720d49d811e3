package engine

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A process that dies breaks its connections at the same moment. Without this sign, the other
// processes of its machine would notice its death only when they next renew their leases.

// suspectFirst is the pause before the second look at a suspect. The pauses double.
const suspectFirst = 5 * time.Millisecond

// suspect finds out whether a node is dead. The engine calls it when the connection to the node
// breaks. The kernel closes the connections of a dying process a little before it lets others see
// that the process has ended. So suspect looks several times, for at most the time between two
// renewals of the lease. A renewal looks anyway. If the node is dead, this node renews its lease
// immediately, and fences the dead node.
func (inc *incarnation) suspect(node model.NodeID) {
	inc.post(func() {
		i := slices.IndexFunc(inc.seen, func(m store.Member) bool { return m.ID == node })
		if i < 0 {
			return
		}
		info := inc.seen[i].NodeInfo
		inc.eng.beside.run(func(ctx context.Context) {
			if inc.isGoneSoon(ctx, info) {
				inc.post(inc.member.RenewNow)
			}
		})
	})
}

// isGoneSoon waits until a node has provably ended. It gives up after at most a fifth of the lease,
// which is the time between two renewals.
func (inc *incarnation) isGoneSoon(ctx context.Context, n store.NodeInfo) bool {
	most := inc.eng.cfg.LeaseTTL / 5
	for pause, waited := suspectFirst, time.Duration(0); ; pause *= 2 {
		if inc.eng.cfg.Gone(n) {
			return true
		}
		if waited += pause; waited > most || inc.eng.current() != inc {
			return false
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}
