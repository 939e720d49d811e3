package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// loadHeads reads the current runs of addresses until the page is full. loadEventsOf and
// loadTimersOf read the events and timers of runs. The planner does not move a subquery with an
// offset; see the comment in recovery.go.
const (
	loadHeads = `
select nr, {execution} from (
  select u.nr, {execution}, sum(octet_length(e.start) + coalesce(octet_length(e.outcome), 0)) over (order by u.nr)
    - octet_length(e.start) - coalesce(octet_length(e.outcome), 0) as before
  from unnest($1::smallint[], $2::text[], $3::text[], $4::text[]) with ordinality u (shard, key, workflow, tenant, nr)
  cross join lateral (
    select {execution} from {schema}.executions e
    where e.shard is not distinct from u.shard and e.key = u.key and e.workflow = u.workflow and e.tenant = u.tenant and e.current limit 1) e
) e where before < $5 order by nr`
	loadEventsOf = `
select nr, seq, at, kind, body from (
  select u.nr, h.seq, h.at, h.kind, h.body, sum(octet_length(h.body)) over (order by u.nr, h.seq) - octet_length(h.body) as before
  from unnest($1::smallint[], $2::uuid[]) with ordinality u (shard, run, nr)
  cross join lateral (select h.seq, h.at, h.kind, h.body from {schema}.history h where h.shard = u.shard and h.run = u.run order by h.seq limit $3) h
) h where before < $4 order by nr, seq`
	loadTimersOf = `
select u.nr, t.shard, t.due, t.run, t.id, t.tenant, t.workflow, t.key
from unnest($1::smallint[], $2::uuid[]) with ordinality u (shard, run, nr)
cross join lateral (
  select t.shard, t.due, t.run, t.id, t.tenant, t.workflow, t.key from {schema}.timers t
  where t.shard = u.shard and t.run = u.run order by t.id offset 0) t
order by u.nr, t.id`
)

// LoadRuns returns what the engine needs to continue several runs, in two round trips.
func (s *Store) LoadRuns(ctx context.Context, keys []store.AddressKey, limit, maxBytes int) (runs []store.Run, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	limit, maxBytes = max(1, limit), max(1, maxBytes)
	err = s.read(ctx, "load runs", func(ctx context.Context, c *pgx.Conn) error {
		p := runPage{limit: limit, room: maxBytes}
		if err := p.readHeads(ctx, s, c, keys); err != nil {
			return err
		}
		err := p.readRest(ctx, s, c)
		runs = p.runs
		return err
	})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// runPage collects the runs of a page.
type runPage struct {
	runs  []store.Run
	limit int // limit of the events of a run
	room  int // bytes that the page has left
}

// readHeads reads the rows of the runs. The row that fills the page is the last row of the page.
func (p *runPage) readHeads(ctx context.Context, s *Store, c *pgx.Conn, keys []store.AddressKey) error {
	shards := make([]int16, len(keys))
	names, workflows, tenants := make([]string, len(keys)), make([]string, len(keys)), make([]string, len(keys))
	for i := range keys {
		shards[i] = int16(min(keys[i].Shard, model.MaxShards))
		names[i], workflows[i], tenants[i] = keys[i].Address.Key, keys[i].Address.Type, keys[i].Address.Tenant
	}

	p.runs = make([]store.Run, len(keys))
	var batch pgx.Batch
	batch.Queue(keepPlans)
	batch.Queue(s.sql(loadHeads), shards, names, workflows, tenants, p.room)
	results := c.SendBatch(ctx, &batch)
	err := p.scanHeads(results)
	return cmp.Or(err, results.Close())
}

func (p *runPage) scanHeads(results pgx.BatchResults) error {
	if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	var nr int64
	err = eachExecution(rows, []any{&nr}, func(r *executionRow) error {
		x, err := r.execution()
		p.runs[nr-1].Execution = &x
		p.room -= len(r.start) + len(r.outcome)
		return err
	})
	if p.room <= 0 {
		p.runs = p.runs[:nr]
	}
	return err
}

// readRest reads the events and timers of the open runs of the page.
func (p *runPage) readRest(ctx context.Context, s *Store, c *pgx.Conn) error {
	var open []int // positions in the page
	var shards []int16
	var runs []pgtype.UUID
	for i := range p.runs {
		if x := p.runs[i].Execution; x != nil && !x.Outcome.Status.Closed() {
			open, shards, runs = append(open, i), append(shards, int16(x.Shard)), append(runs, runArg(x.Start.Run))
		}
	}
	if len(open) == 0 {
		return nil
	}

	var batch pgx.Batch
	batch.Queue(keepPlans)
	batch.Queue(s.sql(loadEventsOf), shards, runs, p.limit, max(1, p.room))
	batch.Queue(s.sql(loadTimersOf), shards, runs)
	results := c.SendBatch(ctx, &batch)
	err := p.scanRest(results, open)
	return cmp.Or(err, results.Close())
}

// scanRest reads the events and timers. If an event fills the page, the page ends with the run of
// that event, and that run may have more events.
func (p *runPage) scanRest(results pgx.BatchResults, open []int) error {
	if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}

	last := 0
	p.room = max(1, p.room)
	err = eachEvent(rows, func(nr int64, e model.Event, size int, err error) error {
		last = open[nr-1]
		r := &p.runs[last]
		if err != nil {
			return fault.New(fault.Corrupt, "run %s, event %d: %w", r.Execution.Start.Run, e.Seq, err)
		}
		r.Events = append(r.Events, e)
		r.More = len(r.Events) == p.limit
		p.room -= size
		return nil
	})
	if err != nil {
		return err
	}
	if p.room <= 0 {
		p.runs[last].More = true
		p.runs = p.runs[:last+1]
	}

	if rows, err = results.Query(); err != nil {
		return err
	}
	return eachTimer(rows, func(nr int64, t *store.Timer) {
		if i := open[nr-1]; i < len(p.runs) {
			p.runs[i].Timers = append(p.runs[i].Timers, *t)
		}
	})
}

// eachEvent reads events of several runs: the number of the run, seq, at, kind, body.
func eachEvent(rows pgx.Rows, each func(nr int64, e model.Event, size int, err error) error) error {
	var nr, seq int64
	var at model.Time
	var kind int16
	var body pgtype.DriverBytes
	_, err := pgx.ForEachRow(rows, []any{&nr, &seq, &at, &kind, &body}, func() error {
		e, err := decodeEvent(seq, at, kind, body)
		return each(nr, e, len(body), err)
	})
	return err
}

// eachTimer reads timers of several runs: the number of the run, and the timer.
func eachTimer(rows pgx.Rows, each func(nr int64, t *store.Timer)) error {
	var nr int64
	var t store.Timer
	var run pgtype.UUID
	_, err := pgx.ForEachRow(rows, []any{&nr, &t.Shard, &t.Due, &run, &t.ID, &t.Address.Tenant, &t.Address.Type, &t.Address.Key}, func() error {
		t.Run = run.Bytes
		each(nr, &t)
		return nil
	})
	return err
}
