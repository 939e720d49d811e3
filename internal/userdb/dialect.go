package userdb

// Dialect is a dialect of SQL.
type Dialect string

// Dialects.
const (
	Unknown    Dialect = ""
	PostgreSQL Dialect = "PostgreSQL"
	SQLite     Dialect = "SQLite"
)

// dialect has the statements that differ between databases. The statements have placeholders.
// {table} stands for the name of the table, {schema.} for its schema and a dot, and {now} for an
// expression: the time of the database in milliseconds since 1970. Without a schema, {schema.}
// stands for nothing. Parameters are numbered with $ and become ?1 for SQLite.
type dialect struct {
	name    Dialect
	now     string
	version string // a query that fails in other databases
	limits  string // reads the limits of the server, in milliseconds
	lock    string // keeps other processes from creating tables at the same time
	exists  string
	create  map[Table]string
	upgrade map[Table][]upgrade // changes of later versions, oldest first

	begin string // claims an outcome for an attempt that is about to act
	page  string // reads a page of the outbox
	// attempt counts an attempt to deliver messages, and records the time of the first attempt of
	// each message.
	attempt     string
	held        string // messages whose last attempt is the given one
	finished    string // removes delivered messages
	deadLetters string // a page of dead letters
	runs        string // a page of runs that have outcomes
	search      map[Table]string
}

// upgrade is a change of a table that an older version has created.
type upgrade struct {
	done string // a query that reports whether the table has the change
	ddl  string
}

// triedByOlder changes the waiting messages in a table of an older version. That version did not
// record its attempts. So the statement takes the time at which a message was put as the time of
// its first attempt.
const triedByOlder = ";\nupdate {table} set tried = at where error is null and tried is null"

var postgres = dialect{
	name:    PostgreSQL,
	now:     `(extract(epoch from clock_timestamp()) * 1000)::bigint`,
	version: `select current_setting('server_version_num')`,
	limits: `select coalesce(max(setting::bigint) filter (where name = 'idle_in_transaction_session_timeout'), 0),
  coalesce(max(setting::bigint) filter (where name = 'statement_timeout'), 0),
  coalesce(max(setting::bigint) filter (where name = 'transaction_timeout'), -1)
from pg_catalog.pg_settings`,
	lock:   `select pg_advisory_xact_lock(hashtext('perdure create tables'))`,
	exists: `select to_regclass($1::text) is not null`,
	create: map[Table]string{
		Outcomes: `create table if not exists {table} (
  run        text collate "C" not null,
  step       text collate "C" not null,
  generation integer not null,
  execution  text not null,
  cluster    text not null,
  at         bigint not null default {now},
  outcome    bytea,
  primary key (run, step, generation)
)`,
		Outbox: `create table if not exists {table} (
  id         text collate "C" primary key,
  tx         bigint not null default txid_current(),
  cluster    text not null,
  kind       text not null,
  execution  text not null,
  at         bigint not null default {now},
  due        bigint not null default 0,
  tries      integer not null default 0,
  body       bytea not null,
  error      text,
  tried      bigint
);
create index if not exists perdure_outbox_waiting on {table} (cluster, tx, id) where error is null`,
	},
	upgrade: map[Table][]upgrade{Outbox: {{
		done: `select exists (select from pg_catalog.pg_attribute where attrelid = to_regclass($1::text) and attname = 'tried' and not attisdropped)`,
		ddl:  "alter table {table} add column if not exists tried bigint" + triedByOlder,
	}}},
	// The settings apply only to this transaction. The last setting does not exist in all versions
	// of PostgreSQL, see Database.begin.
	begin: `insert into {table} (run, step, generation, execution, cluster)
select $1::text, $2::text, $3::integer, $4::text, $5::text
where {now} < $6::bigint
  and set_config('idle_in_transaction_session_timeout', $7::text, true) is not null
  and set_config('statement_timeout', $8::text, true) is not null{whole}
on conflict (run, step, generation) do nothing`,
	// A relay that has locked the first message of a transaction takes all messages of that
	// transaction. So two relays never deliver parts of one transaction at the same time.
	page: `with heads as (
  select o.tx from {table} o
  where o.cluster = $1::text and o.error is null and o.due <= {now} and not exists (
    select from {table} p where p.cluster = o.cluster and p.tx = o.tx and p.error is null and p.id < o.id)
  order by o.tx limit $2::integer for update skip locked
), waiting as (
  select m.id, m.tx, m.execution, m.kind, m.body, m.tried, m.tries,
    sum(length(m.body)) over (order by m.tx, m.id) - length(m.body) as before
  from {table} m join heads h on h.tx = m.tx where m.cluster = $1::text and m.error is null
  order by m.tx, m.id limit 4 * $2::integer
)
select coalesce(json_agg(json_build_object('id', id, 'execution', execution, 'kind', kind, 'body', encode(body, 'hex'),
  'tried', tried, 'tries', tries, 'now', {now}) order by tx, id), '[]')::text
from waiting where before < $3::bigint and set_config('idle_in_transaction_session_timeout', '60000', true) is not null`,
	attempt: `update {table} o set tried = coalesce(o.tried, {now}), tries = o.tries + 1
from json_each_text($1::json) l where o.id = l.key and o.tries = l.value::integer and o.error is null`,
	held: `select coalesce(json_agg(id), '[]')::text from (
  select o.id from {table} o join json_each_text($1::json) l on o.id = l.key and o.tries = l.value::integer
  where o.error is null order by o.tx, o.id for update of o skip locked
) h where set_config('idle_in_transaction_session_timeout', '60000', true) is not null`,
	finished: `delete from {table} where id in (select json_array_elements_text($1::json))`,
	deadLetters: `select coalesce(json_agg(json_build_object('id', id, 'execution', execution, 'kind', kind, 'at', at, 'error', error) order by id), '[]')::text
from (select * from {table} where cluster = $1::text and error is not null and id > $2::text order by id limit $3::integer) l`,
	runs: `select coalesce(json_agg(json_build_object('run', run, 'execution', execution, 'at', at) order by run), '[]')::text
from (select run, max(execution) as execution, max(at) as at from {table} where cluster = $1::text and run > $2::text and run < $3::text group by run order by run limit $4::integer) r`,
	search: map[Table]string{
		Outcomes: `select coalesce(json_agg(json_build_object('id', run, 'step', step, 'generation', generation, 'value', encode(outcome, 'hex')) order by run, step, generation), '[]')::text
from (select * from {table} where (run, step, generation) > ($3::text, $4::text, $5::integer) and position($1::bytea in outcome) > 0
  order by run, step, generation limit $2::integer) h`,
		Outbox: `select coalesce(json_agg(json_build_object('id', id, 'value', encode(body, 'hex')) order by id), '[]')::text
from (select * from {table} where id > $3::text and position($1::bytea in body) > 0 order by id limit $2::integer) h`,
	},
}

