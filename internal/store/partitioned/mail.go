package partitioned

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// LoadMessages returns the messages that the cursors of the receivers have not passed yet, from all
// parts. If the part of some senders cannot be reached, its messages wait.
func (s *Store) LoadMessages(ctx context.Context, shards []model.ShardID, limit, maxBytes int) (out []store.MessageRow, more bool, err error) {
	for i, mine := range s.split(shards) {
		if len(mine) == 0 {
			continue
		}
		receiver := s.parts[i]
		err := s.ifThere(ctx, receiver, func() error {
			rows, again, err := receiver.LoadMessages(ctx, mine, limit, maxBytes)
			out, more = append(out, rows...), more || again
			return err
		})
		if err != nil {
			return nil, false, err
		}

		for _, sender := range s.parts {
			if sender == receiver || sender.isSick() {
				continue
			}
			rows, again, err := s.loadForeign(ctx, sender, receiver, mine, limit, maxBytes)
			switch {
			case err == nil:
				out, more = append(out, rows...), more || again
			case ctx.Err() != nil || !isTrouble(err):
				return nil, false, err
			}
		}
	}

	slices.SortStableFunc(out, func(a, b store.MessageRow) int {
		return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From), cmp.Compare(a.Seq, b.Seq))
	})
	n := fitting(out, limit, maxBytes, func(r *store.MessageRow) int { return messageSize(&r.Message, r.Damaged) })
	return out[:n], more || n < len(out), nil
}

// loadForeign returns messages from one part to shards of another.
//
// The part of the senders returns the messages that its copies of the cursors have not passed. If
// the receivers have already consumed some of these rows, loadForeign leaves them out. It also
// raises the copies, so that a sweep deletes the consumed rows.
//
//arch:parameters these are the parameters of LoadMessages
func (s *Store) loadForeign(ctx context.Context, sender, receiver *part, shards []model.ShardID, limit, maxBytes int) (kept []store.MessageRow, more bool, err error) {
	const rounds = 4
	for range rounds {
		var rows []store.MessageRow
		err := sender.ask(ctx, longestWait, func(ctx context.Context) (err error) {
			rows, more, err = sender.LoadMessages(ctx, shards, limit, maxBytes)
			return err
		})
		if err != nil || len(rows) == 0 {
			return nil, false, err
		}
		cursors, err := receiver.cursors(ctx, channelsOf(rows))
		if err != nil {
			return nil, false, err
		}
		kept, passed := pass(rows, cursors)
		if len(passed) == 0 {
			return kept, more, nil
		}
		// Raise the copies of the cursors. The next round then reads a full page.
		if err := sender.ask(ctx, longestWait, func(ctx context.Context) error { return sender.AdvanceCursors(ctx, passed) }); err != nil {
			return nil, false, err
		}
	}
	return nil, true, nil
}

// ask calls a part on behalf of work that also concerns another part. It waits for a limited time.
// If the call fails, ask notes that the part is in trouble.
func (p *part) ask(ctx context.Context, limit time.Duration, call func(context.Context) error) error {
	err := p.askBriefly(ctx, limit, call)
	if err == nil {
		p.comeBack()
	}
	return p.explain(err)
}

// askBriefly is like ask, but does not add the name of the part to an error, and does not note that
// a call has succeeded.
func (p *part) askBriefly(ctx context.Context, limit time.Duration, call func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := call(limited)
	if err != nil && ctx.Err() == nil { // otherwise the caller has given up
		p.note(err)
	}
	return err
}

// cursors returns the cursors of channels whose receivers are shards of this part.
func (p *part) cursors(ctx context.Context, channels []store.Channel) (out []store.ChannelCursor, err error) {
	err = p.ask(ctx, longestWait, func(ctx context.Context) error {
		out, err = p.LoadCursors(ctx, channels)
		return err
	})
	return out, err
}

// channelsOfCall bounds the channels that one call reads.
const channelsOfCall = 10_000

// advanceCopies raises the copies that a part has of the cursors of other parts. If one of these
// parts cannot be reached, the copies of its cursors stay as they are.
func (s *Store) advanceCopies(ctx context.Context, sender *part, shards [][]model.ShardID) error {
	for i, foreign := range shards {
		receiver := s.parts[i]
		if receiver == sender {
			continue
		}
		// A shard can have a channel from every other shard.
		for some := range slices.Chunk(foreign, max(1, channelsOfCall/s.info.Shards)) {
			if receiver.isSick() {
				break
			}
			channels, err := sender.LoadChannels(ctx, some)
			if err != nil {
				return err
			}
			if len(channels) == 0 {
				continue
			}

			cursors, err := receiver.cursors(ctx, channels)
			switch {
			case err == nil:
			case ctx.Err() == nil && receiver.isSick():
				continue
			default:
				return err
			}

			if err := sender.AdvanceCursors(ctx, cursors); err != nil {
				return err
			}
		}
	}
	return nil
}

