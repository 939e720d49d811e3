package postgres

import (
	"fmt"
	"strings"
)

// statement is a prepared statement of the commit path.
type statement struct {
	index  int
	name   string
	table  string // the table, for errors that people read
	sql    string
	params int
}

// The statements of a commit, in the order in which they are sent, except that stDelete is sent
// after stErase. A batch leaves out the statements for which it has no rows.
const (
	stFence = iota
	stPatience
	stDelete
	stRemove
	stErase
	stReplace
	stStart
	stStartNew
	stStartIfAbsent
	stClose
	stLeaving
	stMark
	stStartLabel
	stLabel
	stUnlabel
	stEvent
	stOneEvent
	stDead
	stDeadMark
	stDeadDelete
	stTaskDatum
	stDropDatum
	stLog
	stStopTimer
	stTimer
	stStopAll
	stTaken
	stMailbox
	stEntity
	stEntityChange
	stEntityRemove
	stMessage
	stFirstCursor
	stCursor
	stInbox
	stDefer
	stRequest
	stForget
	stTokens
	stFree
	statements // the number of statements
)

// Fences and guards raise an error by converting a text to a number. The log of the server contains
// that text, which tells operators what happened. The server skips the later statements of the
// pipeline and aborts the transaction. Errors of the server's own checks have other codes.
const (
	fencedText = `perdure: the lane was fenced, another process took over; this commit is rolled back, which is harmless`
	guardText  = `perdure: a guarded write did not find its rows as expected; this commit is rolled back`
)

// guard ends a statement whose common table expression w returns one row per row that it touched.
// It raises an error if the number of touched rows differs from the number of elements of the first
// parameter.
const guard = `
select (case when count(*) = cardinality($1) then '1' else '` + guardText + `' end)::integer from w`

// rows returns a subquery u with the rows of parallel arrays, given as "parameter name type".
// Set-returning functions in the list of columns return their rows in parallel. That is much
// cheaper than unnest with several arguments in the from clause, which first stores each array.
func rows(columns string) string {
	var list []string
	for column := range strings.SplitSeq(columns, ", ") {
		part := strings.Fields(column)
		list = append(list, fmt.Sprintf("unnest(%s::%s[]) as %s", part[0], part[2], part[1]))
	}
	return "(select " + strings.Join(list, ", ") + ") u"
}

