package lending

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Lender runs the loan.Creditor of a node: it has its lock, its rounds, and a goroutine for each
// poll.
type Lender struct {
	host   loan.Host
	line   peer.Line
	kick   chan struct{} // capacity 1: there is something to do
	wanted atomic.Bool   // some owner has something for free slots
	calls  sync.WaitGroup

	mu       sync.Mutex
	creditor *loan.Creditor
}

// NewLender makes the lender of a node. It has to be connected before it runs.
func NewLender(self model.NodeID, host loan.Host) *Lender {
	d := &Lender{host: host, kick: make(chan struct{}, 1)}
	d.creditor = loan.NewCreditor(loan.CreditorConfig{Self: self, Host: host, Pace: loan.Standard, Nudge: d.Nudge})
	return d
}

// Connect has it talk to other nodes on a line.
func (d *Lender) Connect(line peer.Line) { d.line = line }

// Wanted reports whether some owner has something for free slots.
func (d *Lender) Wanted() bool { return d.wanted.Load() }

// Nudge has it look around: slots may be free, or a worker may have something to report.
func (d *Lender) Nudge() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// with calls do with the lock held, and tells the board whether free slots are of interest.
func (d *Lender) with(do func(c *loan.Creditor)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do(d.creditor)
	d.wanted.Store(d.creditor.Wanted())
}

// Run polls until ctx ends.
func (d *Lender) Run(ctx context.Context) {
	defer d.close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()

	for {
		if wait := d.round(ctx); wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-d.kick:
		case <-timer.C:
		}
	}
}

// close waits for the polls that are under way. All slots are the workers' own again.
func (d *Lender) close() {
	d.calls.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.creditor.Close() {
		x.Own.Regain(x.Count)
	}
}

// Seen takes in who is there and who owns what.
func (d *Lender) Seen(v *store.View) {
	var home []loan.Lent
	d.with(func(c *loan.Creditor) { home = c.Seen(v) })
	loan.Regain(home)
}

// Knocked takes a word of an owner.
func (d *Lender) Knocked(from model.NodeID, k *peer.Knock) {
	d.with(func(c *loan.Creditor) { c.Knocked(from, k) })
}

// Over tells the node that has made a claim soon that it has ended, if that does not own the run
// any more.
func (d *Lender) Over(ref model.ClaimRef, maker model.NodeID) {
	d.with(func(c *loan.Creditor) { c.Over(ref, maker) })
}

// round begins the polls that are due. It returns how long nothing is due by itself; 0 for ever.
func (d *Lender) round(ctx context.Context) time.Duration {
	d.mu.Lock()
	polls, wait := d.creditor.Round(time.Now())
	d.mu.Unlock()
	for _, p := range polls {
		d.calls.Go(func() { d.poll(ctx, p) })
	}
	return wait
}

// poll asks an owner once.
func (d *Lender) poll(ctx context.Context, p *loan.Poll) {
	brief, cancel := context.WithTimeout(ctx, loan.Standard.CallTimeout)
	raw, err := d.line.Call(brief, p.Node, peer.Encode(&p.Letter))
	cancel()
	var a *peer.Answer
	if err == nil {
		a, err = peer.Decode[peer.Answer](raw)
	}

	if err != nil {
		loan.Regain(p.Lent())
		d.with(func(c *loan.Creditor) { c.Failed(time.Now(), p) })
		return
	}

	var fresh []peer.Entry
	d.with(func(c *loan.Creditor) { fresh = c.Heard(time.Now(), p, a) })
	home, kept := p.Home(a, loan.CarryOut(d.host, p.Node, fresh))
	loan.Regain(home)
	d.with(func(c *loan.Creditor) { c.Done(time.Now(), p, a, len(fresh), kept) })
}
