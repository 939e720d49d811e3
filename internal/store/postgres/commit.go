package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Commit applies a batch in one round trip; see the package comment. It reads after that only if
// starts were not inserted and the reply does not have the runs of their addresses.
func (s *Store) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	l, err := s.begin(ctx, b.Lane)
	if err != nil {
		return store.Committed{}, awayError("commit", err)
	}
	defer l.mu.Unlock()
	w, err := l.write(ctx, b)
	if err != nil {
		return store.Committed{}, err
	}
	return w.result(ctx)
}

// begin returns the lane, locked and connected. If the lane has ended because its node has left,
// begin creates a new lane.
func (s *Store) begin(ctx context.Context, ref store.LaneRef) (*lane, error) {
	for {
		if err := s.alive(ctx); err != nil {
			return nil, err
		}
		l, err := s.lane(ref)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		if err = l.connect(ctx); err == nil {
			return l, nil
		}
		l.mu.Unlock()
		if !errors.Is(err, errEnded) {
			return nil, err
		}
	}
}

// writer encodes the rows of a batch and keeps what it needs to interpret the reply.
type writer struct {
	*encoder
	lane  *lane
	batch *store.Batch
	order []int32
	// making has the indexes of the starts with IfAbsent that the batch tries to insert. The starts
	// in earlier are not among them.
	making []int32
	// first maps an address to the first start of this batch that takes it. earlier[i] is the
	// earlier start of the batch that takes the address of start i.
	first    map[model.Address]int
	earlier  map[int]int
	existing []store.ExistingStart
	missing  []int // starts that were not inserted; the run that has their address is not read yet
}

// write sends a batch.
func (l *lane) write(ctx context.Context, b *store.Batch) (*writer, error) {
	w := &l.writer
	w.encoder, w.lane, w.batch, w.existing, w.missing, w.earlier, w.making = &l.encoder, l, b, nil, nil, nil, w.making[:0]
	w.reset(b.Bytes)
	w.fence()
	w.patience()
	w.writeDeletes()
	w.writeStarts()
	w.writeRuns()
	w.writeLabels()
	w.writeEvents()
	w.dead()
	w.writeTasks()
	w.writeTimers()
	w.writeEntities()
	w.mail()
	w.sync()
	if w.err != nil {
		return nil, &store.Error{Class: store.Refused, Op: "commit", Err: w.err}
	}

	return w, l.exchange(ctx, w)
}

// use adds a statement to the pipeline. The caller then adds its arguments.
func (w *writer) use(index int) {
	st := &w.lane.store.statements[index]
	name := st.name
	if !w.lane.store.cfg.prepare {
		name = ""
	}
	if name == "" || !w.lane.prepared[index] {
		w.parse(name, st.sql)
	}
	w.bind(name, st)
}

// sortKeys returns the indexes of n rows in the order of their keys. So transactions that touch the
// same rows lock them in the same order, and rows that are neighbours in an index are written one
// after the other.
func (w *writer) sortKeys(n int, compare func(i, j int) int) []int32 {
	w.order = w.order[:0]
	ordered := true
	for i := range n {
		w.order = append(w.order, int32(i))
		ordered = ordered && (i == 0 || compare(i-1, i) <= 0)
	}
	if !ordered {
		slices.SortStableFunc(w.order, func(i, j int32) int { return compare(int(i), int(j)) })
	}
	return w.order
}

// clampLane converts a lane number. A number that does not fit into the column becomes a number
// that no lane has. A plain conversion could turn it into the number of another lane.
func clampLane(n int) int32 {
	if n < 0 || n > math.MaxInt32 {
		return -1
	}
	return int32(n)
}

func (w *writer) fence() {
	w.use(stFence)
	w.uuid(w.batch.Lane.Node)
	w.int4(clampLane(w.batch.Lane.Lane))
	w.int8(w.batch.Lane.Epoch)
	w.int8(w.batch.Number)
	w.execute()
}

