-- Version 1. {schema} stands for the quoted name of the schema.
--
-- Times are microseconds since 1970; 0 means none. Bodies are CBOR (internal/model/codec.go).
--
-- Every hot table has the shard first in its key, so that the tables can be spread by shard. There
-- is no sequence, no trigger and no foreign key. Columns are ordered by alignment where nothing
-- else matters. Texts compare by their bytes, whatever the collation of the database. Each write of
-- a table pays for all its indexes, so a comment says what an index is for. Most secondary indexes
-- have a condition that always holds ("is not null"). It hides them from all queries except those
-- that name that column. Without it, PostgreSQL may plan a query while the table is empty, choose
-- the wrong one of two indexes that cost the same then, and walk through a million rows later.

-- The one row of facts about the store.
create table {schema}.meta (
  id      smallint not null primary key check (id = 1),
  shards  integer  not null,                              -- fixed for ever
  epoch   bigint   not null,                              -- the counter of epochs
  created bigint   not null,
  cluster uuid     not null default gen_random_uuid()
) with (fillfactor = 50);

-- One row per run. It is inserted at the start of the run, and updated when the run parks, wakes or
-- closes. These updates touch no indexed column, so they leave the indexes alone as long as there
-- is room on the page. Columns that change stand behind columns that do not, so that little is
-- written to the log. The set of runnable runs is a table of its own, not a partial index on state,
-- because the predicate of an index counts as an indexed column.
create table {schema}.executions (
  started  bigint   not null,
  run      uuid     not null,
  shard    smallint not null,
  current  boolean  not null,                             -- the last run of its address
  tenant   text     collate "C" not null,
  workflow text     collate "C" not null,
  key      text     collate "C" not null,
  start    bytea    not null,
  state    smallint not null,                             -- 0 runnable, 1 parked, 2 and more: closed
  closed   bigint   not null default 0,
  outcome  bytea,                                         -- null while open
  waits    bytea,                                         -- null when there is nothing to say
  blocked  bytea,                                         -- null unless blocked
  primary key (shard, run)
) with (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_scale_factor = 0.05);

-- At most one current run per address, and the way to it.
create unique index executions_current on {schema}.executions (key, workflow, tenant, shard) where current;
-- Lists, newest first.
create index executions_started on {schema}.executions (tenant, started) where started is not null;

-- The open runs that are not parked: what a new owner of a shard has to look at.
create table {schema}.runnable (
  run   uuid     not null,
  shard smallint not null,
  primary key (shard, run)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The hot table: an inline step is one row here, and nothing else. Rows are never updated.
create table {schema}.history (
  seq   bigint   not null,
  at    bigint   not null,
  run   uuid     not null,
  shard smallint not null,
  kind  smallint not null,
  body  bytea    not null,
  primary key (shard, run, seq)
) with (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_insert_threshold = 100000);

create table {schema}.timers (
  due      bigint   not null,
  run      uuid     not null,
  shard    smallint not null,
  id       text     collate "C" not null,
  tenant   text     collate "C" not null,
  workflow text     collate "C" not null,
  key      text     collate "C" not null,
  primary key (shard, run, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The window of timers that are due next.
create index timers_due on {schema}.timers (shard, due, run, id) where due is not null;

create table {schema}.messages (
  seq        bigint   not null,
  to_shard   smallint not null,
  from_shard smallint not null,
  body       bytea    not null,
  primary key (to_shard, from_shard, seq)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- How far the messages of a pair of shards have been consumed. Rows are never deleted: a pair can
-- always come back, and after all its messages have been swept, only this row tells the sender
-- where it stands.
create table {schema}.cursors (
  position   bigint   not null,
  to_shard   smallint not null,
  from_shard smallint not null,
  primary key (to_shard, from_shard)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The positions that travel with a sending shard.
create index cursors_from on {schema}.cursors (from_shard, to_shard);

-- Requests of processes that do not own the shard, until the owner consumes them.
create table {schema}.inbox (
  not_before bigint   not null,
  id         uuid     not null,
  shard      smallint not null,
  tenant     text     collate "C" not null,
  workflow   text     collate "C" not null,
  key        text     collate "C" not null,
  request    text     collate "C" not null,               -- empty: cannot be remembered
  body       bytea    not null,
  primary key (shard, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Answers that are remembered for a while.
create table {schema}.requests (
  at       bigint   not null,
  shard    smallint not null,
  tenant   text     collate "C" not null,
  workflow text     collate "C" not null,
  key      text     collate "C" not null,
  id       text     collate "C" not null,
  body     bytea    not null,
  primary key (shard, key, id, workflow, tenant)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- Forgetting the oldest.
create index requests_at on {schema}.requests (shard, at) where at is not null;

-- Processes and their leases.
create table {schema}.nodes (
  node      uuid     not null primary key,
  epoch     bigint   not null,
  expires   bigint   not null,
  pid_start bigint   not null,
  pid       integer  not null,
  draining  boolean  not null default false,
  host      text     not null,
  boot      text     not null,
  namespace text     not null,
  version   text     not null
) with (fillfactor = 50, autovacuum_vacuum_threshold = 500);

-- One row per lane: a commit is the guarded update of batch n-1 to n. The number is part of the
-- key. This looks wasteful, because the update cannot be heap-only, but it lets a commit find its
-- row at once even when a long-running reader keeps a million dead versions of the row alive. With
-- a key of (node, lane) the commit would walk through all of them. When a node is removed, its
-- fences are removed with it, so that it cannot commit.
create table {schema}.fences (
  node  uuid    not null,
  epoch bigint  not null,
  batch bigint  not null,
  lane  integer not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

create unique index fences_batch on {schema}.fences (node, lane, batch);

-- Who owns which shard. Every shard has a row; a free one has no node.
create table {schema}.shards (
  epoch bigint   not null default 0,
  node  uuid,
  shard smallint not null primary key
) with (fillfactor = 50);
