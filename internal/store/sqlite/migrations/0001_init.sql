-- Version 1.
--
-- Times are microseconds since 1970; 0 means none. Ids are 16 bytes. Runs are UUIDv7. Keys that
-- begin with the run put everything that is active side by side at the end of its tree, whatever
-- the number of shards, so a batch touches few pages. Bodies are CBOR, followed by the CRC-32C of
-- their row in 4 bytes (see checksum.go). Small columns come first, because SQLite reads a row from
-- its beginning only as far as it must.

create table perdure_meta (
  name  text not null primary key, -- schema, shards, cluster, epoch
  value any  not null
) strict, without rowid;

-- One row per run. Touched by an insert at its start, an update at its close, and an update when it
-- parks or wakes.
create table perdure_executions (
  run      blob    not null,
  shard    integer not null,
  state    integer not null, -- 0 runnable, 1 parked, 2 and more: closed
  current  integer not null, -- 1 for the last run of its address
  started  integer not null,
  closed   integer not null, -- 0 while open
  tenant   text    not null,
  workflow text    not null,
  key      text    not null,
  start    blob,             -- null when it is large: see perdure_starts
  outcome  blob,             -- null while open
  waits    blob,             -- null when there is nothing to say
  blocked  blob,             -- null unless blocked
  primary key (run, shard)
) strict, without rowid;

create unique index perdure_executions_current on perdure_executions (tenant, workflow, key) where current = 1;
create index perdure_executions_runnable on perdure_executions (shard, run) where state = 0;
create index perdure_executions_listing on perdure_executions (tenant, started, run);

-- Starts that are too large for the row of their run, which is rewritten whenever the run parks,
-- wakes and closes.
create table perdure_starts (
  run   blob    not null,
  shard integer not null,
  body  blob    not null,
  primary key (run, shard)
) strict, without rowid;

-- The hot table: an inline step is one insert here, and nothing else.
create table perdure_history (
  run   blob    not null,
  shard integer not null,
  seq   integer not null,
  at    integer not null,
  kind  integer not null,
  body  blob    not null,
  primary key (run, shard, seq)
) strict, without rowid;

create table perdure_timers (
  run      blob    not null,
  shard    integer not null,
  id       text    not null,
  due      integer not null,
  tenant   text    not null,
  workflow text    not null,
  key      text    not null,
  primary key (run, shard, id)
) strict, without rowid;

create index perdure_timers_due on perdure_timers (shard, due, run, id);

create table perdure_messages (
  to_shard   integer not null,
  from_shard integer not null,
  seq        integer not null,
  body       blob    not null,
  primary key (to_shard, from_shard, seq)
) strict, without rowid;

-- The last message consumed, for each pair of shards. Rows are never deleted: a pair can always
-- come back, and after all its messages have been swept, only this row tells the sender where it
-- stands.
create table perdure_cursors (
  to_shard   integer not null,
  from_shard integer not null,
  seq        integer not null,
  primary key (to_shard, from_shard)
) strict, without rowid;

create table perdure_inbox (
  shard      integer not null,
  id         blob    not null,
  not_before integer not null,
  body       blob    not null,
  primary key (shard, id)
) strict, without rowid;

create table perdure_requests (
  shard    integer not null,
  tenant   text    not null,
  workflow text    not null,
  key      text    not null,
  id       text    not null,
  at       integer not null,
  body     blob    not null,
  primary key (shard, tenant, workflow, key, id)
) strict, without rowid;

create index perdure_requests_age on perdure_requests (shard, at);

create table perdure_nodes (
  node      blob    not null primary key,
  epoch     integer not null,
  expires   integer not null,
  draining  integer not null,
  host      text    not null,
  boot      text    not null,
  namespace text    not null,
  pid       integer not null,
  pid_start integer not null,
  version   text    not null
) strict, without rowid;

-- Fences of nodes that are gone are gone with them: a commit that finds no fence is fenced.
create table perdure_fences (
  node  blob    not null,
  lane  integer not null,
  epoch integer not null,
  batch integer not null,
  primary key (node, lane)
) strict, without rowid;

-- Every shard has a row; a free one has no node.
create table perdure_shards (
  shard integer not null primary key,
  node  blob,
  epoch integer not null
) strict, without rowid;