// patience raises the time limits of the server for this transaction, if the batch may take longer
// than usual.
func (w *writer) patience() {
	cfg := w.lane.store.cfg
	const most = 256 << 10
	// Without prepared statements the session has none of our limits.
	if !cfg.prepare || w.batch.Bytes <= most && w.batch.Patience == 0 {
		return
	}
	w.use(stPatience)
	w.int8(w.batch.Within(cfg.statementTimeout()).Milliseconds())
	w.int8(w.batch.Within(cfg.commitTimeout()).Milliseconds())
	w.execute()
}

func (w *writer) writeDeletes() {
	w.removal(stRemove, w.batch.Removes)
	if rows := w.batch.EntityRemoves; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int { return rows[i].Compare(rows[j]) })
		w.use(stErase)
		w.entityKeys(n, func(i int) store.EntityKey { return rows[o[i]] })
		w.execute()
	}
	w.removal(stDelete, w.batch.Deletes)
}

func (w *writer) removal(index int, rows []store.RunKey) {
	if len(rows) == 0 {
		return
	}
	n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int { return rows[i].Compare(rows[j]) })
	w.use(index)
	w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
	w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })
	w.execute()
}

// writeLeaving stores the removal times of those closed runs that have a removal time of their own.
func (w *writer) writeLeaving(o []int32) {
	if len(o) == 0 {
		return
	}
	rows, n := w.batch.Closes, len(o)
	w.use(stLeaving)
	w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
	w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })
	w.int8s(n, func(i int) int64 { return int64(rows[o[i]].Outcome.Leaves) })
	w.execute()
}

// writeStarts inserts runs. Before that, it marks the runs that they replace as no longer current.
//
// A start with IfAbsent almost always finds its address free. The statement for that case returns
// the ids of the inserted runs if it has not inserted all starts, and otherwise nothing. After the
// commit, the store reads the runs that have the addresses of the other starts. If one start finds
// its address taken, later starts often do so too. So the next batches use another statement, which
// also returns the runs that have the addresses.
func (w *writer) writeStarts() {
	rows := w.batch.Starts
	if len(rows) == 0 {
		return
	}
	replaced := w.writeReplaced()
	order := w.sortKeys(len(rows), func(i, j int) int { return startKey(&rows[i]).Compare(startKey(&rows[j])) })
	w.takeAddresses()

	plain := order[:0]
	for _, i := range order {
		switch _, late := w.earlier[int(i)]; {
		case !rows[i].IfAbsent:
			plain = append(plain, i)
		case !late:
			w.making = append(w.making, i)
		}
	}
	w.insertStarts(stStart, plain, replaced)
	making := stStartNew
	if w.lane.duplicates > 0 && len(w.making) > 0 {
		w.lane.duplicates--
		making = stStartIfAbsent
	}
	w.insertStarts(making, w.making, replaced)
}

// takeAddresses finds the starts whose address an earlier start of the same batch takes.
func (w *writer) takeAddresses() {
	rows := w.batch.Starts
	if len(rows) < 2 {
		return
	}
	if w.first == nil {
		w.first = make(map[model.Address]int, len(rows))
	}

	for i := range rows {
		if j, taken := w.first[rows[i].Start.Address]; !taken {
			w.first[rows[i].Start.Address] = i
		} else if rows[i].IfAbsent {
			if w.earlier == nil {
				w.earlier = make(map[int]int)
			}
			w.earlier[i] = j
		}
	}

	clear(w.first)
}

// receiveInserted receives the ids of the inserted runs, which the server sends only if it has not
// inserted all starts. The other starts become missing.
func (w *writer) receiveInserted(ids []byte) error {
	const size = len(model.RunID{})
	if len(ids)%size != 0 {
		return fmt.Errorf("the server returned %d bytes of run ids", len(ids))
	}
	const expectMore = 64 // batches
	w.lane.duplicates = expectMore
	there := make(map[model.RunID]bool, len(ids)/size)
	for ; len(ids) > 0; ids = ids[size:] {
		there[model.RunID(ids[:size])] = true
	}

	for _, i := range w.making {
		if !there[w.batch.Starts[i].Start.Run] {
			w.missing = append(w.missing, int(i))
		}
	}

	return nil
}

