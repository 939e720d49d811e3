package lane

import "github.com/perdure/perdure/internal/model"

// A lone input is an input that gets a batch of its own. If it shared a batch with other inputs,
// the store might refuse them together again and again, because the halves of that batch do not
// show which input the store refuses (see handleRefusal). There are two kinds of lone inputs:
//
//   - Proposals of the board about certain tasks. When the lane drops a batch, it reports the tasks
//     of the batch to the board again, which makes the old proposals void. They have no effect when
//     the lane applies them again, and the board makes new ones. So from then on each proposal
//     about one of these tasks is alone, until the store has taken one (see keepApart).
//   - Messages for which the lane has to read something again. The lane applies such a message
//     after all halves (see applyChunk).
//
// While a lone input is in the open batch, all other inputs wait in the backlogs of their
// addresses. A busy lane always has inputs for the next batch, so lone inputs and other inputs take
// turns: after each batch with one of them, the next batch is for the other ones, if any wait.

// lone says whether the next batch is for a lone input.
type lone struct {
	waits  bool // a lone input waits in the backlog of its address
	others bool // the last batch had a lone input, so the next one is for other inputs
}

// isKept reports whether the lane keeps the batch for a lone input, which is the first one.
func (b *building) isKept() bool { return len(b.inputs) > 0 && b.inputs[0].base().lone }

// isKeptFrom reports whether an input has to wait for another batch, because this input or the one
// in the open batch is a lone input.
func (l *Lane) isKeptFrom(in input) bool {
	if !in.base().lone {
		return l.open.isKept()
	}
	if l.lone.others || len(l.open.inputs) > 0 || !l.open.empty() {
		l.lone.waits = true
		return true
	}
	return false
}

// serveLone applies the next lone input, if the open batch has no input.
func (l *Lane) serveLone(now model.Time) {
	if !l.lone.waits || len(l.open.inputs) > 0 || l.recovery.careful() {
		return
	}
	l.lone = lone{}
	for _, e := range l.backlog.items {
		for len(e.backlog.inputs) > 0 && e.backlog.inputs[0].base().lone && l.serveFirst(now, e) {
		}
		if len(l.open.inputs) > 0 {
			return
		}
	}
}

// keepApart makes the next proposals about the tasks of a batch lone inputs, if the batch has
// proposals about these tasks.
func (l *Lane) keepApart(inputs []input) {
	for _, in := range inputs {
		if !in.proposal() {
			continue
		}
		if e := l.entries[*in.base().address]; e != nil {
			if e.tasks.apart == nil {
				e.tasks.apart = map[string]model.RunID{}
			}
			e.tasks.apart[in.task()] = in.base().run
		}
	}
}

// joinAgain handles a batch that the store has taken. If it has a proposal that was a lone input,
// the next proposals about the same task share their batches with other inputs again.
func (l *Lane) joinAgain(b *building) {
	if !b.isKept() || !b.inputs[0].proposal() {
		return
	}
	in := b.inputs[0]
	if e := l.entries[*in.base().address]; e != nil {
		delete(e.tasks.apart, in.task())
	}
}
