-- Version 4: labels, and the main reason why an open run does not move, for listings.

-- One row per label of a run. tenant and started repeat the run, so that a list by label
-- finds its rows in order here.
create table {schema}.labels (
  started bigint   not null,
  run     uuid     not null,
  shard   smallint not null,
  tenant  text     collate "C" not null,
  name    text     collate "C" not null,
  value   text     collate "C" not null,
  primary key (shard, run, name)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- Lists by a label, newest first.
create index labels_value on {schema}.labels (tenant, name, value, started, run) where value is not null;

-- Null means that the run is ready for its turn, or closed. It is not indexed: it changes whenever
-- a run parks, and an update that touches an indexed column writes all indexes.
alter table {schema}.executions add column reason text collate "C";

-- Runs that parked or were blocked before this version. A stored list of reasons begins with its
-- length, the first map, key 1 and the code as a text of less than 24 bytes; the head of the text
-- is 96 plus its length.
update {schema}.executions e
set reason = nullif(nullif(convert_from(substring(b.body from b.head + 4 for get_byte(b.body, b.head + 2) - 96), 'UTF8'), ''), 'ready')
from (
  select x.shard, x.run, coalesce(x.blocked, x.waits) as body,
    case get_byte(coalesce(x.blocked, x.waits), 0) when 152 then 2 when 153 then 3 else 1 end as head
  from {schema}.executions x
  where x.state < 2 and (x.blocked is not null or (x.state = 1 and x.waits is not null))
) b
where e.shard = b.shard and e.run = b.run;

-- The few runs that continue only after a change by an operator. Runs that are never blocked do
-- not touch this index, not even when they park.
create index executions_blocked on {schema}.executions (tenant, started) where blocked is not null;