// The rows of one table are sent as arrays, one per column. The joins below are nested loops over
// the primary key, see laneSettings.
var templates = [statements]struct{ table, sql string }{
	stFence: {"fences", `
with w as (
  update {schema}.fences set batch = $4 where node = $1 and lane = $2 and epoch = $3 and batch = $4::bigint - 1 returning 1
)
select (case when count(*) = 1 then '1' else '` + fencedText + `' end)::integer from w`},

	// Raises the limits for the rest of the transaction. The second setting exists from PostgreSQL
	// 17 on.
	stPatience: {"settings", `
select set_config(s.name, case s.name when 'statement_timeout' then $1::bigint else $2::bigint end::text, true)
from pg_catalog.pg_settings s where s.name in ('statement_timeout', 'transaction_timeout')`},

	// Sweeps remove the events of a deleted run. The statement raises an error if one of the runs
	// is open.
	stDelete: {"executions", `
with w as (
  delete from {schema}.executions e using ` + rows("$1 shard smallint, $2 run uuid") + `
  where e.shard = u.shard and e.run = u.run and e.state > 1
  returning e.shard, e.run
), t as (
  delete from {schema}.leaving t using w where t.shard = w.shard and t.run = w.run
), l as (
  delete from {schema}.labels l using w where l.shard = w.shard and l.run = w.run
), g as (
  insert into {schema}.garbage (shard, run) select shard, run from w on conflict do nothing
)
select (case when exists (
  select 1 from {schema}.executions e join ` + rows("$1 shard smallint, $2 run uuid") + ` on e.shard = u.shard and e.run = u.run where e.state < 2
) then '` + guardText + `' else '1' end)::integer`},

	stRemove: {"executions", `
with u as (select * from ` + rows("$1 shard smallint, $2 run uuid") + `), w as (
  delete from {schema}.executions e using u where e.shard = u.shard and e.run = u.run
), t as (
  delete from {schema}.leaving t using u where t.shard = u.shard and t.run = u.run
), l as (
  delete from {schema}.labels l using u where l.shard = u.shard and l.run = u.run
), r as (
  delete from {schema}.runnable r using u where r.shard = u.shard and r.run = u.run
), d as (
  delete from {schema}.timers d using u where d.shard = u.shard and d.run = u.run
)
insert into {schema}.garbage (shard, run) select shard, run from u on conflict do nothing`},

	stErase: {"entities", `
with u as (select * from ` + rows(entityKey) + `), m as (
  delete from {schema}.mailbox m using u where m.shard = u.shard and m.tenant = u.tenant and m.type = u.type and m.key = u.key
)
delete from {schema}.entities e using u where e.shard = u.shard and e.tenant = u.tenant and e.type = u.type and e.key = u.key`},

	// The test of current is written so that the planner does not read the whole partial index.
	stReplace: {"executions", `
with w as (
  update {schema}.executions e set current = false
  from ` + rows("$1 shard smallint, $2 run uuid, $3 closes boolean, $4 tenant text, $5 workflow text, $6 key text") + `
  where e.shard = u.shard and e.run = u.run and coalesce(e.current, false) and (e.state > 1 or u.closes)
    and e.tenant = u.tenant and e.workflow = u.workflow and e.key = u.key
  returning 1
)` + guard},

	stStart: {"executions", `
with r as (
  insert into {schema}.runnable (shard, run) select * from ` + rows("$1 shard smallint, $2 run uuid") + `
)
insert into {schema}.executions (shard, run, started, state, current, tenant, workflow, key, start)
select u.shard, u.run, u.started, 0, u.current, u.tenant, u.workflow, u.key, u.start
from ` + rows("$1 shard smallint, $2 run uuid, $3 started bigint, $4 current boolean, $5 tenant text, $6 workflow text, $7 key text, $8 start bytea")},

	// Starts with IfAbsent, for the usual case that addresses are free. Returns null if all were
	// inserted, otherwise the concatenated ids of the inserted runs.
	stStartNew: {"executions", `
with i as (
  insert into {schema}.executions (shard, run, started, state, current, tenant, workflow, key, start)
  select u.shard, u.run, u.started, 0, u.current, u.tenant, u.workflow, u.key, u.start
  from ` + rows("$1 shard smallint, $2 run uuid, $3 started bigint, $4 current boolean, $5 tenant text, $6 workflow text, $7 key text, $8 start bytea") + `
  on conflict (key, workflow, tenant, shard) where current do nothing
  returning shard, run
), r as (
  insert into {schema}.runnable (shard, run) select shard, run from i
)
select case when count(*) < cardinality($1) then (select coalesce(string_agg(uuid_send(run), ''), '') from i) end from i`},

	// Starts with IfAbsent, if the lane expects that addresses are taken. The comparison of the
	// shard is written so that it matches no index. So the plan finds the run by its address.
	// Otherwise the plan could read the primary key of the whole shard, if the server makes the
	// plan while the table is empty and both ways cost the same.
	//
	// Returns the index of each start that was not inserted, with the run that has the address. The
	// run is missing if it was committed after this statement had begun. That cannot happen while
	// an address has only one writer.
	stStartIfAbsent: {"executions", `
with i as (
  insert into {schema}.executions (shard, run, started, state, current, tenant, workflow, key, start)
  select u.shard, u.run, u.started, 0, u.current, u.tenant, u.workflow, u.key, u.start
  from ` + rows("$1 shard smallint, $2 run uuid, $3 started bigint, $4 current boolean, $5 tenant text, $6 workflow text, $7 key text, $8 start bytea") + `
  on conflict (key, workflow, tenant, shard) where current do nothing
  returning shard, run
), r as (
  insert into {schema}.runnable (shard, run) select shard, run from i
)
select u.start, e.*
from ` + rows("$9 start integer, $1 shard smallint, $2 run uuid, $5 tenant text, $6 workflow text, $7 key text") + `
left join lateral (
  select {execution} from {schema}.executions e
  where e.key = u.key and e.workflow = u.workflow and e.tenant = u.tenant and e.shard is not distinct from u.shard and e.current limit 1) e on true
where (u.shard, u.run) not in (select shard, run from i)`},

	stClose: {"executions", `
with r as (
  delete from {schema}.runnable q using ` + rows("$1 shard smallint, $2 run uuid") + ` where q.shard = u.shard and q.run = u.run
), w as (
  update {schema}.executions e set state = u.state, closed = u.closed, outcome = u.outcome, waits = null, blocked = null, reason = null
  from ` + rows("$1 shard smallint, $2 run uuid, $3 state smallint, $4 closed bigint, $5 outcome bytea") + `
  where e.shard = u.shard and e.run = u.run and e.state < 2
  returning 1
)` + guard},

	stLeaving: {"leaving", `
insert into {schema}.leaving (shard, run, at) select * from ` + rows("$1 shard smallint, $2 run uuid, $3 at bigint")},

	stMark: {"executions", `
with d as (
  delete from {schema}.runnable q using ` + rows("$1 shard smallint, $2 run uuid, $3 state smallint") + `
  where q.shard = u.shard and q.run = u.run and u.state = 1
), i as (
  insert into {schema}.runnable (shard, run)
  select u.shard, u.run from ` + rows("$1 shard smallint, $2 run uuid, $3 state smallint") + ` where u.state = 0
  on conflict do nothing
), w as (
  update {schema}.executions e set state = u.state, waits = u.waits, blocked = u.blocked, reason = nullif(u.reason, '')
  from ` + rows("$1 shard smallint, $2 run uuid, $3 state smallint, $4 waits bytea, $5 blocked bytea, $6 reason text") + `
  where e.shard = u.shard and e.run = u.run and e.state < 2
  returning 1
)` + guard},

	// The labels of starts. A start that was not inserted has no run for its labels.
	stStartLabel: {"labels", `
insert into {schema}.labels (started, run, shard, tenant, name, value)
select e.started, e.run, e.shard, e.tenant, u.name, u.value
from ` + rows("$1 shard smallint, $2 run uuid, $3 name text, $4 value text") + `
join {schema}.executions e on e.shard = u.shard and e.run = u.run`},

	stLabel: {"labels", `
with w as (
  insert into {schema}.labels (started, run, shard, tenant, name, value)
  select e.started, e.run, e.shard, e.tenant, u.name, u.value
  from ` + rows("$1 shard smallint, $2 run uuid, $3 name text, $4 value text") + `
  join {schema}.executions e on e.shard = u.shard and e.run = u.run
  on conflict (shard, run, name) do update set value = excluded.value
  returning 1
)` + guard},

	stUnlabel: {"labels", `
delete from {schema}.labels l using ` + rows("$1 shard smallint, $2 run uuid, $3 name text") + `
where l.shard = u.shard and l.run = u.run and l.name = u.name`},

	stEvent: {"history", `
insert into {schema}.history (shard, run, seq, at, kind, body)
select * from ` + rows("$1 shard smallint, $2 run uuid, $3 seq bigint, $4 at bigint, $5 kind smallint, $6 body bytea")},

	// A single workflow commits its steps one by one. A statement without arrays costs a third
	// less.
	stOneEvent: {"history", `
insert into {schema}.history (shard, run, seq, at, kind, body) values ($1, $2, $3, $4, $5, $6)`},

	stDead: {"dead", `
insert into {schema}.dead (shard, run, task, requeued, at, tenant, kind, queue, fingerprint, body)
select * from ` + rows(deadParams)},

	// The comparison of the other columns is written so that it matches no index. The plan finds
	// the row by the key alone.
	stDeadMark: {"dead", `
with w as (
  update {schema}.dead d set requeued = u.requeued, body = u.body from ` + rows(deadParams+", $11 prev bigint") + `
  where d.shard = u.shard and d.run = u.run and d.task = u.task and d.requeued = u.prev and d.at is not distinct from u.at
    and (d.tenant, d.kind, d.queue, d.fingerprint) is not distinct from (u.tenant, u.kind, u.queue, u.fingerprint)
  returning 1
)` + guard},

	stDeadDelete: {"dead", `
with w as (
  delete from {schema}.dead d using ` + rows("$1 shard smallint, $2 run uuid, $3 task text") + `
  where d.shard = u.shard and d.run = u.run and d.task = u.task
  returning 1
)` + guard},

	stTaskDatum: {"task_data", `
insert into {schema}.task_data (shard, run, task, name, body)
select * from ` + rows("$1 shard smallint, $2 run uuid, $3 task text, $4 name text, $5 body bytea") + `
on conflict (shard, run, task, name) do update set body = excluded.body`},

	stDropDatum: {"task_data", `
delete from {schema}.task_data d using ` + rows("$1 shard smallint, $2 run uuid, $3 task text, $4 name text") + `
where d.shard = u.shard and d.run = u.run and d.task = u.task and d.name = u.name`},

	stLog: {"task_logs", `
insert into {schema}.task_logs (epoch, batch, shard, run, at, n, level, task, text)
select $8::bigint, $9::bigint, u.*
from ` + rows("$1 shard smallint, $2 run uuid, $3 at bigint, $4 n integer, $5 level smallint, $6 task text, $7 text bytea")},

	stStopTimer: {"timers", `
with w as (
  delete from {schema}.timers t using ` + rows("$1 shard smallint, $2 run uuid, $3 id text") + `
  where t.shard = u.shard and t.run = u.run and t.id = u.id
  returning 1
)` + guard},

	stTimer: {"timers", `
insert into {schema}.timers (shard, run, id, due, tenant, workflow, key)
select * from ` + rows("$1 shard smallint, $2 run uuid, $3 id text, $4 due bigint, $5 tenant text, $6 workflow text, $7 key text")},

	stStopAll: {"timers", `
delete from {schema}.timers t using ` + rows("$1 shard smallint, $2 run uuid") + ` where t.shard = u.shard and t.run = u.run`},

	stTaken: {"mailbox", `
with w as (
  delete from {schema}.mailbox m using ` + rows(entityKey+", $5 seq bigint") + `
  where m.shard = u.shard and m.tenant = u.tenant and m.type = u.type and m.key = u.key and m.seq = u.seq
  returning 1
)` + guard},

	stMailbox: {"mailbox", `
insert into {schema}.mailbox (shard, tenant, type, key, seq, at, body)
select * from ` + rows(entityKey+", $5 seq bigint, $6 at bigint, $7 body bytea")},

	stEntity: {"entities", `
insert into {schema}.entities (shard, tenant, type, key, version, changed, locked, body)
select * from ` + rows(entityKey+", $5 version bigint, $6 changed bigint, $7 locked boolean, $8 body bytea")},

	stEntityChange: {"entities", `
with w as (
  update {schema}.entities e set version = u.version, changed = u.changed, locked = u.locked, body = u.body
  from ` + rows(entityKey+", $5 prev bigint, $6 version bigint, $7 changed bigint, $8 locked boolean, $9 body bytea") + `
  where e.shard = u.shard and e.tenant = u.tenant and e.type = u.type and e.key = u.key and e.version = u.prev
  returning 1
)` + guard},

	stEntityRemove: {"entities", `
with w as (
  delete from {schema}.entities e using ` + rows(entityKey+", $5 prev bigint") + `
  where e.shard = u.shard and e.tenant = u.tenant and e.type = u.type and e.key = u.key and e.version = u.prev
  returning 1
)` + guard},

	stMessage: {"messages", `
insert into {schema}.messages (to_shard, from_shard, seq, body)
select * from ` + rows("$1 to_shard smallint, $2 from_shard smallint, $3 seq bigint, $4 body bytea")},

	stFirstCursor: {"cursors", `
insert into {schema}.cursors (to_shard, from_shard, position) select * from ` + rows("$1 to_shard smallint, $2 from_shard smallint, $3 position bigint")},

	stCursor: {"cursors", `
with w as (
  update {schema}.cursors c set position = u.next
  from ` + rows("$1 to_shard smallint, $2 from_shard smallint, $3 prev bigint, $4 next bigint") + `
  where c.to_shard = u.to_shard and c.from_shard = u.from_shard and c.position = u.prev
  returning 1
)` + guard},

	stInbox: {"inbox", `
with w as (
  delete from {schema}.inbox i using ` + rows("$1 shard smallint, $2 id uuid") + ` where i.shard = u.shard and i.id = u.id
  returning 1
)` + guard},

	stDefer: {"inbox", `
insert into {schema}.inbox (shard, id, not_before, tenant, workflow, key, request, body)
select * from ` + rows("$1 shard smallint, $2 id uuid, $3 not_before bigint, $4 tenant text, $5 workflow text, $6 key text, $7 request text, $8 body bytea") + `
on conflict (shard, id) do update set not_before = excluded.not_before`},

	// The refusal of an inbox row may already be stored: see store.Batch.Requests.
	stRequest: {"requests", `
insert into {schema}.requests (shard, tenant, workflow, key, id, at, body)
select * from ` + rows("$1 shard smallint, $2 tenant text, $3 workflow text, $4 key text, $5 id text, $6 at bigint, $7 body bytea") + `
where not starts_with(u.id, E'\x1frefused ') or not exists (select from {schema}.requests r
  where r.shard = u.shard and r.key = u.key and r.id = u.id and r.workflow = u.workflow and r.tenant = u.tenant)`},

	stForget: {"requests", `
delete from {schema}.requests r using ` + rows("$1 shard smallint, $2 tenant text, $3 workflow text, $4 key text, $5 id text") + `
where r.shard = u.shard and r.key = u.key and r.id = u.id and r.workflow = u.workflow and r.tenant = u.tenant`},

	stTokens: {"shards", `
with w as (
  update {schema}.shards s set tokens = greatest(s.tokens, u.mark) from ` + rows("$1 shard smallint, $2 mark bigint") + ` where s.shard = u.shard
  returning 1
)` + guard},

	stFree: {"shards", `
with w as (
  update {schema}.shards s set node = null, epoch = 0 from ` + rows("$1 shard smallint") + ` where s.shard = u.shard and s.node = $2
  returning 1
)` + guard},
}