// channelsOf returns the channels of messages, each once.
func channelsOf(rows []store.MessageRow) (out []store.Channel) {
	for i := range rows {
		c := store.Channel{To: rows[i].To, From: rows[i].From}
		if len(out) == 0 || out[len(out)-1] != c {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b store.Channel) int {
		return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From))
	})
	return slices.Compact(out)
}

// pass returns the messages that the receivers have not consumed, and the cursors that have passed
// some of the messages.
func pass(rows []store.MessageRow, cursors []store.ChannelCursor) (kept []store.MessageRow, passed []store.ChannelCursor) {
	at := make(map[store.Channel]int64, len(cursors))
	for _, c := range cursors {
		at[c.Channel] = c.Position
	}
	behind := map[store.Channel]bool{}
	for i := range rows {
		c := store.Channel{To: rows[i].To, From: rows[i].From}
		switch position := at[c]; {
		case rows[i].Seq > position:
			kept = append(kept, rows[i])
		case !behind[c]:
			behind[c] = true
			passed = append(passed, store.ChannelCursor{Channel: c, Position: position})
		}
	}
	return kept, passed
}

// fitting returns how many rows fit into a page. A page has at most limit rows, and ends with the
// row that reaches maxBytes.
func fitting[T any](rows []T, limit, maxBytes int, size func(*T) int) int {
	bytes := 0
	for i := range rows {
		if i >= limit || bytes > 0 && bytes >= maxBytes {
			return i
		}
		bytes += size(&rows[i])
	}
	return len(rows)
}

// messageSize returns the bytes that a message adds to a page.
func messageSize(m *model.Message, d *model.Damaged) int {
	if d != nil {
		return max(1, len(d.Raw))
	}
	return m.Size()
}

// LoadInbox returns requests that may be served at now, ordered by id.
func (s *Store) LoadInbox(ctx context.Context, shards []model.ShardID, now model.Time, limit, maxBytes int) (out []store.InboxRow, more bool, err error) {
	for i, mine := range s.split(shards) {
		if len(mine) == 0 {
			continue
		}
		p := s.parts[i]
		err := s.ifThere(ctx, p, func() error {
			rows, again, err := p.LoadInbox(ctx, mine, now, limit, maxBytes)
			out, more = append(out, rows...), more || again
			return err
		})
		if err != nil {
			return nil, false, err
		}
	}
	slices.SortStableFunc(out, func(a, b store.InboxRow) int { return a.ID.Compare(b.ID) })
	n := fitting(out, limit, maxBytes, func(r *store.InboxRow) int { return messageSize(&r.Message, r.Damaged) })
	return out[:n], more || n < len(out), nil
}

// PutInbox stores requests in the parts of their shards. If a part fails, the requests of other
// parts may be stored nevertheless. The caller may put all requests again.
func (s *Store) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	var errs []error
	for i, mine := range splitBy(s, rows, func(r *store.InboxRow) model.ShardID { return r.Shard }) {
		if len(mine) == 0 {
			continue
		}
		p := s.parts[i]
		err := p.PutInbox(ctx, mine)
		if err == nil {
			p.comeBack() // so that ifThere lets the caller read the answer
		}
		errs = append(errs, p.explain(err))
	}
	return errors.Join(errs...)
}

// LoadReplies returns the remembered answers for the request keys. If a part fails, LoadReplies
// returns the answers of the other parts with the error.
func (s *Store) LoadReplies(ctx context.Context, keys []store.RequestKey) ([]store.Reply, error) {
	return gather(ctx, s, splitBy(s, keys, func(k *store.RequestKey) model.ShardID { return k.Shard }), func(ctx context.Context, p *part, mine []store.RequestKey) ([]store.Reply, error) {
		return p.LoadReplies(ctx, mine)
	})
}

// LoadAnswers returns what callers of a process wait for. If a part fails, LoadAnswers returns the
// rows of the other parts with the error.
func (s *Store) LoadAnswers(ctx context.Context, a store.Awaited) (found store.Answers, err error) {
	requests := splitBy(s, a.Requests, func(k *store.RequestKey) model.ShardID { return k.Shard })
	runs := s.runKeys(a.Runs)
	addresses := splitBy(s, a.Addresses, func(k *store.AddressKey) model.ShardID { return k.Shard })
	awaited := make([][]store.Awaited, len(s.parts)) // at most one of each part
	for i := range awaited {
		if len(requests[i])+len(runs[i])+len(addresses[i]) > 0 {
			awaited[i] = []store.Awaited{{Requests: requests[i], Runs: runs[i], Addresses: addresses[i]}}
		}
	}

	all, err := gather(ctx, s, awaited, func(ctx context.Context, p *part, mine []store.Awaited) ([]store.Answers, error) {
		one, err := p.LoadAnswers(ctx, mine[0])
		return []store.Answers{one}, err
	})
	for _, one := range all {
		found.Replies, found.Ended = append(found.Replies, one.Replies...), append(found.Ended, one.Ended...)
	}
	return found, err
}

