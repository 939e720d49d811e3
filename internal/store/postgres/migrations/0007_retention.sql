-- Closed runs of workflows with a retention time of their own, and when each run may be deleted.
-- The sweep finds all other runs without a row here: ids are in the order of their start, so old
-- runs are at the beginning of each shard in the primary key of executions.
create table {schema}.leaving (
  at    bigint   not null,
  run   uuid     not null,
  shard smallint not null,
  primary key (shard, run)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- The first ones to leave.
create index leaving_at on {schema}.leaving (shard, at, run) where at is not null;
