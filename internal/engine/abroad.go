package engine

import (
	"context"
	"maps"

	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
)

// The field abroad of a session records what its worker does for runs of other nodes. The lock of
// the session protects the field.

// executeAbroad gives the worker of the session claims that another node has made. It returns false
// if the session takes no further claims. In that case the worker gets none of the claims.
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

// unmake forgets which node has handed over an ended claim, and returns that node. It returns zero
// for a claim of this node.
func (s *TaskSession) unmake(ref model.ClaimRef) model.NodeID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abroad.Unmake(ref)
}

// moveClaims notes that the shards of held claims now belong to another node, or to this node. It
// returns the claims that have come to this node.
func (s *TaskSession) moveClaims(shards map[model.ShardID]bool, ours bool) (come []model.ClaimRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abroad.MoveClaims(maps.Keys(s.held), func(ref model.ClaimRef) bool { return shards[s.eng.layout.Shard(ref.Address)] }, ours)
}

// regain notes that n lent slots belong to the session again.
func (s *TaskSession) regain(n int) {
	s.mu.Lock()
	s.abroad.Lend(-n)
	s.mu.Unlock()
}

// note keeps news about a claim for the node that owns its run.
func (s *TaskSession) note(ref model.ClaimRef, progress *model.Payload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abroad.Note(ref, progress)
}

// sendAbroad queues the report of a claim for the node that owns its run.
func (s *TaskSession) sendAbroad(ref model.ClaimRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abroad.Report(ref)
}

// takeBackReport removes a report from the queue for another node, because this node now owns the
// run. It returns nil if there is no report.
func (s *TaskSession) takeBackReport(ref model.ClaimRef) *model.TaskReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.abroad.TakeBackReport(ref) {
		return nil
	}
	return s.reported[ref]
}

// dropSentNews drops news that the owner has received. It keeps newer news.
func (s *TaskSession) dropSentNews(refs map[model.ClaimRef]uint64) {
	s.mu.Lock()
	s.abroad.DropSentNews(refs)
	s.mu.Unlock()
	s.heard.ring()
}

// Flush waits until other nodes, which own the runs of some of the session's claims, have received
// all progress that was passed to Beat before the call of Flush.
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

// abroadBy calls do for each claim that may belong to another node. fresh says whether there is
// news about the claim that its owner has not received.
func (s *TaskSession) abroadBy(do func(ref model.ClaimRef, fresh bool)) {
	s.mu.Lock()
	all := s.abroad.All()
	s.mu.Unlock()
	for _, o := range all {
		do(o.Ref, o.News)
	}
}

// holdsAbroad lists, for a poll of another node, the claims of shards that are not ours and the
// claims that the other node has made. For claims that the other node owns, it adds news and
// reports as long as there is room, and returns for which claims it added news.
func (s *TaskSession) holdsAbroad(to model.NodeID, foreign, owned func(model.ClaimRef) bool, room *int) (holds []peer.Hold, sent map[model.ClaimRef]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abroad.List(loan.Listing{To: to, Executes: maps.Keys(s.held), Lingers: maps.Keys(s.lingering), Reports: maps.All(s.reported), Foreign: foreign, Owned: owned, Room: room})
}

// setHeld sets the claims of the session of a borrowed worker: the claims that the node of the
// worker lists, and the claims that are on their way to the worker. It returns the claims that the
// worker no longer holds.
func (s *TaskSession) setHeld(holds, waiting map[model.ClaimRef]bool) (gone []model.ClaimRef) {
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

// dropClaim drops a claim from the session of a borrowed worker.
func (s *TaskSession) dropClaim(ref model.ClaimRef) {
	s.mu.Lock()
	delete(s.held, ref)
	s.mu.Unlock()
}
