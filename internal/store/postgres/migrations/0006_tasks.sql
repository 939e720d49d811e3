-- Data of tasks beside the history of their run, and settings that people edit at run time.

-- Dead tasks. A row outlives its run. The columns that queries use repeat what the
-- body says.
create table {schema}.dead (
  at          bigint   not null,
  requeued    bigint   not null,                          -- how often
  run         uuid     not null,
  shard       smallint not null,
  task        text     collate "C" not null,
  tenant      text     collate "C" not null,
  kind        text     collate "C" not null,
  queue       text     collate "C" not null,
  fingerprint text     collate "C" not null,
  body        bytea    not null,
  primary key (shard, run, task)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Lists, newest first.
create index dead_at on {schema}.dead (tenant, at, run, task) where at is not null;
-- Groups of what failed in the same way, and lists of one.
create index dead_alike on {schema}.dead (tenant, fingerprint, at, run, task, kind) where fingerprint is not null;
-- What is old, by shard.
create index dead_age on {schema}.dead (shard, at, run, task) where at is not null;

-- The last value per name that a task has reported; the empty name is its progress, which is
-- rewritten often.
create table {schema}.task_data (
  run   uuid     not null,
  shard smallint not null,
  task  text     collate "C" not null,
  name  text     collate "C" not null,
  body  bytea    not null,
  primary key (shard, run, task, name)
) with (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Log lines of tasks. Epoch and batch name the commit, and n is the position in it, because times
-- alone may be equal. Rows are never updated.
create table {schema}.task_logs (
  at    bigint   not null,
  epoch bigint   not null,
  batch bigint   not null,
  run   uuid     not null,
  n     integer  not null,
  shard smallint not null,
  level smallint not null,
  task  text     collate "C" not null,
  text  bytea    not null,                                -- any bytes
  primary key (shard, run, at, epoch, batch, n)
) with (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_insert_threshold = 100000, autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 5000);

-- Forgetting the oldest.
create index task_logs_at on {schema}.task_logs (shard, at) where at is not null;

-- Named resources. Each change draws its version from the counter. A tombstone has no body.
create table {schema}.settings (
  version bigint not null,
  at      bigint not null,
  tenant  text   collate "C" not null,
  kind    text   collate "C" not null,
  name    text   collate "C" not null,
  body    bytea,
  primary key (tenant, kind, name)
) with (fillfactor = 75, autovacuum_vacuum_threshold = 500);

-- What has changed, and old tombstones.
create unique index settings_version on {schema}.settings (version) where version is not null;
create index settings_gone on {schema}.settings (at) where body is null;

-- The one row that every change of a setting locks first. So changes are committed in the order of
-- their versions, and a reader that has read up to a version has missed none below it. The row is
-- not in meta, because there the lock would stop nodes from drawing epochs.
create table {schema}.settings_counter (
  id    smallint not null primary key check (id = 1),
  last  bigint   not null,                                -- the last version drawn
  swept bigint   not null                                 -- the highest of a tombstone that is gone
) with (fillfactor = 50);

insert into {schema}.settings_counter (id, last, swept) values (1, 0, 0);