// deadParams are the columns of a dead task.
const deadParams = "$1 shard smallint, $2 run uuid, $3 task text, $4 requeued bigint, $5 at bigint, " +
	"$6 tenant text, $7 kind text, $8 queue text, $9 fingerprint text, $10 body bytea"

// entityKey are the columns of the key of an entity.
const entityKey = "$1 shard smallint, $2 tenant text, $3 type text, $4 key text"

// executionColumns are the columns of an execution in the order of executionRow's readers.
const executionColumns = `e.shard, e.run, e.started, e.state, e.closed, e.current, e.tenant, e.workflow, e.key, e.start, e.outcome, e.waits, e.blocked`

// expand inserts the name of the schema and the columns of an execution into a statement.
func expand(schema, sql string) string {
	return strings.NewReplacer("{schema}", schema, "{execution}", executionColumns, "{now}", storeClock).Replace(strings.TrimSpace(sql))
}

// storeClock is the time of the server in microseconds, at this moment and not at the beginning of
// the transaction.
const storeClock = `(extract(epoch from clock_timestamp()) * 1000000)::bigint`

// prepare creates the statements for a schema.
func prepare(schema string) *[statements]statement {
	var out [statements]statement
	for i, t := range templates {
		params := 0
		for n := 1; strings.Contains(t.sql, fmt.Sprintf("$%d", n)); n++ {
			params = n
		}
		out[i] = statement{index: i, name: fmt.Sprintf("perdure_%d", i), table: t.table, sql: expand(schema, t.sql), params: params}
	}
	return &out
}
