package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/store"
)

// Requests of a process that go through the store share transactions. While one transaction is in
// flight, further requests gather for the next transaction.

// Bounds of one transaction.
const (
	maxPuts     = 500
	maxPutBytes = 4 << 20 // bytes of one transaction; the last request may exceed this limit
)

// puts are the requests that wait for a transaction of one store. A caller waits for each of them,
// which bounds their number.
type puts struct {
	mu      sync.Mutex
	waiting []*putting
	busy    bool // a goroutine sends requests
}

// putting is a request on its way to the store.
type putting struct {
	row  *store.InboxRow
	done chan error // capacity 1
}

// take removes the requests of the next transaction. If there are none, the goroutine that sends
// them ends.
func (p *puts) take() []*putting {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, size := 0, 0
	for n < len(p.waiting) && n < maxPuts && (n == 0 || size < maxPutBytes) {
		size += p.waiting[n].row.Message.Size()
		n++
	}
	taken := p.waiting[:n:n]
	if p.waiting = p.waiting[n:]; len(p.waiting) == 0 {
		p.waiting = nil
	}
	p.busy = n > 0
	return taken
}

// leave removes a request whose caller no longer waits, unless it is on its way to the store.
func (p *puts) leave(one *putting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, one); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
}

// putRow stores a request together with others that wait. If ctx ends first, the store may still
// take the request.
func (k *clerk) putRow(ctx context.Context, row *store.InboxRow) error {
	p := &putting{row, make(chan error, 1)}
	to := &k.puts[k.eng.division.partOf(row.Shard)]
	to.mu.Lock()
	to.waiting = append(to.waiting, p)
	begin := !to.busy
	to.busy = true
	to.mu.Unlock()
	send := func(ctx context.Context) { k.putAll(ctx, to) }
	if begin && !k.eng.beside.run(send) {
		send(ctx) // the engine is not running
	}

	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		to.leave(p)
		return context.Cause(ctx)
	}
}

// putAll stores requests until none waits.
func (k *clerk) putAll(ctx context.Context, p *puts) {
	for batch := p.take(); len(batch) > 0; batch = p.take() {
		k.putTogether(ctx, batch)
	}
}

// putTogether stores requests in one transaction. If the store refuses the transaction, putTogether
// stores the requests one by one, so that only the callers of bad requests get the error.
func (k *clerk) putTogether(ctx context.Context, batch []*putting) {
	rows := make([]store.InboxRow, len(batch))
	for i, p := range batch {
		rows[i] = *p.row
	}
	brief, cancel := context.WithTimeout(ctx, k.eng.cfg.CommitTimeout)
	err := k.eng.cfg.Store.PutInbox(brief, rows)
	cancel()

	if err != nil && len(batch) > 1 && !transient(err) {
		for i := range batch {
			k.putTogether(ctx, batch[i:i+1])
		}
		return
	}
	for _, p := range batch {
		p.done <- err
	}
}
