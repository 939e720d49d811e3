package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// maxForeign is how many queries of other processes may be unanswered. Their rows stay in the inbox until they are, and must not fill a page
// of it: what is behind them would not be read. For the same reason a page may have as many bytes more as they have.
const maxForeign = mailPage / 2

// foreign are queries of other processes that are not answered.
type foreign struct{ count, bytes int }

// full reports whether there is no room for another query. One always finds room, however large it is.
func (f *foreign) full(m *model.Message, maxBytes int) bool {
	return f.count >= maxForeign || f.count > 0 && f.bytes+m.Size() > maxBytes
}

// query is a question to the code of a run. It changes nothing and is written nowhere: whoever asks repeats it when it comes to nothing.
type query struct {
	id      uint64
	entry   *entry
	message *model.Message
	token   any         // of a caller of this process
	inbox   model.RunID // the row of another one, which stays until the answer is stored
	bytes   int         // that count for it in Lane.foreign

	recaller WorkerID    // replays the history of a run that has ended; 0 for a run that is open
	recalls  model.RunID // that run
}

// askedOf reports whether an answer comes from the worker that was asked, about the run that it was asked about.
func (q *query) askedOf(w WorkerID, run model.RunID, gen uint64) bool {
	if q.recaller != 0 {
		return q.recaller == w && q.recalls == run
	}
	return q.entry.hold.worker == w && q.entry.hold.gen == gen && q.entry.hold.run == run
}

// recalled reports whether somebody waits until the history of a run that has ended is replayed.
func (e *entry) recalled() bool {
	return slices.ContainsFunc(e.queries, func(q *query) bool { return q.recaller != 0 })
}
