package crew

import "github.com/perdure/perdure/internal/fault"

// A node that starts registers its code piece by piece. Another node may see only the first pieces,
// and let its workers join the starting node for the missing code. Once the starting node has all
// its code, these workers leave. Otherwise both nodes would keep an idle session until one of them
// ends.

var errUnneeded = fault.New(fault.Unavailable, "no worker of this node works for the other node")

// retire prepares idle workers to leave an owner that has their code by now. First the owner stops
// handing over work to them. retire returns the outlets for which the owner has done so, and which
// the caller now lets leave. The caller holds the lock of the host.
func (d *deal) retire(s *codeOf) (gone []*outlet) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.outlets {
		switch {
		case o.hands.isBusyFor(o):
			// A later call of Sync looks again.
		case o.isWithdrawn():
			gone = append(gone, o)
		case !o.isRetiring() && o.isUnneeded(s):
			o.startRetiring()
			d.post(parcel{Kind: withdraw, Role: o.id})
		}
	}
	return gone
}

// isUnneeded reports whether the owner has the code of all names for which the worker has joined.
func (o *outlet) isUnneeded(s *codeOf) bool {
	for name := range o.names {
		if !o.hands.isServed(name, s) {
			return false
		}
	}
	return true
}

func (o *outlet) isRetiring() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.retiring
}

func (o *outlet) startRetiring() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.retiring = true
}

// isWithdrawn reports whether the worker is retiring and gets no further work.
func (o *outlet) isWithdrawn() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.retiring && o.answered
}

// leave ends the work of a worker for one owner. If no worker is left, the session ends too.
func (o *outlet) leave() { o.part(parcel{Kind: leave, Role: o.id}) }

// lose does the same for a worker that has disappeared.
func (o *outlet) lose(unseen []uint64) {
	o.part(parcel{Kind: leave, Role: o.id, Died: true, Unseen: unseen})
}

// part ends the work of a worker for one owner. p tells the owner.
func (o *outlet) part(p parcel) {
	d := o.deal
	d.mu.Lock()
	_, joined := d.outlets[o.id]
	delete(d.outlets, o.id)
	d.mu.Unlock()
	if !joined {
		return // another goroutine has done this
	}

	d.post(p)
	o.end()
	o.hands.loseOwner(o)
	d.host.endUnneeded(d)
}

// endUnneeded ends a session without workers, as soon as the owner knows that they have left.
func (h *HostSide) endUnneeded(d *deal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.deals[d.to] != d || d.hasWorkers() {
		return
	}
	ctx := h.ctx
	h.running.Go(func() {
		d.rest(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		// Workers may have joined in the meantime.
		if h.deals[d.to] == d && !d.hasWorkers() {
			delete(h.deals, d.to)
			d.end(errUnneeded)
		}
	})
}

func (d *deal) hasWorkers() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.outlets) > 0
}
