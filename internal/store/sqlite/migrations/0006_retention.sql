-- Closed runs by age, so that those whose time is over are found without a look at the others. One row is written when a run closes.
--
-- own tells that at is when the run may be removed, by the wish of its workflow; else it is when the run was closed, or began here if that
-- came later, and how long it is kept is a matter of the node.
create table perdure_closed (
  shard integer not null,
  own   integer not null,
  at    integer not null,
  run   blob    not null,
  primary key (shard, own, at, run)
) strict, without rowid;

-- The time of its own that a closed run has; 0 when it has none. It leads from the run to its row in perdure_closed.
alter table perdure_executions add column leaves integer not null default 0;

insert into perdure_closed (shard, own, at, run)
select shard, 0, max(closed, started), run from perdure_executions where state > 1;

-- Requests that were refused and kept: whoever looks for the old ones meets nothing else.
create index perdure_inbox_letters on perdure_inbox (shard, id) where not_before = 253402300799000000;
