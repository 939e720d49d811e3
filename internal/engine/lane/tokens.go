package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// tokens are the fencing tokens of the entities of a shard. They are taken from the clock, in µs. A row of an entity that
// is gone does not tell its last token, and the clock of the next owner may be behind: so the shard has a stored mark that is
// raised by the commit that gives out a token above it, well ahead, and the next owner begins above the mark.
type tokens struct {
	last     int64 // the highest one that was given out, or the mark that was found
	reserved int64 // the mark, as it is stored
}

const (
	// reserveAhead is how far ahead of the clock tokens are reserved: while locks are granted, one row is written per shard and minute.
	reserveAhead = time.Minute
	// reserveMore is how many are reserved where tokens are ahead of the clock and are counted by one.
	reserveMore = 1 << 16
)

// reserve raises the mark of a shard if the entity, as a decision leaves it, has a token above it.
func (b *building) reserve(sh *shard, row *model.Entity) {
	t, token := &sh.tokens, row.Epoch
	t.last = max(t.last, token)
	if token <= t.reserved {
		return
	}
	mark := store.TokenMark{Shard: sh.id, Mark: max(int64(row.Held.Add(reserveAhead)), token+reserveMore)}
	for i := range b.batch.Tokens {
		if row := &b.batch.Tokens[i]; row.Shard == sh.id {
			row.Mark = max(row.Mark, mark.Mark)
			return
		}
	}
	b.batch.Tokens = append(b.batch.Tokens, mark)
}

// reserved notes the marks of a batch that has landed.
func (l *Lane) reserved(rows []store.TokenMark) {
	for _, row := range rows {
		if sh := l.shards[row.Shard]; sh != nil {
			sh.tokens.reserved = max(sh.tokens.reserved, row.Mark)
		}
	}
}
