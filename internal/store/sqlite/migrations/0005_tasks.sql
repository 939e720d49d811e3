-- Version 5: data of tasks beside the history of their run, and settings that people edit at run
-- time.

-- Dead tasks. A row outlives its run. The columns that queries use repeat what the
-- body says.
create table perdure_dead (
  run         blob    not null,
  shard       integer not null,
  task        text    not null,
  requeued    integer not null, -- how often
  at          integer not null,
  tenant      text    not null,
  kind        text    not null,
  queue       text    not null,
  fingerprint text    not null,
  body        blob    not null,
  primary key (run, shard, task)
) strict, without rowid;

-- Lists, newest first; groups and lists of what failed in the same way; what is old, by shard.
create index perdure_dead_listing on perdure_dead (tenant, at, run, task);
create index perdure_dead_alike on perdure_dead (tenant, fingerprint, at, run, task, kind);
create index perdure_dead_age on perdure_dead (shard, at, run, task);

-- The last value per name that a task has reported; the empty name is its progress.
create table perdure_task_data (
  run   blob    not null,
  shard integer not null,
  task  text    not null,
  name  text    not null,
  body  blob    not null,
  primary key (run, shard, task, name)
) strict, without rowid;

-- Log lines of tasks. Epoch and batch name the commit, and n is the position in it, because times
-- alone may be equal.
create table perdure_task_logs (
  run   blob    not null,
  shard integer not null,
  at    integer not null,
  epoch integer not null,
  batch integer not null,
  n     integer not null,
  level integer not null,
  task  text    not null,
  body  blob    not null,
  primary key (run, shard, at, epoch, batch, n)
) strict, without rowid;

create index perdure_task_logs_age on perdure_task_logs (shard, at);

-- Named resources. Each change draws its version from the counter. A tombstone has no body.
create table perdure_settings (
  tenant  text    not null,
  kind    text    not null,
  name    text    not null,
  version integer not null,
  at      integer not null,
  body    blob,
  primary key (tenant, kind, name)
) strict, without rowid;

create unique index perdure_settings_version on perdure_settings (version);
create index perdure_settings_gone on perdure_settings (at) where body is null;

-- The counter, and the highest version of a tombstone that has been swept.
insert into perdure_meta (name, value) values ('settings', 0), ('settings_swept', 0);
