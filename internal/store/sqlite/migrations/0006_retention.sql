-- Closed runs whose workflow has a retention time of its own, and when they leave. All others are found without a row anywhere: ids are in the order
-- of their beginning, so the old ones stand at the beginning of perdure_executions.
create table perdure_leaving (
  run   blob    not null,
  shard integer not null,
  at    integer not null,
  primary key (run, shard)
) strict, without rowid;

create index perdure_leaving_at on perdure_leaving (shard, at, run);

-- Requests that were refused and kept: whoever looks for the old ones meets nothing else.
create index perdure_inbox_letters on perdure_inbox (shard, id) where not_before = 253402300799000000;