func startKey(r *store.StartRow) store.RunKey {
	return store.RunKey{Shard: r.Shard, Run: r.Start.Run}
}

// writeReplaced marks the runs that starts replace as no longer current. If such a run starts in
// the same batch, writeReplaced returns it, and the caller inserts it as not current.
func (w *writer) writeReplaced() map[store.RunKey]bool {
	rows := w.batch.Starts
	var replaced map[store.RunKey]bool
	var stored []int32
	for i := range rows {
		if rows[i].Replaces.IsZero() {
			continue
		}
		key := store.RunKey{Shard: rows[i].Shard, Run: rows[i].Replaces}
		if j := slices.IndexFunc(rows, func(r store.StartRow) bool { return startKey(&r) == key }); j < 0 {
			stored = append(stored, int32(i))
			continue
		} else if rows[j].Start.Address != rows[i].Start.Address || !w.closes(key) || replaced[key] {
			w.fail(fmt.Errorf("run %s cannot take the place of run %s, which starts in the same batch", rows[i].Start.Run, key.Run))
		}
		if replaced == nil {
			replaced = make(map[store.RunKey]bool)
		}
		replaced[key] = true
	}

	if n := len(stored); n > 0 {
		at := func(i int) *store.StartRow { return &rows[stored[i]] }
		w.use(stReplace)
		w.shards(n, func(i int) model.ShardID { return at(i).Shard })
		w.encoder.runs(n, func(i int) model.RunID { return at(i).Replaces })
		w.bools(n, func(i int) bool { return w.closes(store.RunKey{Shard: at(i).Shard, Run: at(i).Replaces}) })
		w.texts(n, func(i int) string { return at(i).Start.Address.Tenant })
		w.texts(n, func(i int) string { return at(i).Start.Address.Type })
		w.texts(n, func(i int) string { return at(i).Start.Address.Key })
		w.execute()
	}

	return replaced
}

// closes reports whether the batch closes a run.
func (w *writer) closes(key store.RunKey) bool {
	return slices.ContainsFunc(w.batch.Closes, func(r store.CloseRow) bool { return r.RunKey == key })
}

func (w *writer) insertStarts(index int, which []int32, replaced map[store.RunKey]bool) {
	n := len(which)
	if n == 0 {
		return
	}
	at := func(i int) *store.StartRow { return &w.batch.Starts[which[i]] }
	w.use(index)
	w.shards(n, func(i int) model.ShardID { return at(i).Shard })
	w.encoder.runs(n, func(i int) model.RunID { return at(i).Start.Run })
	w.int8s(n, func(i int) int64 { return int64(at(i).Start.At) })
	w.bools(n, func(i int) bool { return replaced == nil || !replaced[startKey(at(i))] })
	w.texts(n, func(i int) string { return at(i).Start.Address.Tenant })
	w.texts(n, func(i int) string { return at(i).Start.Address.Type })
	w.texts(n, func(i int) string { return at(i).Start.Address.Key })
	w.bodies(n, func(dst []byte, i int) []byte { return model.AppendStart(dst, &at(i).Start) })
	if index == stStartIfAbsent {
		w.int4s(n, func(i int) int32 { return which[i] })
	}
	w.execute()
}

