package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// letterRead is what the store says of a dead letter.
type letterRead struct {
	letter *core.Letter // nil when there is none
	err    error        // why it cannot be understood
}

// aboutLetter reports whether the input is about a dead letter. Nothing else changes one, and such inputs are applied one by one, each when the one before it is
// committed: then what is read is how the letter stands.
func (in *input) aboutLetter() bool {
	return in.kind == inMessage && in.message.Kind == model.MessageRequeue
}

// readsLetter reports whether the letter is needed to decide. The run that an undo ends may be elsewhere.
func (in *input) readsLetter() bool {
	return in.aboutLetter() && (in.message.Letter.Do != model.LetterUndo || in.message.To == in.message.Letter.Ref.Address)
}

func (l *Lane) loadLetter(e *entry, in *input) {
	ref := in.message.Letter.Ref
	e.loading = true
	l.loads.add(&Load{Kind: LoadLetter, Shard: e.shard.id, Address: e.address, Run: ref.Run, Task: ref.ID, entry: e, input: in})
}

// loadedLetter lets the input pass for which a letter was read, unless it is not the next one any more.
func (l *Lane) loadedLetter(ld *Load, r LoadResult) {
	e := ld.entry
	e.loading = false
	l.loadDue(e)
	switch {
	case len(e.backlog) == 0:
		l.maybeDrop(e)
		return
	case e.backlog[0] == ld.input:
		read := &letterRead{err: r.Err}
		if row := r.Letter; row != nil && r.Err == nil {
			read.letter = &core.Letter{Count: row.Requeued, Body: row.Body}
		}
		ld.input.letter = read
	}
	l.schedule(e) // also what has taken its place: it waited for the read
}

// decide says what becomes of a message.
func (l *Lane) decide(now model.Time, e *entry, in *input) (*core.Execution, core.Decision) {
	m := in.message
	if in.fate != nil && in.fate.Reported {
		return e.x, core.Decision{Answer: model.Answer{Run: m.ToRun, Status: in.fate.Status}} // once more
	}
	if !in.aboutLetter() {
		if d, busy := e.goesOn(m); busy {
			return e.x, d
		}
		return core.Deliver(e.x, m, now, l.freshFor(m), l.cfg.Limits)
	}
	var letter *core.Letter
	if in.letter != nil {
		if err := in.letter.err; err != nil {
			return e.x, core.Decision{Answer: model.Answer{Failure: &model.Failure{Kind: fault.KindOf(err).String(), Message: err.Error()}}}
		}
		letter = in.letter.letter
	}
	return core.DeliverLetter(e.x, m, letter, now, l.freshFor(m))
}

// changeLetter writes what a decision does to a dead letter.
func (b *building) changeLetter(shard model.ShardID, c *core.LetterChange) {
	key := store.DeadKey{RunKey: store.RunKey{Shard: shard, Run: c.Ref.Run}, Task: c.Ref.ID}
	if c.Purged {
		b.batch.DeadDeletes = append(b.batch.DeadDeletes, key)
		return
	}
	b.batch.DeadMarks = append(b.batch.DeadMarks, store.DeadMark{DeadKey: key, Prev: c.Prev, Next: c.Next, Body: c.Body})
}
