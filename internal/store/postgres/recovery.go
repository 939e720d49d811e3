package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Queries over many shards read the shards one by one, each with a limit and an index that starts
// with the shard. The condition `shard = any (…) order by … limit` would read and sort the rows of
// all shards before it returns the first one.
//
// Tables are joined by lateral subqueries with a limit and by scalar subqueries, even where a plain
// join would be enough. The planner cannot reorder these subqueries, and their order is right for a
// full table. While the table is empty, the planner would reverse a plain join, and the server
// would keep that plan.

func runArg(id model.RunID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// sortedShards returns the shards from first on, in order and each once.
func sortedShards(shards []model.ShardID, first model.ShardID) []int16 {
	out := shardArgs(shards)
	slices.Sort(out)
	out = slices.Compact(out)
	i, _ := slices.BinarySearch(out, int16(min(first, model.MaxShards)))
	return out[i:]
}

// LoadRunnable returns open runs that are not parked.
func (s *Store) LoadRunnable(ctx context.Context, shards []model.ShardID, after store.RunKey, limit int) ([]store.RunHead, error) {
	const load = `
select t.shard, r.run, e.tenant, e.workflow, e.key
from unnest($1::smallint[]) with ordinality t (shard, nr)
cross join lateral (
  select q.run from {schema}.runnable q where q.shard = t.shard and (t.shard > $2 or q.run > $3) order by q.run limit $4) r
cross join lateral (select e.tenant, e.workflow, e.key from {schema}.executions e where e.shard = t.shard and e.run = r.run limit 1) e
order by t.nr, r.run limit $4`
	return s.heads(ctx, "load runnable", sortedShards(shards, after.Shard), limit, func(some []int16, limit int) (string, []any) {
		return load, []any{some, int16(min(after.Shard, model.MaxShards)), runArg(after.Run), limit}
	})
}

// heads reads heads of runs, a few shards at a time, until there are enough.
func (s *Store) heads(ctx context.Context, op string, shards []int16, limit int, query func(some []int16, limit int) (string, []any)) ([]store.RunHead, error) {
	const perQuery = 32 // shards; bounds how many rows the query reads and drops
	var out []store.RunHead
	err := s.read(ctx, op, func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		for some := range slices.Chunk(shards, perQuery) {
			if len(out) >= limit {
				break
			}
			sql, args := query(some, limit-len(out))
			rows, err := c.Query(ctx, s.sql(sql), args...)
			if err != nil {
				return err
			}

			var h store.RunHead
			var run pgtype.UUID
			_, err = pgx.ForEachRow(rows, []any{&h.Shard, &run, &h.Address.Tenant, &h.Address.Type, &h.Address.Key}, func() error {
				h.Run = run.Bytes
				out = append(out, h)
				return nil
			})
			if err != nil {
				return err
			}
		}

		return nil
	})

	return out, err
}

// Conditions for a run that is named by its address and its id, or by its address alone.
const (
	isRun     = `e.shard = $1 and e.key = $2 and e.workflow = $3 and e.tenant = $4 and e.run = $5`
	isCurrent = `e.shard is not distinct from $1 and e.key = $2 and e.workflow = $3 and e.tenant = $4 and e.current`
)

// namedRun returns the arguments of isRun, or of isCurrent if there is no id.
func namedRun(shard model.ShardID, a model.Address, run model.RunID) []any {
	args := []any{int16(shard), a.Key, a.Type, a.Tenant}
	if !run.IsZero() {
		args = append(args, runArg(run))
	}
	return args
}

