package memory

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// LoadMessages returns messages with positions above the cursors, ordered by (to, from, position).
func (s *Store) LoadMessages(ctx context.Context, shards []model.ShardID, limit, maxBytes int) (out []store.MessageRow, more bool, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load messages"); err != nil {
		return nil, false, err
	}

	size := 0
	for _, sh := range s.some(shards) {
		for _, w := range sh.in {
			next := w.received + 1
			at, _ := w.message(next)
			for ; at < len(w.rows) && w.rows[at].Seq == next; at++ {
				if len(out) >= limit || pageFull(size, maxBytes) {
					return out, true, nil
				}
				size += messageSize(&w.rows[at].Message, w.rows[at].Damaged)
				out = append(out, cloneMessageRow(w.rows[at]))
				next++
			}
		}
	}

	return out, false, nil
}

// pageFull reports whether a page of this size is full, so that no further row is added.
func pageFull(size, maxBytes int) bool { return size > 0 && size >= maxBytes }

// messageSize returns the bytes that a message adds to a page.
func messageSize(m *model.Message, d *model.Damaged) int {
	if d != nil {
		return max(1, len(d.Raw))
	}
	return m.Size()
}

// LoadInbox returns requests that may be served at now, ordered by id.
func (s *Store) LoadInbox(ctx context.Context, shards []model.ShardID, now model.Time, limit, maxBytes int) (out []store.InboxRow, more bool, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load inbox"); err != nil {
		return nil, false, err
	}
	var places []place[*store.InboxRow]
	for _, sh := range s.some(shards) {
		places = append(places, sh.inbox.first())
	}
	size := 0

	merge(places, byRequest, func(row *store.InboxRow) bool {
		if row.NotBefore > now || row.NotBefore == model.MaxTime {
			return true
		}
		if len(out) >= limit || pageFull(size, maxBytes) {
			more = true
			return false
		}
		size += messageSize(&row.Message, row.Damaged)
		r := cloneInboxRow(*row)
		sh := s.peek(r.Shard)
		r.Seen, r.Vacant = sh.hasReply(&r.Message), sh.current[r.Message.To] == nil
		out = append(out, r)
		return true
	})

	return out, more, nil
}

// LoadDeadLetters returns requests and messages that the engine refused and kept.
func (s *Store) LoadDeadLetters(ctx context.Context, after model.RunID, limit int) ([]store.InboxRow, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load dead letters"); err != nil {
		return nil, err
	}

	var places []place[*store.InboxRow]
	for _, sh := range s.shards {
		if sh != nil {
			places = append(places, sh.inbox.first())
		}
	}

	var out []store.InboxRow
	merge(places, byRequest, func(row *store.InboxRow) bool {
		if row.NotBefore == model.MaxTime && row.ID.Compare(after) > 0 && len(out) < limit {
			out = append(out, cloneInboxRow(*row))
		}
		return len(out) < limit
	})

	return out, nil
}

// PutInbox stores requests. It skips a request that is in the inbox already, or whose answer or
// refusal is remembered.
func (s *Store) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "put inbox"); err != nil {
		return err
	}

	for i := range rows {
		if int(rows[i].Shard) >= len(s.shards) {
			return store.Errorf(store.Refused, "put inbox", "there is no shard %d", rows[i].Shard)
		}
	}

	for i := range rows {
		sh := s.shard(rows[i].Shard)
		if sh.hasReply(&rows[i].Message) || sh.hasRefusal(&rows[i]) {
			continue
		}
		fresh := cloneInboxRow(rows[i])
		fresh.Seen = false
		sh.inbox.insert(&fresh)
	}

	return nil
}

// LoadReplies returns the remembered answers for the request keys.
func (s *Store) LoadReplies(ctx context.Context, keys []store.RequestKey) ([]store.Reply, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load replies"); err != nil {
		return nil, err
	}
	return s.repliesTo(keys), nil
}

func (s *Store) repliesTo(keys []store.RequestKey) (out []store.Reply) {
	for _, k := range keys {
		sh := s.peek(k.Shard)
		if sh == nil {
			continue
		}
		if r := sh.replies[requestKey{k.Address, k.ID}]; r != nil {
			out = append(out, cloneReply(*r))
		}
	}
	return out
}

// LoadAnswers returns what callers of a process wait for, in the order of the keys.
func (s *Store) LoadAnswers(ctx context.Context, a store.Awaited) (found store.Answers, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load answers"); err != nil {
		return store.Answers{}, err
	}
	found.Replies = s.repliesTo(a.Requests)
	ended := func(r *run) {
		if r != nil && r.started && !r.open() {
			found.Ended = append(found.Ended, cloneExecution(r.row))
		}
	}
	for _, key := range a.Runs {
		ended(s.look(key))
	}
	for _, key := range a.Addresses {
		if sh := s.peek(key.Shard); sh != nil {
			ended(sh.current[key.Address])
		}
	}
	return found, nil
}

// sweepDeadLetters removes old dead letters, at most left of them, and returns how many more rows
// the sweep may remove.
func (s *shard) sweepDeadLetters(before model.Time, left int) int {
	var old []*store.InboxRow
	for p, end := s.inbox.first(), store.OldestID(before); left > 0; p.next() {
		row, ok := p.at()
		if !ok || row.ID.Compare(end) >= 0 {
			break
		}
		if row.NotBefore == model.MaxTime {
			old = append(old, row)
			left--
		}
	}
	for _, row := range old {
		s.inbox.remove(row)
	}
	return left
}

// Sweep deletes rows that are no longer needed; see store.SweepRequest. Cursors stay, because every
// pair of shards may be used again, and the number of pairs is bounded.
func (s *Store) Sweep(ctx context.Context, r store.SweepRequest) (int, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "sweep"); err != nil {
		return 0, err
	}
	answered := 0
	for i := range r.Answered {
		if sh, row := s.findReply(&r.Answered[i]); row != nil {
			sh.forget(row)
			answered++
		}
	}

	left := max(r.Limit, 0)
	for _, sh := range s.some(r.Shards) {
		for _, w := range sh.in {
			end, found := w.message(w.received)
			if found {
				end++
			}
			end = min(end, left)
			w.rows = slices.Delete(w.rows, 0, end)
			left -= end
		}

		for ; left > 0; left-- {
			p := sh.byAge.first()
			oldest, ok := p.at()
			if !ok || oldest.At >= r.RequestsBefore {
				break
			}
			sh.forget(oldest)
		}

		left = sh.sweepDeadLetters(r.DeadLettersBefore, left)
		left = sh.sweepLines(&r, sh.sweepGarbage(left))
	}
	left = s.settings.sweep(r.SettingsBefore, left)
	left = s.sweepPeerMail(r.PeerMailBefore, left)
	left = s.sweepAudit(r.AuditBefore, left)
	left = s.sweepReports(r.ReportsBefore, left)
	return answered + max(r.Limit, 0) - left, nil
}
