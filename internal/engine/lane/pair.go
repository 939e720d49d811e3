package lane

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// mailroom receives messages of other shards and requests of other processes.
type mailroom struct {
	pairs   map[[2]model.ShardID]*pair // by (to, from)
	hungry  []*pair                    // may hand on their next message
	inbox   map[model.RunID]struct{}   // requests that have been taken from the inbox and are not committed yet
	served  []model.RunID              // those that were committed while the inbox was being read: the read may still show them
	bytes   int                        // of the messages in all channels
	reading bool
	again   bool // mail was announced while the lane was reading, or had no room for it
	more    bool // there may be mail behind the last page
	aside   aside
}

func newMailroom() mailroom {
	return mailroom{pairs: map[[2]model.ShardID]*pair{}, inbox: map[model.RunID]struct{}{}}
}

// pair is the ordered channel from one shard to another. Its messages take effect one after the other, each exactly once:
// the cursor advances in the commit that consumes them.
type pair struct {
	to, from  model.ShardID
	committed int64 // cursor in the store
	applied   int64 // cursor with all batches that are not committed yet
	sealed    int64 // cursor in the batch in flight
	prev      int64 // cursor before the open batch
	inOpen    bool
	feeding   bool // the head of the queue has been handed to its address and is not applied yet
	queue     []queued
}

// queued is a message that waits in its channel.
type queued struct {
	store.MessageRow
	bytes int // that count for it in mailroom.bytes
}

// push adds a message to the end of the channel.
func (p *pair) push(l *Lane, row store.MessageRow) {
	n := rowBytes + row.Message.Size()
	if row.Damaged != nil {
		n += len(row.Damaged.Raw)
	}
	p.queue = append(p.queue, queued{row, n})
	l.mail.bytes += n
}

// pop lets go of the first message of the channel.
func (p *pair) pop(l *Lane) {
	l.mail.bytes -= p.queue[0].bytes
	p.queue[0] = queued{}
	p.queue = p.queue[1:]
}

// clear lets go of all messages of the channel: the store has them.
func (p *pair) clear(l *Lane) {
	for len(p.queue) > 0 {
		p.pop(l)
	}
	p.queue = nil
}

// consume has the open batch advance the cursor over the message at a position.
func (p *pair) consume(l *Lane, seq int64) {
	if !p.inOpen {
		p.inOpen, p.prev = true, p.applied
		l.open.pairs = append(l.open.pairs, p)
	}
	p.applied = seq
	p.release(l)
}

// release lets the next message of the channel follow.
func (p *pair) release(l *Lane) {
	p.feeding = false
	for len(p.queue) > 0 && p.queue[0].Seq <= p.applied {
		p.pop(l)
	}
	if len(p.queue) > 0 {
		l.mail.hungry = append(l.mail.hungry, p)
	} else {
		p.queue = nil
	}
}

// seal is the advance of the cursor in a batch that is being sealed.
func (p *pair) seal() store.CursorRow {
	p.inOpen, p.sealed = false, p.applied
	return store.CursorRow{To: p.to, From: p.from, Prev: p.prev, Next: p.applied}
}

func (p *pair) commit(l *Lane) {
	p.committed = p.sealed
	if sh := l.shards[p.to]; sh != nil {
		sh.received[p.from] = p.committed
	}
}

// rollback returns to the committed cursor. The kept inputs of the refused batches come back first, in order; what was queued
// behind them is read from the store again.
func (p *pair) rollback(l *Lane) {
	p.applied, p.inOpen, p.feeding = p.committed, false, false
	p.clear(l)
}

// damaged reports whether the next message of the channel cannot be read.
func (p *pair) damaged() bool { return len(p.queue) > 0 && p.queue[0].Damaged != nil }

// consumed notes a request whose row has been deleted or put off.
func (m *mailroom) consumed(id model.RunID) {
	if m.reading {
		m.served = append(m.served, id)
	} else {
		delete(m.inbox, id)
	}
}

// aside is what the mailroom has to move out of the way.
type aside struct {
	pairs    []*pair          // whose next message cannot be read
	requests []store.InboxRow // that cannot be read
	told     map[model.RunID]struct{}
	alone    bool       // several were refused together: they go one by one
	until    model.Time // when the next try is due after a refusal; zero when there was none
}

const mailPage = 500