// LoadExecution returns the current run of an address, or the given run.
func (s *Store) LoadExecution(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (*store.Execution, error) {
	const load = `select {execution} from {schema}.executions e where `
	if shard >= model.MaxShards {
		return nil, nil
	}
	sql := load + isRun
	if run.IsZero() {
		sql = load + isCurrent
	}
	args := namedRun(shard, a, run)
	var out *store.Execution

	err := s.read(ctx, "load execution", func(ctx context.Context, c *pgx.Conn) error {
		found, err := c.Query(ctx, s.sql(sql), args...)
		if err != nil {
			return err
		}
		rows, err := scanExecutions(found, nil)
		if err != nil || len(rows) == 0 {
			return err
		}
		out = &rows[0]
		return nil
	})

	return out, err
}

// LoadEvents returns stored events of a run.
func (s *Store) LoadEvents(ctx context.Context, key store.RunKey, after int64, limit, maxBytes int) ([]model.Event, error) {
	const load = eventsOf + ` h.run = $2 and h.seq > $3 order by h.seq limit $4) h where before < $5 or before = 0 order by seq`
	return s.events(ctx, key, load, after, max(1, limit), maxBytes)
}

// eventsOf reads events until the page is full. PostgreSQL knows the length of a body without
// reading the body.
const eventsOf = `
select seq, at, kind, body from (
  select h.seq, h.at, h.kind, h.body, sum(octet_length(h.body)) over (order by h.seq) - octet_length(h.body) as before
  from {schema}.history h where h.shard = $1 and`

// keepPlans makes the server keep the plans of the statements in the same transaction, because the
// server needs more time to plan them than to execute them. Use it only for statements that have
// one possible index at any size of the tables. A compatible database that does not know the
// setting plans as usual.
const keepPlans = `select set_config('plan_cache_mode', 'force_generic_plan', true) where current_setting('plan_cache_mode', true) is not null`

// queryKept makes a query whose plan the server keeps (see keepPlans), and gives its rows to scan.
func queryKept(ctx context.Context, c *pgx.Conn, scan func(pgx.Rows) error, sql string, args ...any) error {
	var batch pgx.Batch
	batch.Queue(keepPlans)
	batch.Queue(sql, args...)
	results := c.SendBatch(ctx, &batch)
	_, err := results.Exec()
	if err == nil {
		var rows pgx.Rows
		if rows, err = results.Query(); err == nil {
			err = scan(rows)
		}
	}
	return cmp.Or(err, results.Close())
}

// loadRun returns the statements that load a run: its row, its events, and its timers while it is
// open. Of the parameters of the statements, number more is the maximum number of events, and the
// next one is the maximum of their bytes.
func loadRun(named string, more int) [3]string {
	open := `run = (select e.run from {schema}.executions e where ` + named + ` and e.state < 2)`
	return [3]string{
		`select {execution} from {schema}.executions e where ` + named,
		fmt.Sprintf(`%s h.%s order by h.seq limit $%d) h where before < $%d or before = 0 order by seq`, eventsOf, open, more, more+1),
		`select t.shard, t.due, t.run, t.id, t.tenant, t.workflow, t.key from {schema}.timers t where t.shard = $1 and t.` + open + ` order by t.id`,
	}
}

var loadNamed, loadCurrent = loadRun(isRun, 6), loadRun(isCurrent, 5)

// LoadRun returns what the engine needs to continue a run, in one round trip.
//
//arch:parameters the signature is part of the store port
func (s *Store) LoadRun(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID, limit, maxBytes int) (r store.Run, err error) {
	if shard >= model.MaxShards {
		return r, nil
	}
	texts := &loadNamed
	if run.IsZero() {
		texts = &loadCurrent
	}
	args := namedRun(shard, a, run)
	limit = max(1, limit)

	err = s.read(ctx, "load run", func(ctx context.Context, c *pgx.Conn) error {
		r = store.Run{}
		var batch pgx.Batch
		batch.Queue(keepPlans)
		batch.Queue(s.sql(texts[0]), args...)
		batch.Queue(s.sql(texts[1]), append(slices.Clip(args), limit, maxBytes)...)
		batch.Queue(s.sql(texts[2]), args...)
		results := c.SendBatch(ctx, &batch)
		err := readRun(results, limit, maxBytes, &r)
		return cmp.Or(err, results.Close())
	})

	return r, err
}

// readRun reads the row of a run, its events and its timers.
func readRun(results pgx.BatchResults, limit, maxBytes int, r *store.Run) error {
	if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}

	found, err := scanExecutions(rows, nil)
	if err != nil || len(found) == 0 {
		return err
	}
	r.Execution = &found[0]
	if rows, err = results.Query(); err != nil {
		return err
	}

	size := 0
	if r.Events, size, err = scanEvents(rows, r.Execution.Start.Run); err != nil {
		return err
	}
	r.More = len(r.Events) == limit || size >= maxBytes
	r.Timers, err = scanTimers(results.Query())

	return err
}

