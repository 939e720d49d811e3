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

// Lender runs the loan.Creditor of a node: its lock, its rounds, and a goroutine for each poll.
type Lender struct {
	host   loan.Host
	line   peer.Line
	kick   chan struct{} // capacity 1: there is something to do
	wanted atomic.Bool   // an owner has tasks for free slots
	calls  sync.WaitGroup

	mu       sync.Mutex
	creditor *loan.Creditor
}

// NewLender returns the lender of a node. The caller must connect it before it runs.
func NewLender(self model.NodeID, host loan.Host) *Lender {
	d := &Lender{host: host, kick: make(chan struct{}, 1)}
	d.creditor = loan.NewCreditor(loan.CreditorConfig{Self: self, Host: host, Pace: loan.Standard, Wake: d.Wake})
	return d
}

// Connect sets the line to other nodes.
func (d *Lender) Connect(line peer.Line) { d.line = line }

// Wanted reports whether an owner has tasks for free slots.
func (d *Lender) Wanted() bool { return d.wanted.Load() }

// Wake makes the lender start a round soon, because slots may be free, or a worker may have
// something to report.
func (d *Lender) Wake() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// with calls do with the lock held, and updates Wanted for the board.
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

// close waits for the polls in flight. After that all slots belong to the workers again.
func (d *Lender) close() {
	d.calls.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.creditor.Close() {
		x.Own.Regain(x.Count)
	}
}

// SetMembers tells the lender which nodes are members now, and which nodes own which shards.
func (d *Lender) SetMembers(v *store.View) {
	var home []loan.Lent
	d.with(func(c *loan.Creditor) { home = c.SetMembers(v) })
	loan.Regain(home)
}

// HandleKnock handles a knock of an owner.
func (d *Lender) HandleKnock(from model.NodeID, k *peer.Knock) {
	d.with(func(c *loan.Creditor) { c.HandleKnock(from, k) })
}

// Over handles the end of a claim: the lender soon informs the node that has made the claim, if
// that node no longer owns the run.
func (d *Lender) Over(ref model.ClaimRef, maker model.NodeID) {
	d.with(func(c *loan.Creditor) { c.Over(ref, maker) })
}

// round starts the polls that are due. It returns how long to wait until time alone makes another
// poll due; 0 means never.
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
func (d *Lender) poll(ctx context.Context, p *loan.OpenPoll) {
	brief, cancel := context.WithTimeout(ctx, loan.Standard.CallTimeout)
	raw, err := d.line.Call(brief, p.Node, peer.Encode(&p.Poll))
	cancel()
	var a *peer.PollReply
	if err == nil {
		a, err = peer.Decode[peer.PollReply](raw)
	}

	if err != nil {
		loan.Regain(p.LentSlots())
		d.with(func(c *loan.Creditor) { c.FailPoll(time.Now(), p) })
		return
	}

	var fresh []peer.Entry
	d.with(func(c *loan.Creditor) { fresh = c.HandleReply(time.Now(), p, a) })
	loan.Regain(p.Home(a, loan.CarryOut(d.host, p.Node, fresh)))
	d.with(func(c *loan.Creditor) { c.FinishPoll(time.Now(), p, a) })
}
