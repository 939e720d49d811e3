package lane

import (
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const mailPage = 500 // bounds the messages, and also the requests, of one read

// mailroom holds messages from other shards in channels, and notes which inbox rows of other
// processes the lane has taken.
type mailroom struct {
	pairs  map[[2]model.ShardID]*pair // by (to, from)
	hungry []*pair                    // channels that may give their next message to its address
	bytes  int                        // of the messages in all channels

	inbox map[model.RunID]struct{} // requests taken from the inbox that are not committed
	// requests that were committed while the lane read the inbox: the read may still return them
	served []model.RunID

	// answered are the requests whose answers were not in the store when the last read began, so
	// the read may have missed these answers. It is nil if no read is in flight.
	answered map[store.RequestKey]struct{}
	// started are the addresses with starts that were not in the store when the last read began. It
	// is nil if no read is in flight.
	started map[model.Address]struct{}

	reading   bool
	announced announced
	again     bool          // mail was announced while the lane was reading or had no room
	more      bool          // there may be mail behind the last page
	turn      model.ShardID // the next page starts with the messages for this shard
	aside     aside
}

// announced are the shards for which mail was announced since the last read began.
type announced struct {
	all    bool
	shards map[model.ShardID]bool // true unless only requests were announced
}

// any reports whether mail was announced for a shard.
func (a *announced) any(id model.ShardID) bool {
	_, has := a.shards[id]
	return a.all || has
}

// messages reports whether messages of other shards may wait for a shard.
func (a *announced) messages(id model.ShardID) bool { return a.all || a.shards[id] }

// announce notes that the store may have requests for a shard, and perhaps messages.
func (m *mailroom) announce(shard model.ShardID, messages bool) {
	if m.announced.shards == nil {
		m.announced.shards = map[model.ShardID]bool{}
	}
	m.announced.shards[shard] = messages || m.announced.shards[shard]
}

// takeAnnounced returns the announced shards, and starts with no announcements again.
func (m *mailroom) takeAnnounced() announced {
	taken := m.announced
	m.announced = announced{}
	return taken
}

func newMailroom() mailroom {
	return mailroom{pairs: map[[2]model.ShardID]*pair{}, inbox: map[model.RunID]struct{}{}}
}

// pair is the ordered channel from one shard to another. Its messages take effect one after the
// other, each exactly once: the cursor advances in the commit that consumes them.
type pair struct {
	to, from  model.ShardID
	committed int64 // cursor in the store
	applied   int64 // cursor after all batches, including those not committed yet
	sealed    int64 // cursor in the batch in flight
	prev      int64 // cursor before the open batch
	inOpen    bool  // the open batch advances the cursor
	feeding   bool  // the address has got the first message, which is not applied yet
	queue     []queuedMessage
}

// queuedMessage is a message that waits in its channel.
type queuedMessage struct {
	store.MessageRow
	bytes int // bytes that mailroom.bytes includes for the message
}

// isDamaged reports whether the next message of the channel cannot be read.
func (p *pair) isDamaged() bool { return len(p.queue) > 0 && p.queue[0].Damaged != nil }

// nextSeq returns the position of the message that the channel takes next.
func (p *pair) nextSeq() int64 { return p.applied + int64(len(p.queue)) + 1 }

// seal returns the row that advances the cursor, for a batch that the lane is sealing.
func (p *pair) seal() store.CursorRow {
	p.inOpen, p.sealed = false, p.applied
	return store.CursorRow{To: p.to, From: p.from, Prev: p.prev, Next: p.applied}
}

// push adds a message to the end of a channel.
func (m *mailroom) push(p *pair, row store.MessageRow) {
	n := rowBytes + row.Message.Size()
	if row.Damaged != nil {
		n += len(row.Damaged.Raw)
	}
	p.queue = append(p.queue, queuedMessage{row, n})
	m.bytes += n
	m.hungry = append(m.hungry, p)
}

// pop drops the first message of a channel.
func (m *mailroom) pop(p *pair) {
	m.bytes -= p.queue[0].bytes
	p.queue[0] = queuedMessage{}
	p.queue = p.queue[1:]
}

// clear drops all messages of a channel from memory. The store still has them.
func (m *mailroom) clear(p *pair) {
	for len(p.queue) > 0 {
		m.pop(p)
	}
	p.queue = nil
}

// consume lets a batch advance the cursor over the message at a position.
func (m *mailroom) consume(p *pair, b *building, seq int64) {
	if !p.inOpen {
		p.inOpen, p.prev = true, p.applied
		b.pairs = append(b.pairs, p)
	}
	p.applied = seq
	m.release(p)
}

// release allows the channel to give its next message to the address of that message.
func (m *mailroom) release(p *pair) {
	p.feeding = false
	for len(p.queue) > 0 && p.queue[0].Seq <= p.applied {
		m.pop(p)
	}
	if len(p.queue) > 0 {
		m.hungry = append(m.hungry, p)
	} else {
		p.queue = nil
	}
}

// rollback returns to the committed cursor. The lane first applies the inputs that it kept from the
// refused batches, in order. Then it reads the messages that follow them from the store again.
func (m *mailroom) rollback(p *pair) {
	p.applied, p.inOpen, p.feeding = p.committed, false, false
	m.clear(p)
}

// nextHungry returns a channel that may give its next message to its address. It returns nil if
// there is none.
func (m *mailroom) nextHungry() *pair {
	for len(m.hungry) > 0 {
		p := m.hungry[0]
		m.hungry = m.hungry[1:]
		if !p.feeding && len(p.queue) > 0 {
			return p
		}
	}
	return nil
}

// clearShard drops messages for a shard that the lane gives up. The next owner reads them.
func (m *mailroom) clearShard(id model.ShardID) {
	for k, p := range m.pairs {
		if k[0] == id {
			m.clear(p)
		}
	}
}

// dropShard forgets a shard that the lane no longer owns, including unreadable messages that the
// lane has not moved aside yet. The next owner reads them again.
func (m *mailroom) dropShard(id model.ShardID) {
	for k := range m.pairs {
		if k[0] == id {
			delete(m.pairs, k)
		}
	}
	a := &m.aside
	a.pairs = slices.DeleteFunc(a.pairs, func(p *pair) bool { return p.to == id })
	a.requests = slices.DeleteFunc(a.requests, func(r store.InboxRow) bool {
		if r.Shard == id {
			delete(m.inbox, r.ID)
		}
		return r.Shard == id
	})
}

// isTaken reports whether a request has been taken from the inbox and is not committed.
func (m *mailroom) isTaken(id model.RunID) bool {
	_, ok := m.inbox[id]
	return ok
}

// take records that the lane has taken a request from the inbox.
func (m *mailroom) take(id model.RunID) { m.inbox[id] = struct{}{} }

// untake notes that the lane no longer has a request. The request is still in the inbox, and the
// lane reads it again.
func (m *mailroom) untake(id model.RunID) { delete(m.inbox, id) }

// finish notes that the row of a request has been deleted or put off.
func (m *mailroom) finish(id model.RunID) {
	if m.reading {
		m.served = append(m.served, id)
	} else {
		delete(m.inbox, id)
	}
}

// fromTurn divides the shards into shards whose messages the lane reads now and shards that have
// had their turn. A page starts with the lowest shard, so a shard that always has a full page of
// messages would otherwise keep the lane from reading messages of higher shards.
func (m *mailroom) fromTurn(shards []model.ShardID) (now, passed []model.ShardID) {
	i, _ := slices.BinarySearch(shards, m.turn)
	if i == len(shards) {
		m.turn, i = 0, 0
	}
	return shards[i:], shards[:i]
}

// takeTurns decides with which shard the next page starts, after a page of messages. It reports
// whether the lane still has to read the messages for the lower shards.
func (m *mailroom) takeTurns(rows []store.MessageRow, more bool) (again bool) {
	if more && len(rows) > 0 {
		m.turn = rows[len(rows)-1].To + 1
		return false
	}
	again = m.turn > 0
	m.turn = 0
	return again
}

// beginRead notes that a page of mail is being read, while the answers to some requests are not
// committed yet.
func (m *mailroom) beginRead(pending map[store.RequestKey]struct{}) {
	m.reading = true
	m.answered = maps.Clone(pending)
	if m.answered == nil {
		m.answered = map[store.RequestKey]struct{}{}
	}
}

// noteStart notes that the lane is about to store a start.
func (m *mailroom) noteStart(a model.Address) {
	if m.started != nil {
		m.started[a] = struct{}{}
	}
}

// noteAnswer notes that the lane is about to store the answer to a request.
func (m *mailroom) noteAnswer(key store.RequestKey) {
	if m.answered != nil {
		m.answered[key] = struct{}{}
	}
}

// endRead notes that a page of mail has been read. The lane reads the next page after it has
// committed some of the messages of this page.
func (m *mailroom) endRead(more bool) {
	for _, id := range m.served {
		delete(m.inbox, id)
	}
	m.reading, m.served, m.answered, m.started, m.more = false, nil, nil, nil, more
}

const maxAsideTold = 10_000 // requests of newer builds that the lane has reported and remembers

// aside is the unreadable mail that has to be moved out of the way.
type aside struct {
	pairs    []*pair                  // channels whose next message cannot be read
	requests []store.InboxRow         // requests that cannot be read
	told     map[model.RunID]struct{} // requests of newer builds that the lane has reported
	// The store refused a batch with several rows, so they go one by one.
	alone bool
	// when the next attempt is due after a refusal; zero if there was no refusal
	until model.Time
}

// empty reports whether there is nothing to move.
func (a *aside) empty() bool { return len(a.pairs)+len(a.requests) == 0 }

// full reports whether a batch has as many rows to move as it may have.
func (a *aside) full(b *building, bytes int) bool {
	n := len(b.batch.Deferred)
	return n >= mailPage || b.bytes >= bytes || a.alone && n > 0
}

// report adds to the output which rows a batch has moved out of the way. The lane keeps trying a
// row of a newer build, and reports it once.
func (a *aside) report(out *Output, moved []Aside) {
	for _, m := range moved {
		if _, told := a.told[m.id]; told {
			continue
		}
		out.Aside = append(out.Aside, m)
		if m.Newer && len(a.told) < maxAsideTold {
			if a.told == nil {
				a.told = map[model.RunID]struct{}{}
			}
			a.told[m.id] = struct{}{}
		}
	}

	if len(moved) > 0 {
		a.until = 0
		if len(a.requests) == 0 && !slices.ContainsFunc(a.pairs, (*pair).isDamaged) {
			a.alone = false // the next rows may go together again
		}
	}
}

// refuse notes that the store refused a batch. From now on each batch moves one row. If the store
// refuses such a batch too, the next batch waits until the given time.
func (a *aside) refuse(until model.Time) {
	if a.alone {
		a.until = until
	}
	a.alone = true
}
