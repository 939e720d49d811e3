package disk

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some simulations the path to the store is narrow: a commit above a number of bytes times out
// or is refused, for a while or during the whole simulation. The rows of one address always pass,
// because no engine could work otherwise. Everything must still end, so the lane has to make
// smaller commits.

// tooLarge reports whether a batch fails because of its size.
func (d *Disk) tooLarge(b *store.Batch) bool {
	n, s := &d.s.Plan.Narrow, d.s
	if n.Most == 0 || s.Now < n.From || n.Until != 0 && s.Now >= n.Until || batchSize(b) <= n.Most {
		return false
	}
	return d.addresses(b) > 1
}

// timesOut decides whether a batch takes longer than its sender waits, because of its size.
func (d *Disk) timesOut(b *store.Batch) bool {
	if d.s.Plan.Narrow.Refuses || !d.tooLarge(b) {
		return false
	}
	d.s.Hurt(scenario.FaultLargeTimeout)
	return true
}

// batchSize estimates the size of a batch on the connection to the store, in bytes.
func batchSize(b *store.Batch) int {
	n := 32 * b.Rows()
	for i := range b.Starts {
		n += startSize(&b.Starts[i].Start)
	}
	for i := range b.Closes {
		n += b.Closes[i].Outcome.Output.Size()
	}
	for i := range b.Events {
		n += b.Events[i].Event.Size()
	}
	for i := range b.Mailbox {
		n += b.Mailbox[i].Item.Message.Size()
	}
	for i := range b.Entities {
		n += b.Entities[i].Entity.State.Size()
	}
	for i := range b.Messages {
		n += b.Messages[i].Message.Size()
	}
	for i := range b.Deferred {
		n += b.Deferred[i].Message.Size()
	}
	for i := range b.Requests {
		n += len(b.Requests[i].Body)
	}

	return n
}

func startSize(st *model.Start) int {
	n := 64 + st.Input.Size()
	for i := range st.Carried {
		n += st.Carried[i].Size()
	}
	return n
}

// addresses counts the addresses of the rows of a batch. It stops at two.
func (d *Disk) addresses(b *store.Batch) int {
	var first model.Address
	n := 0
	note := func(a model.Address) {
		if n == 0 {
			first, n = a, 1
		} else if a != first {
			n = 2
		}
	}

	of := func(id model.RunID) {
		if a := d.s.Ledger.AddressOf(b, id); a != nil {
			note(a.Name)
		}
	}

	for i := range b.Starts {
		note(b.Starts[i].Start.Address)
	}
	for i := range b.Closes {
		of(b.Closes[i].Run)
	}
	for i := range b.Marks {
		of(b.Marks[i].Run)
	}
	for i := range b.Events {
		of(b.Events[i].Run)
	}
	for i := range b.Timers {
		of(b.Timers[i].Run)
	}
	for i := range b.Taken {
		note(b.Taken[i].Address)
	}
	for i := range b.Mailbox {
		note(b.Mailbox[i].Address)
	}
	for i := range b.Entities {
		note(b.Entities[i].Entity.Address)
	}
	for i := range b.Deferred {
		note(b.Deferred[i].Message.To)
	}
	for i := range b.Requests {
		note(b.Requests[i].Address)
	}

	return n
}
