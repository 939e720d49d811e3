package engine

import (
	"context"
	"maps"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
)

// What a session has to do with runs of other nodes is a loan.Abroad. It is protected by the lock
// of the session.

// executeAbroad hands over claims that another node has made. It reports false when the session has
// ended; then it has none of them.
func (s *TaskSession) executeAbroad(claims []model.Claim, from model.NodeID) bool {
	s.mu.Lock()
	s.abroad.Take(claims, from)
	s.mu.Unlock()
	if s.execute(claims) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abroad.Untake(claims)
	return false
}

// unmake forgets who has handed over a claim that has ended, and returns it; zero for a claim of
// this node.
func (s *TaskSession) unmake(ref model.ClaimRef) model.NodeID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abroad.Unmake(ref)
}

// moved notes that the shards of claims which are held are not ours any more, or have become so. It
// returns those that have.
func (s *TaskSession) moved(shards map[model.ShardID]bool, count int, ours bool) (come []model.ClaimRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abroad.Moved(maps.Keys(s.held), func(ref model.ClaimRef) bool { return shards[ref.Address.Shard(count)] }, ours)
}

// regain ends the loan of slots.
func (s *TaskSession) regain(n int) {
	s.mu.Lock()
	s.abroad.Lend(-n)
	s.mu.Unlock()
}

// note keeps what the owner of a claim, who is another node, is to hear.
func (s *TaskSession) note(ref model.ClaimRef, progress *model.Payload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abroad.Note(ref, progress)
}

// sendAbroad has the owner of a claim, who is another node, told how it ended.
func (s *TaskSession) sendAbroad(ref model.ClaimRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abroad.Report(ref)
}

// homeward takes back a report that another node was to settle, because the run has become ours;
// nil when there is none.
func (s *TaskSession) homeward(ref model.ClaimRef) *model.TaskReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.abroad.Homeward(ref) {
		return nil
	}
	return s.reported[ref]
}

// told forgets news that the owner has heard, unless there is newer one.
func (s *TaskSession) told(refs map[model.ClaimRef]uint64) {
	s.mu.Lock()
	s.abroad.Told(refs)
	s.mu.Unlock()
	s.heard.ring()
}

// Flush waits until the owners of claims, where they are other nodes, have been told what Beat was
// given so far.
func (s *TaskSession) Flush(ctx context.Context) error {
	s.mu.Lock()
	last := s.abroad.Last()
	s.mu.Unlock()

	for {
		heard := s.heard.listen()
		s.mu.Lock()
		waits := s.abroad.Untold(last, func(ref model.ClaimRef) bool {
			_, held := s.held[ref]
			return held
		})
		s.mu.Unlock()
		if !waits {
			return nil
		}
		if !s.eng.await(ctx, heard) {
			return s.eng.gaveUp(ctx, "progress of tasks of worker %s: the owner of their runs does not answer", s.offer.Name)
		}
	}
}

// abroadBy calls do for every claim that may be of another owner, and tells whether there is news
// of it.
func (s *TaskSession) abroadBy(do func(ref model.ClaimRef, fresh bool)) {
	s.mu.Lock()
	all := s.abroad.All()
	s.mu.Unlock()
	for _, o := range all {
		do(o.Ref, o.News)
	}
}

// holdsAbroad lists to a node everything that the session has of shards that are not ours, or from
// that node, with news and reports for the owner, if it is the owner, as far as there is room. It
// returns which those are.
func (s *TaskSession) holdsAbroad(to model.NodeID, foreign, owned func(model.ClaimRef) bool, room *int) (holds []peer.Hold, sent map[model.ClaimRef]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abroad.List(to, maps.Keys(s.held), maps.All(s.reported), foreign, owned, room)
}

// lists has the session of a borrowed worker hold what its node says, and what is on its way to it.
// It returns what it held before and does not hold any more.
func (s *TaskSession) lists(holds, waiting map[model.ClaimRef]bool) (gone []model.ClaimRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(map[model.ClaimRef]bool, len(holds)+len(waiting))
	for ref := range holds {
		held[ref] = s.held[ref]
	}
	for ref := range waiting {
		held[ref] = s.held[ref]
	}

	for ref := range s.held {
		if _, still := held[ref]; !still {
			gone = append(gone, ref)
		}
	}

	s.held = held
	return gone
}

// lets has the session of a borrowed worker forget a claim.
func (s *TaskSession) lets(ref model.ClaimRef) {
	s.mu.Lock()
	delete(s.held, ref)
	s.mu.Unlock()
}