// writeRuns writes the changes of open runs: closes and marks.
func (w *writer) writeRuns() {
	if rows := w.batch.Closes; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int { return rows[i].Compare(rows[j].RunKey) })
		w.use(stClose)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
		w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })
		w.int2s(n, func(i int) int16 {
			status := rows[o[i]].Outcome.Status
			if !status.Closed() {
				w.fail(fmt.Errorf("run %s is closed with status %s", rows[o[i]].Run, status))
			}
			return int16(status)
		})
		w.int8s(n, func(i int) int64 { return int64(rows[o[i]].Outcome.At) })
		w.bodies(n, func(dst []byte, i int) []byte { return model.AppendOutcome(dst, &rows[o[i]].Outcome) })
		w.execute()
		w.writeLeaving(slices.DeleteFunc(o, func(i int32) bool { return rows[i].Outcome.Leaves == 0 }))
	}

	if rows := w.batch.Marks; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int { return rows[i].Compare(rows[j].RunKey) })
		w.use(stMark)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
		w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })

		w.int2s(n, func(i int) int16 {
			if rows[o[i]].Parked {
				return stateParked
			}
			return stateRunnable
		})

		w.bodies(n, func(dst []byte, i int) []byte { return appendReasons(dst, rows[o[i]].Waits) })
		w.bodies(n, func(dst []byte, i int) []byte {
			if rows[o[i]].Blocked == nil {
				return nil
			}
			return appendReasons(dst, []model.Reason{*rows[o[i]].Blocked})
		})

		w.texts(n, func(i int) string {
			code := store.MainReason(rows[o[i]].Parked, rows[o[i]].Waits, rows[o[i]].Blocked)
			if code == model.WaitTurn {
				return "" // the column is null
			}
			return string(code)
		})

		w.execute()
	}
}

func (w *writer) writeEvents() {
	switch rows := w.batch.Events; len(rows) {
	case 0:
	case 1:
		row := &rows[0]
		w.use(stOneEvent)
		w.shard(row.Shard)
		w.uuid(row.Run)
		w.int8(row.Event.Seq)
		w.int8(int64(row.Event.At))
		w.int2(int16(row.Event.Kind))
		w.body(func(dst []byte) []byte { return model.AppendEvent(dst, &row.Event) })
		w.execute()
	default:
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int {
			return cmp.Or(rows[i].Compare(rows[j].RunKey), cmp.Compare(rows[i].Event.Seq, rows[j].Event.Seq))
		})
		w.use(stEvent)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
		w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })
		w.int8s(n, func(i int) int64 { return rows[o[i]].Event.Seq })
		w.int8s(n, func(i int) int64 { return int64(rows[o[i]].Event.At) })
		w.int2s(n, func(i int) int16 { return int16(rows[o[i]].Event.Kind) })
		w.bodies(n, func(dst []byte, i int) []byte { return model.AppendEvent(dst, &rows[o[i]].Event) })
		w.execute()
	}
}

// appendReasons appends reasons. If there are none, it returns nil, which is stored as null.
func appendReasons(dst []byte, rs []model.Reason) []byte {
	if len(rs) == 0 {
		return nil
	}
	return model.AppendReasons(dst, rs)
}

func (w *writer) writeTimers() {
	if rows := w.batch.StopTimers; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int {
			return cmp.Or(rows[i].Compare(rows[j].RunKey), strings.Compare(rows[i].ID, rows[j].ID))
		})
		w.use(stStopTimer)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
		w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })
		w.texts(n, func(i int) string { return rows[o[i]].ID })
		w.execute()
	}

	if rows := w.batch.Timers; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int {
			return cmp.Or(cmp.Compare(rows[i].Shard, rows[j].Shard), rows[i].Run.Compare(rows[j].Run), strings.Compare(rows[i].ID, rows[j].ID))
		})
		w.use(stTimer)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
		w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })
		w.texts(n, func(i int) string { return rows[o[i]].ID })
		w.int8s(n, func(i int) int64 { return int64(rows[o[i]].Due) })
		w.texts(n, func(i int) string { return rows[o[i]].Address.Tenant })
		w.texts(n, func(i int) string { return rows[o[i]].Address.Type })
		w.texts(n, func(i int) string { return rows[o[i]].Address.Key })
		w.execute()
	}

	if rows := w.batch.StopAll; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int { return rows[i].Compare(rows[j]) })
		w.use(stStopAll)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
		w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })
		w.execute()
	}
}

