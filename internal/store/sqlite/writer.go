package sqlite

import "github.com/ncruces/go-sqlite3"

// Statements of the hot path. Each statement finds its row by a key. TestHotStatementsSearch checks
// that with the query plans of SQLite.
const (
	sqlFence = `update perdure_fences set batch = ?4 where node = ?1 and lane = ?2 and epoch = ?3 and batch = ?4 - 1`

	sqlStart = `insert into perdure_executions (run, shard, state, current, started, closed, tenant, workflow, key, start)
		values (?1, ?2, 0, 1, ?3, 0, ?4, ?5, ?6, ?7)`
	sqlStartIfAbsent = sqlStart + ` on conflict (tenant, workflow, key) where current = 1 do nothing`
	sqlLargeStart    = `insert into perdure_starts (run, shard, body) values (?1, ?2, ?3)`
	sqlReplace       = `update perdure_executions set current = 0
		where run = ?1 and shard = ?2 and current = 1 and tenant = ?3 and workflow = ?4 and key = ?5 returning state`
	sqlClose = `update perdure_executions set state = ?3, closed = ?4, outcome = ?5, waits = null, blocked = null, reason = null
		where run = ?1 and shard = ?2 and state < 2`
	sqlMark = `update perdure_executions set state = ?3, waits = ?4, blocked = ?5, reason = ?6 where run = ?1 and shard = ?2 and state < 2`

	// The tenant and the start time are also stored with the label, so a listing by label finds its
	// rows in order without another table.
	sqlLabel = `insert into perdure_labels (run, shard, name, value, tenant, started)
		select run, shard, ?3, ?4, tenant, started from perdure_executions where run = ?1 and shard = ?2
		on conflict (run, shard, name) do update set value = excluded.value`
	sqlUnlabel = `delete from perdure_labels where run = ?1 and shard = ?2 and name = ?3`

	// The primary key (run, shard, seq) refuses a position that is already taken.
	sqlEvent = `insert into perdure_history (run, shard, seq, at, kind, body) values (?1, ?2, ?3, ?4, ?5, ?6)`

	sqlBody = `insert into perdure_bodies (run, shard, seq, body) values (?1, ?2, ?3, ?4)`

	// The first statement is guarded: it must find its timer. The last statement deletes all timers
	// that a closed run still has.
	sqlStopTimer = `delete from perdure_timers where run = ?1 and shard = ?2 and id = ?3`
	sqlTimer     = `insert into perdure_timers (run, shard, id, due, tenant, workflow, key) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)`
	sqlStopAll   = `delete from perdure_timers where run = ?1 and shard = ?2`

	// A position up to the cursor is taken, even if a sweep has deleted its row.
	sqlMessage = `insert into perdure_messages (to_shard, from_shard, seq, body) select ?1, ?2, ?3, ?4
		where not exists (select 1 from perdure_cursors where to_shard = ?1 and from_shard = ?2 and seq >= ?3)`
	sqlFirstCursor = `insert into perdure_cursors (to_shard, from_shard, seq) values (?1, ?2, ?3)`
	sqlCursor      = `update perdure_cursors set seq = ?3 where to_shard = ?1 and from_shard = ?2 and seq = ?4`

	sqlConsume = `delete from perdure_inbox where shard = ?1 and id = ?2`
	sqlDefer   = `insert into perdure_inbox (shard, id, not_before, body) values (?1, ?2, ?3, ?4)
		on conflict (shard, id) do update set not_before = excluded.not_before`
	// The refusal of an inbox row may already be stored: see store.Batch.Requests.
	sqlRequest = `insert into perdure_requests (shard, tenant, workflow, key, id, at, body) select ?1, ?2, ?3, ?4, ?5, ?6, ?7
		where substr(?5, 1, 9) <> char(31) || 'refused ' or not exists (
			select 1 from perdure_requests where shard = ?1 and tenant = ?2 and workflow = ?3 and key = ?4 and id = ?5)`

	// The function max keeps a stored mark that is higher. Only the owner can free a shard.
	sqlToken = `update perdure_shards set tokens = max(tokens, ?2) where shard = ?1`
	sqlFree  = `update perdure_shards set node = null, epoch = 0 where shard = ?1 and node = ?2`
)