// gather reads rows by their keys from the parts that have these rows. The callers wait for rows of
// all parts at the same time, so a part that fails or hangs must not hide the rows of other parts.
func gather[K, T any](ctx context.Context, s *Store, keys [][]K, load func(context.Context, *part, []K) ([]T, error)) (out []T, err error) {
	asked := 0
	for _, mine := range keys {
		if len(mine) > 0 {
			asked++
		}
	}

	var errs []error
	for i, mine := range keys {
		p := s.parts[i]
		switch {
		case len(mine) == 0:
			continue
		case asked > 1 && i > 0 && p.isSick():
			errs = append(errs, p.explain(store.Errorf(store.Away, "load", "the last call has failed")))
			continue
		}
		rows, err := loadPart(ctx, s, p, func(ctx context.Context) ([]T, error) { return load(ctx, p, mine) })
		out, errs = append(out, rows...), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// loadPart reads from one part. It does not wait long for a member, even if this read needs no
// other part. The process makes its next read only after this one, and the next read may need rows
// of other parts.
func loadPart[T any](ctx context.Context, s *Store, p *part, load func(context.Context) ([]T, error)) (rows []T, err error) {
	if p.index == 0 {
		return load(ctx)
	}
	err = s.ifThere(ctx, p, func() error {
		return p.askBriefly(ctx, sickFor, func(ctx context.Context) error {
			rows, err = load(ctx)
			return err
		})
	})
	return rows, err
}

// Sweep deletes what is no longer needed, part after part. Every part gets all shards, because a
// part may have messages to shards of other parts. The rows of a member that cannot be reached wait
// for a later sweep.
func (s *Store) Sweep(ctx context.Context, r store.SweepRequest) (total int, err error) {
	answered := splitBy(s, r.Answered, func(k *store.RequestKey) model.ShardID { return k.Shard })
	shards := s.split(r.Shards)
	left := r.Limit
	var errs []error
	for _, p := range s.parts {
		one := r
		one.Limit, one.Answered = left, append(answered[p.index], p.takeForgets()...)
		if p.index > 0 { // only the home has rows without a shard
			one.SettingsBefore, one.PeerMailBefore, one.AuditBefore, one.ReportsBefore = 0, 0, 0, 0
			if len(one.Shards) == 0 && len(one.Answered) == 0 {
				continue
			}
		}

		n, done, err := s.sweepPart(ctx, p, one, shards)
		if !done {
			s.forgetLater(one.Answered)
		}
		errs = append(errs, err)
		total += n
		left = max(0, left-n)
	}
	return total, errors.Join(errs...)
}

// sweepPart sweeps one part, and returns whether the sweep has succeeded. If a member cannot be
// reached, sweepPart leaves it out and returns no error.
func (s *Store) sweepPart(ctx context.Context, p *part, r store.SweepRequest, shards [][]model.ShardID) (n int, done bool, err error) {
	sweep := func(ctx context.Context) (err error) {
		if err = s.advanceCopies(ctx, p, shards); err == nil {
			n, err = p.Sweep(ctx, r)
		}
		return err
	}
	if p.index == 0 {
		err = sweep(ctx)
		return n, err == nil, err
	}
	limit := longestSweep
	if len(r.Shards) == 0 {
		limit = sickFor // the process reads the answers for its callers only after this sweep
	}
	done, err = s.unlessAway(ctx, p, limit, sweep)
	return n, done, p.explain(err)
}

// longestSweep is how long a sweep may work on one member. A sweep that does not end in time has
// deleted nothing. So the limit must be at least as long as one statement may take.
const longestSweep = 30 * time.Second

// unlessAway calls a member for work that concerns all parts and that can be done later for this
// member. It returns whether the call has succeeded. If the member cannot be reached, unlessAway
// returns no error. The work on the other parts waits for this call, so the call has a time limit.
func (s *Store) unlessAway(ctx context.Context, p *part, limit time.Duration, call func(context.Context) error) (done bool, err error) {
	// In a closed store all calls fail, which does not mean that the member is away.
	isAway := func() bool { return p.isSick() && s.closing.Err() == nil }
	if isAway() {
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = call(limited)
	switch {
	case err == nil:
		p.comeBack()
		return true, nil
	case ctx.Err() != nil:
		return false, err
	}

	// A call that takes too long is an error, unless the renewals of leases hang as well.
	if limited.Err() == nil {
		p.note(err)
	}
	if isAway() {
		return false, nil
	}
	return false, err
}

// takeForgets returns the remembered answers that wait for a sweep.
func (p *part) takeForgets() []store.RequestKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := p.forgets
	p.forgets = nil
	return keys
}
