package lane

// budget counts the bytes that the lane holds in memory.
type budget struct {
	used  int // bytes of inputs that wait or are not committed
	kept  int // bytes of reports for quarantined runs, which used does not include
	calls int // bytes of calls of all entities that wait only in memory
	batch int // bytes allowed per batch: less than configured while the store is slow
}

// hold counts an input. If the input has changed, a second call replaces the count of the first.
func (g *budget) hold(in input) {
	g.unhold(in)
	b := in.base()
	b.held = in.size()
	g.used += b.held
}

// unhold takes an input out of the budget.
func (g *budget) unhold(in input) {
	b := in.base()
	if b.kept {
		g.kept -= b.held
	} else {
		g.used -= b.held
	}
	b.held, b.kept = 0, false
}

// keep moves an input from the budget of the lane to the budget for kept reports.
func (g *budget) keep(b *inputBase) {
	g.used -= b.held
	g.kept += b.held
	b.kept = true
}

// weighMail counts the calls of an entity that exist only in memory. Calls in the store are not
// counted here: the mailbox of each entity has its own bound.
func (g *budget) weighMail(e *entry) {
	n, a := 0, e.actor
	if a.entity != nil {
		n = a.entity.Loose()
	}
	for _, it := range a.kept {
		n += it.Message.Size()
	}
	if e.gone {
		n = 0
	}
	g.calls += n - a.counted
	a.counted = n
}

// narrow makes the next batches smaller, after the store did not take a batch of this many bytes in
// time.
func (g *budget) narrow(bytes int) {
	g.batch = min(g.batch, max(fewestBytes, bytes/2))
}

// widen lets batches grow again, up to the limit. The lane calls it after the store has taken a
// batch of about the allowed size in the usual time.
func (g *budget) widen(b *building, limit int) {
	if g.batch < limit && b.bytes >= g.batch/2 && b.batch.Patience == 0 {
		g.batch = min(2*g.batch, limit)
	}
}
