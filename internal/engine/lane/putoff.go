package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// putOff moves a message for a quarantined address out of the way of the messages behind it. The
// lane tries it again later.
func (l *Lane) putOff(now model.Time, e *entry, in input) {
	from, b := in.source(), l.open
	l.touch(b, e)
	row := store.InboxRow{Shard: e.shard.id, ID: from.inbox, Message: *from.message, NotBefore: now.Add(l.delays.next(now, &l.cfg))}
	if from.pair != nil {
		row.ID = l.cfg.NewRun()
		l.mail.consume(from.pair, b, from.seq)
	}
	b.batch.Deferred = append(b.batch.Deferred, row)
	b.inputs = append(b.inputs, in)
	b.bytes += rowBytes + from.message.Size()
}

// delays says how long messages are put off. The lane reads and writes each of these messages again
// and again until the quarantine is over. If there are many of them, each waits longer, so that the
// lane has time for other messages.
type delays struct {
	since         model.Time // when the period started
	count, before int        // messages put off in this period, and in the one before
}

// next returns how long the next message is put off.
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