// mail writes messages, cursors, inbox rows, remembered answers, token marks, and shards that are
// released.
func (w *writer) mail() {
	if rows := w.batch.Messages; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int {
			return cmp.Or(cmp.Compare(rows[i].To, rows[j].To), cmp.Compare(rows[i].From, rows[j].From), cmp.Compare(rows[i].Seq, rows[j].Seq))
		})
		w.use(stMessage)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].To })
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].From })
		w.int8s(n, func(i int) int64 { return rows[o[i]].Seq })
		w.bodies(n, func(dst []byte, i int) []byte { return model.AppendBody(dst, &rows[o[i]].Message, rows[o[i]].Damaged) })
		w.execute()
	}

	w.writeCursors()
	if rows := w.batch.Inbox; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int {
			return cmp.Or(cmp.Compare(rows[i].Shard, rows[j].Shard), rows[i].ID.Compare(rows[j].ID))
		})
		w.use(stInbox)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
		w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].ID })
		w.execute()
	}

	if rows := w.batch.Deferred; len(rows) > 0 {
		w.use(stDefer)
		w.inbox(rows)
		w.execute()
	}

	if rows := w.batch.Requests; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int {
			a, b := &rows[i], &rows[j]
			return cmp.Or(cmp.Compare(a.Shard, b.Shard), strings.Compare(a.Address.Key, b.Address.Key), strings.Compare(a.ID, b.ID))
		})
		w.use(stRequest)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
		w.texts(n, func(i int) string { return rows[o[i]].Address.Tenant })
		w.texts(n, func(i int) string { return rows[o[i]].Address.Type })
		w.texts(n, func(i int) string { return rows[o[i]].Address.Key })
		w.texts(n, func(i int) string { return rows[o[i]].ID })
		w.int8s(n, func(i int) int64 { return int64(rows[o[i]].At) })
		w.bodies(n, func(dst []byte, i int) []byte { return append(dst, rows[o[i]].Body...) })
		w.execute()
	}

	w.writeForgets()
	if rows := w.batch.Tokens; len(rows) > 0 {
		o := w.sortKeys(len(rows), func(i, j int) int { return cmp.Compare(rows[i].Shard, rows[j].Shard) })
		w.use(stTokens)
		w.shards(len(rows), func(i int) model.ShardID { return rows[o[i]].Shard })
		w.int8s(len(rows), func(i int) int64 { return rows[o[i]].Mark })
		w.execute()
	}

	if rows := w.batch.Free; len(rows) > 0 {
		w.use(stFree)
		w.shards(len(rows), func(i int) model.ShardID { return rows[i] })
		w.uuid(w.batch.Lane.Node)
		w.execute()
	}
}

// writeForgets deletes remembered answers that no caller will ask for again.
func (w *writer) writeForgets() {
	rows := w.batch.Forgets
	if len(rows) == 0 {
		return
	}

	n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int {
		a, b := &rows[i], &rows[j]
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), strings.Compare(a.Address.Key, b.Address.Key), strings.Compare(a.ID, b.ID))
	})
	w.use(stForget)
	w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
	w.texts(n, func(i int) string { return rows[o[i]].Address.Tenant })
	w.texts(n, func(i int) string { return rows[o[i]].Address.Type })
	w.texts(n, func(i int) string { return rows[o[i]].Address.Key })
	w.texts(n, func(i int) string { return rows[o[i]].ID })
	w.execute()
}

