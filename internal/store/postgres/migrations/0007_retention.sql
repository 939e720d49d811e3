-- Closed runs by age, so that those whose time is over are found without a look at the others. It is a table and not an index of executions for the
-- reason that the set of runnable runs is one: a close would change an indexed column then, and write all indexes. One row is written when a run closes,
-- nothing before.
--
-- own tells that at is when the run may be removed, by the wish of its workflow; else it is when the run was closed, or began here if that
-- came later, and how long it is kept is a matter of the node.
create table {schema}.closed (
  at    bigint   not null,
  run   uuid     not null,
  shard smallint not null,
  own   boolean  not null,
  primary key (shard, own, at, run)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- The time of its own that a closed run has; 0 when it has none. It leads from the run to its row in closed.
alter table {schema}.executions add column leaves bigint not null default 0;

insert into {schema}.closed (at, run, shard, own)
select greatest(closed, started), run, shard, false from {schema}.executions where state > 1;
