package engine

import (
	"context"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
)

// abroad is the part of a session that has to do with runs of other nodes: which slots they use, and what they have not been told yet. Its fields are protected by the lock of the session.
type abroad struct {
	lent int                     // slots that another node may use now
	held map[model.ClaimRef]bool // claims that the board of this node does not know of
	// makers are the nodes that have handed over what is held or reported. Each counts its claims as long as they are listed to it, whoever owns the runs meanwhile.
	makers map[model.ClaimRef]model.NodeID
	// reported are claims whose report another node has to settle, and whether it has not been told yet.
	reported map[model.ClaimRef]bool
	news     map[model.ClaimRef]news
	seq      uint64
	heard    bell // rung when others have been told something
}

// news is what the owner of a claim is to hear of it.
type news struct {
	seq      uint64 // 0 for none
	beat     bool
	progress *model.Payload
}

// takeAbroad notes that claims of another owner take slots.
func (s *TaskSession) takeAbroad(claims []model.Claim, from model.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abroad.held == nil {
		s.abroad.held = map[model.ClaimRef]bool{}
	}
	if s.abroad.makers == nil {
		s.abroad.makers = map[model.ClaimRef]model.NodeID{}
	}
	for i := range claims {
		s.abroad.held[claims[i].Ref] = true
		s.abroad.makers[claims[i].Ref] = from
	}
}

// executeAbroad hands over claims that another node has made. It reports false when the session has ended; then it has none of them.
func (s *TaskSession) executeAbroad(claims []model.Claim, from model.NodeID) bool {
	s.takeAbroad(claims, from)
	if s.execute(claims) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range claims {
		s.comesBack(claims[i].Ref)
		delete(s.abroad.makers, claims[i].Ref)
	}
	return false
}

// unmake forgets who has handed over a claim that has ended, and returns it; zero for a claim of this node.
func (s *TaskSession) unmake(ref model.ClaimRef) model.NodeID {
	s.mu.Lock()
	defer s.mu.Unlock()
	maker := s.abroad.makers[ref]
	delete(s.abroad.makers, ref)
	return maker
}

// moved notes that the shards of claims which are held are not ours any more, or have become so. It returns those that have.
func (s *TaskSession) moved(shards map[model.ShardID]bool, count int, ours bool) (come []model.ClaimRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref := range s.held {
		switch {
		case !shards[ref.Address.Shard(count)]:
		case ours:
			delete(s.abroad.held, ref)
			come = append(come, ref)
		default:
			if s.abroad.held == nil {
				s.abroad.held = map[model.ClaimRef]bool{}
			}
			s.abroad.held[ref] = true
		}
	}
	return come
}

// comesBack frees the slot of a claim of another owner. It reports whether it was one, and is called with the lock held.
func (s *TaskSession) comesBack(ref model.ClaimRef) bool {
	if len(s.abroad.held) == 0 || !s.abroad.held[ref] {
		return false
	}
	delete(s.abroad.held, ref)
	return true
}

// regain ends the loan of slots.
func (s *TaskSession) regain(n int) {
	s.mu.Lock()
	s.abroad.lent -= n
	s.mu.Unlock()
}

// note keeps what the owner of a claim, who is another node, is to hear.
func (s *TaskSession) note(ref model.ClaimRef, progress *model.Payload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abroad.news == nil {
		s.abroad.news = map[model.ClaimRef]news{}
	}
	s.abroad.seq++
	n := news{seq: s.abroad.seq, beat: true, progress: s.abroad.news[ref].progress}
	if progress != nil {
		p := *progress
		n.progress = &p
	}
	s.abroad.news[ref] = n
}

func (s *TaskSession) newsOf(ref model.ClaimRef) news {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abroad.news[ref]
}

// sendAbroad has the owner of a claim, who is another node, told how it ended.
func (s *TaskSession) sendAbroad(ref model.ClaimRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abroad.reported == nil {
		s.abroad.reported = map[model.ClaimRef]bool{}
	}
	s.abroad.reported[ref] = true
}

// homeward takes back a report that another node was to settle, because the run has become ours; nil when there is none.
func (s *TaskSession) homeward(ref model.ClaimRef) *model.TaskReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, abroad := s.abroad.reported[ref]; !abroad {
		return nil
	}
	delete(s.abroad.reported, ref)
	return s.reported[ref]
}

