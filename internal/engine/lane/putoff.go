package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// putOff moves a message for a quarantined address out of the way, to be tried again later.
func (l *Lane) putOff(now model.Time, e *entry, in *input) {
	b := l.open
	l.touch(b, e)
	row := store.InboxRow{Shard: e.shard.id, ID: in.inbox, Message: *in.message, NotBefore: now.Add(l.delays.next(now, &l.cfg))}
	if in.pair != nil {
		row.ID = l.cfg.NewRun()
		in.pair.consume(l, in)
	}
	b.batch.Deferred = append(b.batch.Deferred, row)
	b.inputs = append(b.inputs, in)
	b.bytes += rowBytes + in.message.Size()
}

// delays says for how long messages are put off. A lane reads and writes each of them again and
// again until the quarantine is over. When there are many, each waits for longer, so that the lane
// has time for the messages behind them.
type delays struct {
	since         model.Time // when the period began
	count, before int        // messages that were put off in it, and in the one before
}

// next is how long the next message is put off.
func (d *delays) next(now model.Time, c *Config) time.Duration {
	if passed := now.Sub(d.since); passed < 0 || passed >= c.QuarantineFor {
		d.before = d.count
		if passed < 0 || passed >= 2*c.QuarantineFor {
			d.before = 0
		}
		d.since, d.count = now, 0
	}
	d.count++

	return c.QuarantineFor * time.Duration(1+max(d.count, d.before)/c.MaxPutOff)
}