// LoadEventsOf returns stored events of one kind, newest first.
func (s *Store) LoadEventsOf(ctx context.Context, key store.RunKey, kind model.EventKind, before int64, limit int) ([]model.Event, error) {
	const load = `
select seq, at, kind, body from {schema}.history where shard = $1 and run = $2 and seq < $3 and kind = $4 order by seq desc limit $5`
	return s.events(ctx, key, load, before, int16(kind), limit)
}

// LastEvent returns the highest position of the stored events of a run.
func (s *Store) LastEvent(ctx context.Context, key store.RunKey) (last int64, err error) {
	if key.Shard >= model.MaxShards {
		return 0, nil
	}
	const load = `select coalesce(max(seq), 0) from {schema}.history where shard = $1 and run = $2`
	err = s.read(ctx, "count events", func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, s.sql(load), int16(key.Shard), runArg(key.Run)).Scan(&last)
	})
	return last, err
}

// events reads events of a run: seq, at, kind, body.
func (s *Store) events(ctx context.Context, key store.RunKey, load string, args ...any) ([]model.Event, error) {
	if key.Shard >= model.MaxShards {
		return nil, nil
	}
	args = append([]any{int16(key.Shard), runArg(key.Run)}, args...)
	var out []model.Event
	err := s.read(ctx, "load events", func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, s.sql(load), args...)
		if err != nil {
			return err
		}
		out, _, err = scanEvents(rows, key.Run)
		return err
	})
	return out, err
}

// scanEvents reads events of a run: seq, at, kind, body. It also returns the total size of the
// bodies.
func scanEvents(rows pgx.Rows, run model.RunID) (out []model.Event, size int, err error) {
	var seq int64
	var at model.Time
	var kind int16
	var body pgtype.DriverBytes

	_, err = pgx.ForEachRow(rows, []any{&seq, &at, &kind, &body}, func() error {
		e, err := decodeEvent(seq, at, kind, body)
		if err != nil {
			return fault.New(fault.Corrupt, "run %s, event %d: %w", run, seq, err)
		}
		out, size = append(out, e), size+len(body)
		return nil
	})

	return out, size, err
}

func decodeEvent(seq int64, at model.Time, kind int16, body []byte) (model.Event, error) {
	if kind < 0 || kind > math.MaxUint8 {
		kind = 0 // a kind that no build has
	}
	return model.DecodeEvent(seq, at, model.EventKind(kind), body)
}

// LoadTimers returns timers of the shards up to a horizon, ordered by time.
//
// It works in rounds. A round reads a portion of the timers of each shard, in order. If it gets a
// full portion, the shard may have more timers, and LoadTimers does not know what follows the last
// timer that it has read. LoadTimers compares these last timers of all shards with full portions,
// and returns only timers up to the earliest of them. The next round continues there with larger
// portions.
func (s *Store) LoadTimers(ctx context.Context, shards []model.ShardID, after store.TimerMark, until model.Time, limit int) ([]store.Timer, error) {
	const load = `
select t.shard, d.due, d.run, d.id, d.tenant, d.workflow, d.key
from unnest($1::smallint[]) t (shard)
cross join lateral (
  select q.due, q.run, q.id, q.tenant, q.workflow, q.key from {schema}.timers q
  where q.shard = t.shard and (q.due, q.run, q.id) > ($2, $3, $4) and q.due <= $5 order by q.due, q.run, q.id limit $6) d`

	all := sortedShards(shards, 0)
	if len(all) == 0 || limit <= 0 {
		return nil, nil
	}
	var out []store.Timer

	err := s.read(ctx, "load timers", func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		mark, portion := after, max(16, 2*limit/len(all))
		for len(out) < limit {
			portion = min(portion, limit)
			timers, err := scanTimers(c.Query(ctx, s.sql(load), all, mark.Due, runArg(mark.Run), mark.ID, until, portion))
			if err != nil {
				return err
			}

			page, bound := completeTimers(timers, portion)
			out = append(out, page...)
			if bound == nil {
				break
			}
			mark, portion = *bound, 2*portion
		}

		out = out[:min(len(out), limit)]
		return nil
	})

	return out, err
}

