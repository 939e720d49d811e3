-- Version 2: labels, and the main reason why an open run does not move, for listings.

-- One row per label of a run. tenant and started repeat the run.
create table perdure_labels (
  run     blob    not null,
  shard   integer not null,
  name    text    not null,
  value   text    not null,
  tenant  text    not null,
  started integer not null,
  primary key (run, shard, name)
) strict, without rowid;

create index perdure_labels_value on perdure_labels (tenant, name, value, started, run);

-- Null means that the run is ready for its turn, or closed.
alter table perdure_executions add column reason text;

-- Runs that parked or were blocked before this version. A stored list of reasons begins with its
-- length, the first map, key 1 and the code as a text of less than 24 bytes; the head of the text
-- is 96 plus its length.
update perdure_executions set reason = (
  select cast(substr(body, head + 4, unicode(cast(substr(body, head + 3, 1) as text)) - 96) as text)
  from (select coalesce(blocked, waits) as body,
    case hex(substr(coalesce(blocked, waits), 1, 1)) when '98' then 2 when '99' then 3 else 1 end as head))
where state < 2 and (blocked is not null or (state = 1 and waits is not null));

update perdure_executions set reason = null where reason in ('', 'ready');

-- The few runs that continue only after a change by an operator.
create index perdure_executions_blocked on perdure_executions (tenant, started, run) where blocked is not null;
