package partitioned

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// maxForgets bounds the remembered answers of one part that wait for a sweep. A later sweep removes
// further answers by their age.
const maxForgets = 10_000

// Commit applies a batch in the part of its lane. It refuses a batch that has rows of another part.
func (s *Store) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	p := s.partOfLane(b.Lane.Lane)
	if b.Lane.Lane < 0 {
		return p.Commit(ctx, b) // the part refuses the batch, because it has no such lane
	}
	if shard, found := s.strayShard(p, b); found {
		return store.Committed{}, store.Errorf(store.Refused, "commit", "lane %d writes to part %d, and shard %d belongs to part %d",
			b.Lane.Lane, p.index, shard, s.partOf(shard).index)
	}

	// This transaction cannot remove answers that other parts remember.
	isAway := func(k store.RequestKey) bool { return s.partOf(k.Shard) != p }
	var away []store.RequestKey
	if slices.ContainsFunc(b.Forgets, isAway) {
		for _, k := range b.Forgets {
			if isAway(k) {
				away = append(away, k)
			}
		}
		mine := *b
		mine.Forgets = slices.DeleteFunc(slices.Clone(b.Forgets), isAway)
		b = &mine
	}

	c, err := p.Commit(ctx, b)
	if err != nil {
		if store.ClassOf(err) == store.Unknown {
			// If the batch was not applied, the next view says so. Until then no node takes the
			// shards. Their owner knows that it still has them, and the member does not give them
			// to other nodes.
			p.noteFreed(b.Free)
		}
		return c, p.explain(err)
	}
	p.comeBack()
	p.noteFreed(b.Free)
	s.forgetLater(away)
	return c, nil
}

// forgetLater keeps answers that the next sweep removes.
func (s *Store) forgetLater(keys []store.RequestKey) {
	for _, k := range keys {
		p := s.partOf(k.Shard)
		p.mu.Lock()
		if len(p.forgets) < maxForgets {
			p.forgets = append(p.forgets, k)
		}
		p.mu.Unlock()
	}
}

// strayShard returns the shard of a row that does not belong to the part. Messages belong to the
// part of their sender, and cursors to the part of their receiver.
func (s *Store) strayShard(p *part, b *store.Batch) (stray model.ShardID, found bool) {
	look := func(shard model.ShardID) bool {
		if int(shard) < len(s.of) && s.of[shard] != p.index {
			stray, found = shard, true
		}
		return found
	}

	ofRun := func(k store.RunKey) bool { return look(k.Shard) }
	ofEntity := func(k store.EntityKey) bool { return look(k.Shard) }
	_ = slices.ContainsFunc(b.Deletes, ofRun) || slices.ContainsFunc(b.Removes, ofRun) || slices.ContainsFunc(b.StopAll, ofRun) ||
		slices.ContainsFunc(b.EntityRemoves, ofEntity) ||
		contains(b.Starts, func(r *store.StartRow) bool { return look(r.Shard) }) ||
		contains(b.Closes, func(r *store.CloseRow) bool { return look(r.Shard) }) ||
		contains(b.Marks, func(r *store.MarkRow) bool { return look(r.Shard) }) ||
		contains(b.Labels, func(r *store.LabelRow) bool { return look(r.Shard) }) ||
		contains(b.Events, func(r *store.EventRow) bool { return look(r.Shard) }) ||
		contains(b.Dead, func(r *store.DeadRow) bool { return look(r.Shard) }) ||
		contains(b.DeadMarks, func(r *store.DeadMark) bool { return look(r.Shard) }) ||
		contains(b.DeadDeletes, func(r *store.DeadKey) bool { return look(r.Shard) }) ||
		contains(b.TaskData, func(r *store.TaskDatum) bool { return look(r.Shard) }) ||
		contains(b.Logs, func(r *store.LogRow) bool { return look(r.Shard) }) ||
		contains(b.StopTimers, func(r *store.TimerKey) bool { return look(r.Shard) }) ||
		contains(b.Timers, func(r *store.Timer) bool { return look(r.Shard) }) ||
		contains(b.Taken, func(r *store.MailboxKey) bool { return look(r.Shard) }) ||
		contains(b.Mailbox, func(r *store.MailboxRow) bool { return look(r.Shard) }) ||
		contains(b.Entities, func(r *store.EntityRow) bool { return look(r.Shard) }) ||
		contains(b.Messages, func(r *store.MessageRow) bool { return look(r.From) }) ||
		contains(b.Cursors, func(r *store.CursorRow) bool { return look(r.To) }) ||
		contains(b.Inbox, func(r *store.InboxKey) bool { return look(r.Shard) }) ||
		contains(b.Deferred, func(r *store.InboxRow) bool { return look(r.Shard) }) ||
		contains(b.Requests, func(r *store.Reply) bool { return look(r.Shard) }) ||
		contains(b.Tokens, func(r *store.TokenMark) bool { return look(r.Shard) }) ||
		slices.ContainsFunc(b.Free, look)
	return stray, found
}

// contains is slices.ContainsFunc without copies of large rows.
func contains[T any](rows []T, is func(*T) bool) bool {
	for i := range rows {
		if is(&rows[i]) {
			return true
		}
	}
	return false
}
