-- Version 10: bodies of events that are too large for a row of perdure_history. Such a row would
-- continue on overflow pages, and SQLite reads all of them whenever it compares a key with that
-- row, which it does for every insert beside it. This table has a rowid, so that SQLite compares
-- keys in the index and never in the rows.
create table perdure_bodies (
  run   blob    not null,
  shard integer not null,
  seq   integer not null,
  body  blob    not null,
  primary key (run, shard, seq)
) strict;
