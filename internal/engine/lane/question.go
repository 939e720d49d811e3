package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// maxForeign bounds the unanswered queries of other processes. Their rows stay in the inbox until
// the code has answered. They must not fill a page of the inbox, because the lane would not read
// the rows behind them. For the same reason a page may be larger by the bytes of these queries.
const maxForeign = mailPage / 2

// questions are the queries that the code of runs has not answered.
type questions struct {
	open    map[uint64]*query
	last    uint64 // id of the last query
	foreign foreignQueries
}

// foreignQueries counts queries of other processes.
type foreignQueries struct{ count, bytes int }

// full reports whether there is no room for another query. If no other query waits, a query always
// finds room, however large it is.
func (f *foreignQueries) full(m *model.Message, maxBytes int) bool {
	return f.count >= maxForeign || f.count > 0 && f.bytes+m.Size() > maxBytes
}

// query is a question to the code of a run. It changes nothing and is not stored: a caller that
// gets no answer repeats it.
type query struct {
	id      uint64
	entry   *entry
	message *model.Message
	token   any         // of a caller of this process
	inbox   model.RunID // the row of another process, which stays until the answer is stored
	bytes   int         // bytes that foreign includes for the query

	recaller WorkerID    // replays the history of a run that has ended; 0 for a run that is open
	recalls  model.RunID // that run
}

// add takes a query about an entry.
func (qs *questions) add(e *entry, from *source) *query {
	qs.last++
	q := &query{id: qs.last, entry: e, message: from.message, token: from.token, inbox: from.inbox}
	qs.open[q.id] = q
	if !q.inbox.IsZero() {
		q.bytes = q.message.Size()
		qs.foreign.count++
		qs.foreign.bytes += q.bytes
	}
	e.queries = append(e.queries, q)
	return q
}

// remove forgets a query.
func (qs *questions) remove(q *query) {
	delete(qs.open, q.id)
	if !q.inbox.IsZero() {
		qs.foreign.count--
		qs.foreign.bytes -= q.bytes
	}
	q.entry.queries = slices.DeleteFunc(q.entry.queries, func(o *query) bool { return o == q })
}

// isAnsweredBy reports whether an answer comes from the worker that got the query, and is about the
// same run.
func (q *query) isAnsweredBy(w WorkerID, run model.RunID, gen uint64) bool {
	if q.recaller != 0 {
		return q.recaller == w && q.recalls == run
	}
	return q.entry.hold.by(w, gen) && q.entry.hold.run == run
}

// hasRecall reports whether a caller waits until the history of a run that has ended is replayed.
func (e *entry) hasRecall() bool {
	return slices.ContainsFunc(e.queries, func(q *query) bool { return q.recaller != 0 })
}