// States of a run in the column state. The numbers from stateClosed on are the numbers of the
// closed statuses.
const (
	stateRunnable = 0
	stateParked   = 1
	stateClosed   = 2 // the first closed status
)

// inlineStart is the largest body of a start that is stored in the row of its run.
const inlineStart = 512

// elsewhere is the value in perdure_history if the body is in perdure_bodies. A real body is
// longer, because it has a checksum.
var elsewhere = []byte{0}

// inlineBody returns the largest body of an event that is stored in perdure_history, so that the
// row needs no overflow page. SQLite allows a row of that table about a quarter of a page. The
// other columns need up to 48 bytes.
func inlineBody(pageSize int) int { return (pageSize-12)*64/255 - 23 - 48 }

// writer is the writing connection with the prepared statements of the hot path.
type writer struct {
	*conn
	begin, commit, rollback                                *stmt
	fence                                                  *stmt
	start, startIfAbsent, largeStart, replace, close, mark *stmt
	event, body, label, unlabel                            *stmt
	stopTimer, timer, stopAll                              *stmt
	message, firstCursor, cursor                           *stmt
	consume, defers, request, forget, token, free          *stmt
	dead, deadMark, deadDelete                             *stmt
	taskDatum, dropDatum, logLine                          *stmt
	take, mailbox, entity, entityChange, entityRemove      *stmt

	walPages int // pages in the log after the last commit, as SQLite reports them
	pageSize int
	log      logState
	names    nameCheck
}

// newWriter prepares the statements of the hot path once. logSize limits the log: when the log is
// larger, the background connection moves it into the file.
func newWriter(c *conn, logSize int64) (*writer, error) {
	w := &writer{conn: c}
	for text, into := range map[string]**stmt{
		"begin immediate": &w.begin, "commit": &w.commit, "rollback": &w.rollback, sqlFence: &w.fence,
		sqlStart: &w.start, sqlStartIfAbsent: &w.startIfAbsent, sqlLargeStart: &w.largeStart, sqlReplace: &w.replace,
		sqlClose: &w.close, sqlMark: &w.mark, sqlEvent: &w.event, sqlBody: &w.body, sqlLabel: &w.label, sqlUnlabel: &w.unlabel,
		sqlStopTimer: &w.stopTimer, sqlTimer: &w.timer, sqlStopAll: &w.stopAll,
		sqlMessage: &w.message, sqlFirstCursor: &w.firstCursor, sqlCursor: &w.cursor,
		sqlConsume: &w.consume, sqlDefer: &w.defers, sqlRequest: &w.request, sqlSweepRequest: &w.forget, sqlToken: &w.token, sqlFree: &w.free,
		sqlDead: &w.dead, sqlDeadMark: &w.deadMark, sqlDeadDelete: &w.deadDelete,
		sqlTaskDatum: &w.taskDatum, sqlDropDatum: &w.dropDatum, sqlLog: &w.logLine,
		sqlTake: &w.take, sqlMailbox: &w.mailbox, sqlEntity: &w.entity, sqlEntityChange: &w.entityChange, sqlEntityRemove: &w.entityRemove,
	} {
		q, err := c.prepare(text)
		if err != nil {
			return nil, err
		}
		*into = q
	}

	// SQLite counts the log in pages, and the file may have another page size than this build
	// creates.
	size, _, err := c.number("pragma page_size")
	if err != nil {
		return nil, err
	}
	w.pageSize = int(size)
	w.log.limit = int(logSize / size)
	w.log.next = w.log.limit
	c.db.WALHook(w.noteLog)

	return w, nil
}

// noteLog records the size of the log. SQLite calls it after each commit.
func (w *writer) noteLog(_ *sqlite3.Conn, _ string, pages int) error {
	w.walPages = pages
	return nil
}
