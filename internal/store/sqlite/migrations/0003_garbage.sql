-- Version 2.
--
-- Deleted runs that still have events. Sweeps remove the events page by page, and then the row
-- here. So a delete costs the same whatever the length of the history, and a crash leaves no events
-- without an owner.
create table perdure_garbage (
  shard integer not null,
  run   blob    not null,
  primary key (shard, run)
) strict, without rowid;
