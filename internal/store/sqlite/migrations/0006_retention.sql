-- Closed runs of workflows with a retention time of their own, and when each run may be deleted.
-- The sweep finds all other runs without a row here: ids are in the order of their start, so old
-- runs are at the beginning of perdure_executions.
create table perdure_leaving (
  run   blob    not null,
  shard integer not null,
  at    integer not null,
  primary key (run, shard)
) strict, without rowid;

create index perdure_leaving_at on perdure_leaving (shard, at, run);

-- Requests that were refused and kept. A query for old ones reads nothing else.
create index perdure_inbox_letters on perdure_inbox (shard, id) where not_before = 253402300799000000;
