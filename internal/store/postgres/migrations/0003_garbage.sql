-- Version 3.
--
-- Deleted runs that still have events. Sweeps remove the events page by page, and then the row
-- here. So a delete costs the same whatever the length of the history, and a crash leaves no events
-- without an owner.
create table {schema}.garbage (
  run   uuid     not null,
  shard smallint not null,
  primary key (shard, run)
);
