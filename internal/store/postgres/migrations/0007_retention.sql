-- Closed runs whose workflow has a retention time of its own, and when they leave. All others are found without a row anywhere: ids are in the order
-- of their beginning, so the old ones stand at the beginning of each shard in the primary key of executions.
create table {schema}.leaving (
  at    bigint   not null,
  run   uuid     not null,
  shard smallint not null,
  primary key (shard, run)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- The first ones to leave.
create index leaving_at on {schema}.leaving (shard, at, run) where at is not null;
