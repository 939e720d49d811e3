package memory

import (
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// addTimer and dropTimer change both indexes of timers. The index of the shard is sorted by due
// time, and the index of the run is sorted by id.
func (s *Store) addTimer(sh *shard, r *run, t *store.Timer) {
	i, _ := r.timer(t.ID)
	r.timers = slices.Insert(r.timers, i, t)
	sh.timers.insert(t)
}

func (s *Store) dropTimer(sh *shard, r *run, i int) *store.Timer {
	t := r.timers[i]
	r.timers = slices.Delete(r.timers, i, i+1)
	sh.timers.remove(t)
	return t
}

func (s *Store) applyStopTimers(b *store.Batch) error {
	for i := range b.StopTimers {
		row := &b.StopTimers[i]
		sh := s.peek(row.Shard)
		if sh == nil {
			return refuse("%s has no timer %q", row.Run, row.ID)
		}
		r := sh.runs[row.Run]
		if r == nil {
			return refuse("%s has no timer %q", row.Run, row.ID)
		}
		at, found := r.timer(row.ID)
		if !found {
			return refuse("%s has no timer %q", row.Run, row.ID)
		}
		t := s.dropTimer(sh, r, at)
		s.addUndo(func() { s.addTimer(sh, r, t) })
	}

	return nil
}

func (s *Store) applyTimers(b *store.Batch) error {
	for i := range b.Timers {
		t := b.Timers[i]
		sh := s.shard(t.Shard)
		if sh == nil {
			return refuse("there is no shard %d", t.Shard)
		}
		r := sh.run(t.Run)
		if _, found := r.timer(t.ID); found {
			return refuse("%s has a timer %q", t.Run, t.ID)
		}
		s.addTimer(sh, r, &t)
		s.addUndo(func() {
			at, _ := r.timer(t.ID)
			s.dropTimer(sh, r, at)
		})
	}

	return nil
}

func (s *Store) applyStopAll(b *store.Batch) error {
	for _, key := range b.StopAll {
		sh := s.peek(key.Shard)
		if sh == nil || sh.runs[key.Run] == nil {
			continue
		}
		r := sh.runs[key.Run]
		for len(r.timers) > 0 {
			t := s.dropTimer(sh, r, len(r.timers)-1)
			s.addUndo(func() { s.addTimer(sh, r, t) })
		}
	}
	return nil
}

func (s *Store) applyMessages(b *store.Batch) error {
	for i := range b.Messages {
		row := &b.Messages[i]
		w := s.way(row.To, row.From)
		if w == nil {
			return refuse("there is no way from shard %d to shard %d", row.From, row.To)
		}
		at, taken := w.message(row.Seq)
		if taken {
			return refuse("position %d from shard %d to shard %d is taken", row.Seq, row.From, row.To)
		}

		sent := w.sent
		w.rows = slices.Insert(w.rows, at, cloneMessageRow(*row))
		w.sent = max(sent, row.Seq)

		s.addUndo(func() {
			at, _ := w.message(row.Seq)
			w.rows = slices.Delete(w.rows, at, at+1)
			w.sent = sent
		})
	}

	return nil
}

func (s *Store) applyCursors(b *store.Batch) error {
	for _, row := range b.Cursors {
		w := s.way(row.To, row.From)
		if w == nil {
			return refuse("there is no way from shard %d to shard %d", row.From, row.To)
		}
		if w.received != row.Prev {
			return refuse("the cursor from shard %d to shard %d stands at %d, not at %d", row.From, row.To, w.received, row.Prev)
		}
		w.received = row.Next
		s.addUndo(func() { w.received = row.Prev })
	}
	return nil
}

func (s *Store) applyInbox(b *store.Batch) error {
	for _, row := range b.Inbox {
		sh := s.peek(row.Shard)
		if sh == nil {
			return refuse("shard %d has no request %s", row.Shard, row.ID)
		}
		was, ok := sh.inbox.remove(&store.InboxRow{ID: row.ID})
		if !ok {
			return refuse("shard %d has no request %s", row.Shard, row.ID)
		}
		s.addUndo(func() { sh.inbox.insert(was) })
	}
	return nil
}

func (s *Store) applyDeferred(b *store.Batch) error {
	for i := range b.Deferred {
		row := &b.Deferred[i]
		sh := s.shard(row.Shard)
		if sh == nil {
			return refuse("there is no shard %d", row.Shard)
		}
		if old, ok := sh.inbox.get(row); ok {
			before := old.NotBefore
			old.NotBefore = row.NotBefore
			s.addUndo(func() { old.NotBefore = before })
			continue
		}
		fresh := cloneInboxRow(*row)
		fresh.Seen = false
		sh.inbox.insert(&fresh)
		s.addUndo(func() { sh.inbox.remove(&fresh) })
	}

	return nil
}

func (s *Store) applyRequests(b *store.Batch) error {
	for i := range b.Requests {
		row := &b.Requests[i]
		sh := s.shard(row.Shard)
		if sh == nil {
			return refuse("there is no shard %d", row.Shard)
		}
		key := requestKey{row.Address, row.ID}
		if _, ok := sh.replies[key]; ok {
			if strings.HasPrefix(row.ID, model.RefusedIDs) {
				continue // see store.Batch.Requests
			}
			return refuse("request %q to %s is remembered", row.ID, row.Address)
		}

		r := cloneReply(*row)
		sh.replies[key] = &r
		sh.byAge.insert(&r)
		s.addUndo(func() { sh.forget(&r) })
	}

	return nil
}

// applyForgets removes remembered answers that no caller will ask for again.
func (s *Store) applyForgets(b *store.Batch) error {
	for i := range b.Forgets {
		sh, r := s.findReply(&b.Forgets[i])
		if r == nil {
			continue
		}
		sh.forget(r)
		s.addUndo(func() {
			sh.replies[requestKey{r.Address, r.ID}] = r
			sh.byAge.insert(r)
		})
	}

	return nil
}

// findReply returns the remembered answer to a request, or nil if there is none.
func (s *Store) findReply(k *store.RequestKey) (*shard, *store.Reply) {
	sh := s.peek(k.Shard)
	if sh == nil {
		return nil, nil
	}

	return sh, sh.replies[requestKey{k.Address, k.ID}]
}

// forget removes a remembered request.
func (s *shard) forget(r *store.Reply) {
	delete(s.replies, requestKey{r.Address, r.ID})
	s.byAge.remove(r)
}

func (s *Store) applyTokens(b *store.Batch) error {
	for _, row := range b.Tokens {
		if int(row.Shard) >= len(s.tokens) {
			return refuse("there is no shard %d", row.Shard)
		}
		was := s.tokens[row.Shard]
		s.tokens[row.Shard] = max(was, row.Mark)
		s.addUndo(func() { s.tokens[row.Shard] = was })
	}

	return nil
}

func (s *Store) applyFree(b *store.Batch) error {
	for _, id := range b.Free {
		if int(id) >= len(s.owners) || s.owners[id].Node != b.Lane.Node {
			return refuse("shard %d does not belong to %s", id, b.Lane.Node)
		}
		was := s.owners[id]
		s.owners[id] = store.ShardOwner{Shard: id}
		s.addUndo(func() { s.owners[id] = was })
	}
	return nil
}