// completeTimers returns the timers up to a bound, in order, and the bound. The input has at most
// portion timers of each shard, and a shard with exactly portion timers may have more. The bound is
// the place up to which the input has all timers of all shards. It is nil if no shard has more.
func completeTimers(timers []store.Timer, portion int) ([]store.Timer, *store.TimerMark) {
	counts := map[model.ShardID]int{}
	last := map[model.ShardID]*store.Timer{}
	for i := range timers {
		t := &timers[i]
		counts[t.Shard]++
		if l := last[t.Shard]; l == nil || compareTimers(*l, *t) < 0 {
			last[t.Shard] = t
		}
	}

	var bound *store.Timer
	for shard, n := range counts {
		if l := last[shard]; n == portion && (bound == nil || compareTimers(*l, *bound) < 0) {
			bound = l
		}
	}

	if bound == nil {
		slices.SortFunc(timers, compareTimers)
		return timers, nil
	}

	edge := *bound
	timers = slices.DeleteFunc(timers, func(t store.Timer) bool { return compareTimers(t, edge) > 0 })
	slices.SortFunc(timers, compareTimers)
	return timers, &store.TimerMark{Due: edge.Due, Run: edge.Run, ID: edge.ID}
}

func compareTimers(a, b store.Timer) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), a.Run.Compare(b.Run), cmp.Compare(a.ID, b.ID))
}

func scanTimers(rows pgx.Rows, err error) ([]store.Timer, error) {
	if err != nil {
		return nil, err
	}
	var out []store.Timer
	var t store.Timer
	var run pgtype.UUID
	_, err = pgx.ForEachRow(rows, []any{&t.Shard, &t.Due, &run, &t.ID, &t.Address.Tenant, &t.Address.Type, &t.Address.Key}, func() error {
		t.Run = run.Bytes
		out = append(out, t)
		return nil
	})
	return out, err
}

// LoadRunTimers returns the open timers of one run.
func (s *Store) LoadRunTimers(ctx context.Context, key store.RunKey) (out []store.Timer, err error) {
	const load = `select shard, due, run, id, tenant, workflow, key from {schema}.timers where shard = $1 and run = $2 order by id`
	if key.Shard >= model.MaxShards {
		return nil, nil
	}
	err = s.read(ctx, "load timers of a run", func(ctx context.Context, c *pgx.Conn) error {
		out, err = scanTimers(c.Query(ctx, s.sql(load), int16(key.Shard), runArg(key.Run)))
		return err
	})
	return out, err
}

// loadMessages reads the messages behind the cursors. If a number is missing, the statement does
// not return the rows after the gap. PostgreSQL knows the length of a body without reading the
// body.
const loadMessages = `
select shard, from_shard, seq, body from (
select x.*, sum(octet_length(x.body)) over (order by x.shard, x.from_shard, x.seq) - octet_length(x.body) as before from (
select t.shard, p.from_shard, m.seq, m.body
from unnest($1::smallint[]) t (shard) cross join lateral ` + senders + ` p cross join ` + cursor + `
cross join lateral (
  select q.seq, q.body, row_number() over (order by q.seq) as nr from {schema}.messages q
  where q.to_shard = t.shard and q.from_shard = p.from_shard and q.seq > c.position order by q.seq limit $2) m
where m.seq = c.position + m.nr
limit $2) x) y where before < $3 or before = 0`

