-- Version 2.
--
-- Runs that were deleted and whose events are still there: sweeps remove them page by page, and then the row here. So a delete costs the same
-- whatever the length of the history, and a crash leaves nothing behind that nobody knows of.
create table perdure_garbage (
  shard integer not null,
  run   blob    not null,
  primary key (shard, run)
) strict, without rowid;