// told forgets news that the owner has heard, unless there is newer one.
func (s *TaskSession) told(refs map[model.ClaimRef]uint64) {
	s.mu.Lock()
	for ref, seq := range refs {
		if s.abroad.reported[ref] {
			s.abroad.reported[ref] = false
		}
		if s.abroad.news[ref].seq == seq {
			delete(s.abroad.news, ref)
		}
	}
	s.mu.Unlock()
	s.abroad.heard.ring()
}

// Flush waits until the owners of claims, where they are other nodes, have been told what Beat was given so far.
func (s *TaskSession) Flush(ctx context.Context) error {
	s.mu.Lock()
	last := s.abroad.seq
	s.mu.Unlock()
	for {
		heard := s.abroad.heard.listen()
		s.mu.Lock()
		waits := false
		for ref, n := range s.abroad.news {
			if _, held := s.held[ref]; !held {
				delete(s.abroad.news, ref)
			} else if n.seq <= last && n.progress != nil {
				waits = true
			}
		}
		s.mu.Unlock()
		if !waits {
			return nil
		}
		if !s.eng.await(ctx, heard) {
			return s.eng.gaveUp(ctx, "progress of tasks of worker %s: the owner of their runs does not answer", s.offer.Name)
		}
	}
}

// abroadBy calls do for every claim that may be of another owner, and tells whether there is news of it.
func (s *TaskSession) abroadBy(do func(ref model.ClaimRef, fresh bool)) {
	type one struct {
		ref   model.ClaimRef
		fresh bool
	}
	s.mu.Lock()
	all := make([]one, 0, len(s.abroad.held)+len(s.abroad.news)+len(s.abroad.reported))
	for ref, fresh := range s.abroad.reported {
		all = append(all, one{ref, fresh})
	}
	for ref := range s.abroad.held {
		all = append(all, one{ref, s.abroad.news[ref].seq != 0})
	}
	for ref := range s.abroad.news {
		if !s.abroad.held[ref] {
			all = append(all, one{ref, true})
		}
	}
	s.mu.Unlock()
	for _, o := range all {
		do(o.ref, o.fresh)
	}
}

// holdsAbroad lists to a node everything that the session has of shards that are not ours, or from that node, with news and reports for the owner, if it is the owner, as far as there is room.
// It returns which those are.
func (s *TaskSession) holdsAbroad(to model.NodeID, foreign, owned func(model.ClaimRef) bool, room *int) (holds []peer.Hold, sent map[model.ClaimRef]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent = map[model.ClaimRef]uint64{}
	for ref := range s.held {
		abroad := foreign(ref)
		if !abroad && s.abroad.makers[ref] != to {
			continue
		}
		h := peer.Hold{Ref: ref}
		if n := s.abroad.news[ref]; n.seq != 0 && abroad && owned(ref) && (n.progress == nil || *room > 0) {
			h.Beat, h.Progress = n.beat, n.progress
			if n.progress != nil {
				*room -= n.progress.Size()
			}
			sent[ref] = n.seq
		}
		holds = append(holds, h)
	}
	for ref, r := range s.reported {
		abroad := foreign(ref)
		if !abroad && s.abroad.makers[ref] != to {
			continue
		}
		h := peer.Hold{Ref: ref}
		if _, ours := s.abroad.reported[ref]; ours && abroad && *room > 0 && owned(ref) {
			h.Report = r
			*room -= r.Output.Size()
			sent[ref] = 0
		}
		holds = append(holds, h)
	}
	return holds, sent
}

// lists has the session of a borrowed worker hold what its node says, and what is on its way to it.
func (s *TaskSession) lists(holds, waiting map[model.ClaimRef]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(map[model.ClaimRef]bool, len(holds)+len(waiting))
	for ref := range holds {
		held[ref] = s.held[ref]
	}
	for ref := range waiting {
		held[ref] = s.held[ref]
	}
	s.held = held
}

// lets has the session of a borrowed worker forget a claim.
func (s *TaskSession) lets(ref model.ClaimRef) {
	s.mu.Lock()
	delete(s.held, ref)
	s.mu.Unlock()
}