// writeCursors inserts the cursor of a pair of shards when it first moves, and advances it later.
func (w *writer) writeCursors() {
	rows := w.batch.Cursors
	if len(rows) == 0 {
		return
	}
	o := w.sortKeys(len(rows), func(i, j int) int {
		return cmp.Or(cmp.Compare(min(rows[i].Prev, 1), min(rows[j].Prev, 1)), cmp.Compare(rows[i].To, rows[j].To), cmp.Compare(rows[i].From, rows[j].From))
	})
	first := 0 // rows with Prev 0 are first
	for first < len(o) && rows[o[first]].Prev == 0 {
		first++
	}

	if n := first; n > 0 {
		w.use(stFirstCursor)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].To })
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].From })
		w.int8s(n, func(i int) int64 { return rows[o[i]].Next })
		w.execute()
	}

	if o, n := o[first:], len(o)-first; n > 0 {
		w.use(stCursor)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].To })
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].From })
		w.int8s(n, func(i int) int64 { return rows[o[i]].Prev })
		w.int8s(n, func(i int) int64 { return rows[o[i]].Next })
		w.execute()
	}
}

// inbox appends the columns of inbox rows.
func (e *encoder) inbox(rows []store.InboxRow) {
	n := len(rows)
	e.shards(n, func(i int) model.ShardID { return rows[i].Shard })
	e.runs(n, func(i int) model.RunID { return rows[i].ID })
	e.int8s(n, func(i int) int64 { return int64(rows[i].NotBefore) })
	e.texts(n, func(i int) string { return requestKey(&rows[i]).Address.Tenant })
	e.texts(n, func(i int) string { return requestKey(&rows[i]).Address.Type })
	e.texts(n, func(i int) string { return requestKey(&rows[i]).Address.Key })
	e.texts(n, func(i int) string { return requestKey(&rows[i]).ID })
	e.bodies(n, func(dst []byte, i int) []byte { return model.AppendBody(dst, &rows[i].Message, rows[i].Damaged) })
}

// requestKey returns the key under which the answer to a request is remembered. The key has only
// the shard if there is no request id, or if the columns of remembered requests cannot hold one of
// its texts.
func requestKey(r *store.InboxRow) store.RequestKey {
	k := store.RequestKey{Shard: r.Shard, Address: r.Message.To, ID: r.Message.RequestID}
	for _, text := range [...]string{k.Address.Tenant, k.Address.Type, k.Address.Key, k.ID} {
		if k.ID == "" || strings.IndexByte(text, 0) >= 0 || !utf8.ValidString(text) {
			return store.RequestKey{Shard: r.Shard}
		}
	}
	return k
}

// result returns the result of a batch that was applied.
func (w *writer) result(ctx context.Context) (store.Committed, error) {
	for _, i := range w.missing {
		r := &w.batch.Starts[i]
		e, err := w.lane.store.LoadExecution(ctx, r.Shard, r.Start.Address, model.RunID{})
		switch {
		case fault.Is(err, fault.Corrupt):
			unread := store.Unread(r.Shard, r.Start.Address, err)
			e, err = &unread, nil
		case err == nil && e == nil:
			err = fmt.Errorf("the run that kept %s from starting is gone", r.Start.Address)
		}
		if err != nil {
			// The batch has been applied, so the class must not be Retryable.
			return store.Committed{}, &store.Error{Class: store.Unknown, Op: "commit", Err: err}
		}
		w.existing = append(w.existing, store.ExistingStart{Index: i, Execution: *e})
	}

	for i, j := range w.earlier {
		e := store.ExistingStart{Index: i}
		k := slices.IndexFunc(w.existing, func(x store.ExistingStart) bool { return x.Index == j })
		if k >= 0 {
			e.Execution = w.existing[k].Execution
		} else {
			r := &w.batch.Starts[j]
			e.Execution = store.Execution{Shard: r.Shard, Start: r.Start, Outcome: model.Outcome{Status: model.Running}, Current: true}
		}
		w.existing = append(w.existing, e)
	}

	slices.SortFunc(w.existing, func(a, b store.ExistingStart) int { return a.Index - b.Index })
	return store.Committed{Existing: w.existing}, nil
}
