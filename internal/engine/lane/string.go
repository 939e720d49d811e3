package lane

import (
	"fmt"
	"strings"
)

// String describes the lane for an operator who wants to know why it does not move.
func (l *Lane) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "batch %d", l.number)
	if l.dead != nil {
		fmt.Fprintf(&b, ", dead: %v", l.dead)
	}
	if l.flight != nil {
		fmt.Fprintf(&b, ", %d in flight with %d rows", l.flight.batch.Number, l.flight.rows())
	}
	fmt.Fprintf(&b, ", open with %d rows of %d inputs, stage %d, %d chunks kept, %d bytes, full %v",
		l.open.rows(), len(l.open.inputs), l.recovery.stage, len(l.recovery.chunks), l.budget.used, l.Full())
	fmt.Fprintf(&b, "\n  reads: %d in flight, %d waiting, %d to be repeated; mail: reading %v, %d requests taken",
		len(l.loads.flying), len(l.loads.waiting), len(l.loads.delayed), l.mail.reading, len(l.mail.inbox))
	fmt.Fprintf(&b, "\n  timers: %d, and %d due, known up to %s, asked up to %s", len(l.timers.heap), l.timers.due, l.timers.horizon.Due, l.timers.asked)
	fmt.Fprintf(&b, "\n  addresses with waiting callers: %d, with watchers: %d; queries: %d", len(l.waiters.at), len(l.watchers.at), len(l.questions.open))

	for _, id := range l.Shards() {
		fmt.Fprintf(&b, "\n  shard %d: draining %v", id, l.shards[id].draining)
	}

	for _, e := range l.sortedEntries(func(*entry) bool { return true }) {
		fmt.Fprintf(&b, "\n  %s: run %s, worker %d, %d inputs wait", e.address, e.run(), e.hold.worker, len(e.backlog.inputs))
		for _, flag := range [...]struct {
			name string
			set  bool
		}{
			{"unknown", !e.known},
			{"loading", e.reading.active},
			{"activating", e.reading.history},
			{"starting", e.pending.starting},
			{"removing", e.pending.removing},
			{"queued", e.backlog.queued},
			{"busy", e.hold.busy},
			{"evicting", e.eviction.pending},
			{"unserved", e.wait.worker},
			{"open", e.pending.open},
			{"in flight", e.pending.flight},
			{"quarantined", e.quarantine.why != nil},
		} {
			if flag.set {
				b.WriteString(", " + flag.name)
			}
		}
	}
	return b.String()
}