// LoadMessages returns the messages that directly follow the cursors.
func (s *Store) LoadMessages(ctx context.Context, shards []model.ShardID, limit, maxBytes int) (out []store.MessageRow, more bool, err error) {
	all := sortedShards(shards, 0)
	if len(all) == 0 || limit <= 0 {
		return nil, false, nil
	}
	size := 0

	err = s.read(ctx, "load messages", func(ctx context.Context, c *pgx.Conn) error {
		out, size = nil, 0
		return queryKept(ctx, c, func(rows pgx.Rows) error {
			var m store.MessageRow
			var body pgtype.DriverBytes
			_, err := pgx.ForEachRow(rows, []any{&m.To, &m.From, &m.Seq, &body}, func() error {
				m.Message, m.Damaged = readMessage(body, "message %d from shard %d to shard %d", m.Seq, m.From, m.To)
				out = append(out, m)
				size += len(body)
				return nil
			})
			return err
		}, s.sql(loadMessages), all, limit, maxBytes)
	})

	slices.SortFunc(out, func(a, b store.MessageRow) int {
		return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From), cmp.Compare(a.Seq, b.Seq))
	})
	return out, len(out) == limit || size >= maxBytes && size > 0, err
}

// loadInbox reads the requests that wait in the inbox. The second condition on not_before excludes
// dead letters. The index has the same condition, so PostgreSQL can use it. The column vacant says
// that the address has no current run. Its subquery compares the shard with "is not distinct from",
// which no index supports, so that PostgreSQL finds the run by its address.
const loadInbox = `
select shard, id, not_before, body, seen, vacant from (
select x.*, sum(octet_length(x.body)) over (order by x.id, x.shard) - octet_length(x.body) as before from (
select t.shard, i.id, i.not_before, i.body, i.request <> '' and (
  select r.at from {schema}.requests r
  where r.shard = t.shard and r.key = i.key and r.id = i.request and r.workflow = i.workflow and r.tenant = i.tenant) is not null as seen, (
  select e.run from {schema}.executions e
  where e.key = i.key and e.workflow = i.workflow and e.tenant = i.tenant and e.shard is not distinct from t.shard and e.current limit 1) is null as vacant
from unnest($1::smallint[]) t (shard)
cross join lateral (
  select q.id, q.not_before, q.tenant, q.workflow, q.key, q.request, q.body from {schema}.inbox q
  where q.shard = t.shard and q.not_before <= $2 and q.not_before < ` + never + ` order by q.id limit $3) i
order by i.id, t.shard limit $3) x) y where before < $4 or before = 0 order by id, shard`

// LoadInbox returns requests that may be served now.
func (s *Store) LoadInbox(ctx context.Context, shards []model.ShardID, now model.Time, limit, maxBytes int) (out []store.InboxRow, more bool, err error) {
	all := sortedShards(shards, 0)
	if len(all) == 0 || limit <= 0 {
		return nil, false, nil
	}
	size := 0

	err = s.read(ctx, "load inbox", func(ctx context.Context, c *pgx.Conn) error {
		out, size = nil, 0
		return queryKept(ctx, c, func(rows pgx.Rows) error {
			var r store.InboxRow
			var id pgtype.UUID
			var body pgtype.DriverBytes

			_, err := pgx.ForEachRow(rows, []any{&r.Shard, &id, &r.NotBefore, &body, &r.Seen, &r.Vacant}, func() error {
				r.ID = id.Bytes
				r.Message, r.Damaged = readMessage(body, "request %s in the inbox of shard %d", r.ID, r.Shard)
				out = append(out, r)
				size += len(body)
				return nil
			})

			return err
		}, s.sql(loadInbox), all, now, limit, maxBytes)
	})

	return out, len(out) == limit || size >= maxBytes && size > 0, err
}

// readMessage decodes the body of a message. A body that cannot be decoded is returned as damaged.
// The text of the damage names the row.
func readMessage(body []byte, row string, args ...any) (model.Message, *model.Damaged) {
	m, err := model.DecodeMessage(body)
	if err != nil {
		return m, model.Damage(body, fmt.Errorf("%s: %w", fmt.Sprintf(row, args...), err))
	}
	return m, nil
}
