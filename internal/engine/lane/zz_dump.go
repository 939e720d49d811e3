package lane

import "fmt"

// Dump describes the lane for debugging.
func (l *Lane) Dump() string {
	s := fmt.Sprintf("dead=%v number=%d flight=%v open{rows=%d inputs=%d} recovery{stage=%d at=%d chunks=%d} backlog=%d bytes=%d loads{fly=%d wait=%d delayed=%d} mail{reading=%v again=%v more=%v inbox=%d hungry=%d} timers{heap=%d due=%d asked=%d horizon=%v fresh=%v stale=%v}\n",
		l.dead, l.number, l.flight != nil, l.open.rows(), len(l.open.inputs), l.recovery.stage, l.recovery.at, len(l.recovery.chunks), l.backlog.len(), l.bytes,
		len(l.loads.flying), len(l.loads.waiting), len(l.loads.delayed), l.mail.reading, l.mail.again, l.mail.more, len(l.mail.inbox), len(l.mail.hungry),
		len(l.timers.heap), l.timers.due.n, l.timers.asked, l.timers.horizon.Due, l.timers.fresh, l.timers.stale)
	for _, ld := range l.loads.flying {
		s += fmt.Sprintf("   flying %+v\n", *ld)
	}
	for i, c := range l.recovery.chunks {
		for _, in := range c {
			s += fmt.Sprintf("   chunk %d kind %d %s\n", i, in.kind, in.address)
		}
	}
	for _, e := range l.sorted(func(*entry) bool { return true }) {
		s += fmt.Sprintf("   entry %s shard=%d known=%v x=%v starting=%v fresh=%v loading=%v open=%v flight=%v backlog=%d queued=%v worker=%d busy=%v activating=%v read=%v evicting=%v unserved=%v poison=%v served=%d\n",
			e.address.Key, e.shard.id, e.known, e.x != nil, e.starting, e.fresh, e.loading, e.inOpen, e.inFlight, len(e.backlog), e.queued, e.worker, e.busy, e.activating, e.read != nil, e.evicting, e.unserved, e.poison != nil, e.served)
	}
	for id, sh := range l.shards {
		s += fmt.Sprintf("   shard %d draining=%v freeing=%v\n", id, sh.draining, sh.freeing)
	}
	return s
}
