package disk

import (
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// Describe lists the rows of a batch for the trace of a simulation. It leaves out dead tasks, the
// data and log lines of tasks, token marks, and what Removes and EntityRemoves delete.
func Describe(b *store.Batch) string {
	var t strings.Builder
	for _, k := range b.Deletes {
		fmt.Fprintf(&t, " delete(%s)", scenario.Short(k.Run))
	}

	for i := range b.Starts {
		r := &b.Starts[i]
		fmt.Fprintf(&t, " start(%s %s ifabsent=%v)", r.Start.Address.Key, scenario.Short(r.Start.Run), r.IfAbsent)
	}

	for i := range b.Closes {
		fmt.Fprintf(&t, " close(%s %s)", scenario.Short(b.Closes[i].Run), b.Closes[i].Outcome.Status)
	}
	for i := range b.Marks {
		fmt.Fprintf(&t, " mark(%s parked=%v blocked=%v)", scenario.Short(b.Marks[i].Run), b.Marks[i].Parked, b.Marks[i].Blocked != nil)
	}
	for i := range b.Labels {
		fmt.Fprintf(&t, " label(%s %s=%s)", scenario.Short(b.Labels[i].Run), b.Labels[i].Label.Name, b.Labels[i].Label.Value)
	}

	for i := range b.Events {
		e := &b.Events[i]
		fmt.Fprintf(&t, " %s/%d:%s", scenario.Short(e.Run), e.Event.Seq, e.Event.Kind)
		if e.Event.ID != "" {
			fmt.Fprintf(&t, "(%s)", e.Event.ID)
		}
		if e.Event.Kind == model.EventSignalReceived {
			fmt.Fprintf(&t, "(%x)", scenario.SignalID(e.Event.Input))
		}
	}

	for i := range b.StopTimers {
		fmt.Fprintf(&t, " stop(%s %q)", scenario.Short(b.StopTimers[i].Run), b.StopTimers[i].ID)
	}
	for i := range b.Timers {
		fmt.Fprintf(&t, " timer(%s %q due %.6f)", scenario.Short(b.Timers[i].Run), b.Timers[i].ID, float64(b.Timers[i].Due-kernel.Epoch)/1e6)
	}
	for _, k := range b.StopAll {
		fmt.Fprintf(&t, " stopall(%s)", scenario.Short(k.Run))
	}
	for i := range b.Taken {
		fmt.Fprintf(&t, " taken(%s #%d)", b.Taken[i].Address.Key, b.Taken[i].Seq)
	}
	for i := range b.Mailbox {
		fmt.Fprintf(&t, " mailbox(%s #%d %s)", b.Mailbox[i].Address.Key, b.Mailbox[i].Item.Seq, b.Mailbox[i].Item.Message.Kind)
	}

	for i := range b.Entities {
		n := &b.Entities[i]
		fmt.Fprintf(&t, " entity(%s %d..%d gone=%v locked=%v)", n.Entity.Address.Key, n.Prev, n.Entity.Version, n.Gone, n.Entity.Locked())
	}

	for i := range b.Messages {
		m := &b.Messages[i]
		fmt.Fprintf(&t, " msg(%d>%d #%d %s %s)", m.From, m.To, m.Seq, m.Message.Kind, m.Message.To.Key)
	}

	for i := range b.Passed {
		m := b.Passed[i].Message
		fmt.Fprintf(&t, " passed(%d %s %s)", b.Passed[i].From, m.Kind, m.To.Key)
	}

	for _, c := range b.Cursors {
		fmt.Fprintf(&t, " cursor(%d>%d %d..%d)", c.From, c.To, c.Prev, c.Next)
	}
	for _, k := range b.Inbox {
		fmt.Fprintf(&t, " inbox(%s)", scenario.Short(k.ID))
	}
	for i := range b.Deferred {
		fmt.Fprintf(&t, " defer(%s %s %s)", scenario.Short(b.Deferred[i].ID), b.Deferred[i].Message.Kind, b.Deferred[i].Message.To.Key)
	}
	for i := range b.Requests {
		fmt.Fprintf(&t, " request(%s %s)", b.Requests[i].Address.Key, b.Requests[i].ID)
	}
	for i := range b.Forgets {
		fmt.Fprintf(&t, " forget(%s %s)", b.Forgets[i].Address.Key, b.Forgets[i].ID)
	}
	if len(b.Free) > 0 {
		fmt.Fprintf(&t, " free%v", b.Free)
	}

	return t.String()
}
