package engine

import (
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// A lingering claim is a claim that a worker has lost, while its code may still run in the worker:
// the code needs a moment to notice the end of its context, or ignores it. The claim keeps its
// permits until the worker says that the code has ended (CodeEnded), or until the worker has left.
// Only workers whose offer has TellsEnd say so. The claims of other workers never linger.

// moreLingering is how many claims of a worker may linger in addition to its slots. The code of at
// most as many claims runs as the worker has slots. But the engine may hand over and stop further
// claims before it learns that the code of earlier claims has ended. Above the bound, the permits
// of a claim become free when the worker is told that the claim is lost.
const moreLingering = 100

// mayLinger reports whether another claim may linger. The caller must hold the lock.
func (s *TaskSession) mayLinger() bool {
	return s.offer.TellsEnd && !s.leaving && !s.over && len(s.lingering) < s.offer.Slots+moreLingering
}

// linger tells the board that the end of a claim is durable, while its code may still run.
func (s *TaskSession) linger(ref model.ClaimRef) {
	if inc := s.eng.current(); inc != nil {
		inc.board.linger(s, ref)
	}
}

// CodeEnded says that the code of a lost claim has ended. It does nothing for other claims.
func (s *TaskSession) CodeEnded(ref model.ClaimRef) {
	s.mu.Lock()
	_, lingers := s.lingering[ref]
	delete(s.lingering, ref)
	s.mu.Unlock()
	if lingers {
		s.finishClaim(ref, nil)
	}
}

// forgetLingering frees the permits of lingering claims. The worker leaves, so it can no longer say
// when the code of these claims has ended.
func (s *TaskSession) forgetLingering() {
	s.mu.Lock()
	refs := slices.Collect(maps.Keys(s.lingering))
	s.mu.Unlock()
	for _, ref := range refs {
		s.CodeEnded(ref)
	}
}

// linger passes the permits of a claim from the task to the code that still runs.
func (b *board) linger(s *TaskSession, ref model.ClaimRef) {
	if !b.gate.KeepsPermits() {
		return
	}
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	// The worker may have said before this call that it is done with the claim.
	if executes, _ := s.at(ref); executes {
		b.gate.Linger(now, ref)
		if it := b.gate.LingeringItem(ref); it != nil {
			s.remember(ref, it)
		}
	}
	b.settle(now)
	b.moved = true
	b.mu.Unlock()
	b.Propose()
}

// remember notes what a lingering claim holds permits for, so that the next incarnation of this
// node can count the claim.
func (s *TaskSession) remember(ref model.ClaimRef, it *queue.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, lingers := s.lingering[ref]; lingers {
		item := *it
		s.lingering[ref] = &item
	}
}

// adoptLingering counts the lingering claims of earlier incarnations of this node. The caller must
// hold the lock of the board.
func (b *board) adoptLingering(now model.Time) {
	for _, s := range b.inc.eng.taskWorkers.all() {
		s.mu.Lock()
		for ref, it := range s.lingering {
			if it != nil {
				b.gate.AdoptLingering(now, ref, s.id, *it)
			}
		}
		s.mu.Unlock()
	}
}