var sqlite = dialect{
	name:    SQLite,
	now:     `cast((julianday('now') - 2440587.5) * 86400000 as integer)`,
	version: `select sqlite_version()`,
	exists:  `select exists (select 1 from {schema.}sqlite_master where type = 'table' and name = $1)`,
	create: map[Table]string{
		Outcomes: `create table if not exists {table} (
  run        text not null,
  step       text not null,
  generation integer not null,
  execution  text not null,
  cluster    text not null,
  at         integer not null default ({now}),
  outcome    blob,
  primary key (run, step, generation)
)`,
		// SQLite has one writer at a time, so the order of the rows is the order of the
		// transactions.
		Outbox: `create table if not exists {table} (
  seq        integer primary key autoincrement,
  id         text not null unique,
  cluster    text not null,
  kind       text not null,
  execution  text not null,
  at         integer not null default ({now}),
  due        integer not null default 0,
  tries      integer not null default 0,
  body       blob not null,
  error      text,
  tried      integer
);
create index if not exists {schema.}perdure_outbox_waiting on perdure_outbox (cluster, seq) where error is null`,
	},
	upgrade: map[Table][]upgrade{Outbox: {{
		done: `select exists (select 1 from {schema.}sqlite_master where type = 'table' and name = $1 and instr(sql, 'tried') > 0)`,
		ddl:  "alter table {table} add column tried integer" + triedByOlder,
	}}},
	begin: `insert into {table} (run, step, generation, execution, cluster)
select $1, $2, $3, $4, $5 where {now} < $6
on conflict (run, step, generation) do nothing`,
	// A message that waits for its time holds back later messages to the same target.
	page: `with waiting as (
  select seq, id, execution, kind, body, due, tried, tries from {table} where cluster = $1 and error is null order by seq limit 16 * $2
), ready as (
  select * from waiting w where not exists (select 1 from waiting e where e.execution = w.execution and e.seq <= w.seq and e.due > {now})
  order by seq limit 4 * $2
), sized as (
  select *, sum(length(body)) over (order by seq) - length(body) as before from ready
)
select coalesce((select json_group_array(json_object('id', id, 'execution', execution, 'kind', kind, 'body', hex(body),
  'tried', tried, 'tries', tries, 'now', {now}))
  from (select * from sized where before < $3 order by seq)), '[]')`,
	attempt: `update {table} set tried = coalesce(tried, {now}), tries = tries + 1
where error is null and (id, tries) in (select key, value from json_each($1))`,
	held: `select coalesce((select json_group_array(id) from {table}
  where error is null and (id, tries) in (select key, value from json_each($1))), '[]')`,
	finished: `delete from {table} where id in (select value from json_each($1))`,
	deadLetters: `select coalesce((select json_group_array(json_object('id', id, 'execution', execution, 'kind', kind, 'at', at, 'error', error))
  from (select * from {table} where cluster = $1 and error is not null and id > $2 order by id limit $3)), '[]')`,
	runs: `select coalesce((select json_group_array(json_object('run', run, 'execution', execution, 'at', at))
  from (select run, max(execution) as execution, max(at) as at from {table} where cluster = $1 and run > $2 and run < $3 group by run order by run limit $4)), '[]')`,
	search: map[Table]string{
		Outcomes: `select coalesce((select json_group_array(json_object('id', run, 'step', step, 'generation', generation, 'value', hex(outcome)))
  from (select * from {table} where (run, step, generation) > ($3, $4, $5) and instr(outcome, $1) > 0 order by run, step, generation limit $2)), '[]')`,
		Outbox: `select coalesce((select json_group_array(json_object('id', id, 'value', hex(body)))
  from (select * from {table} where id > $3 and instr(body, $1) > 0 order by id limit $2)), '[]')`,
	},
}
