-- Version 10: the mark of the fencing tokens of a shard. The owner raises the mark before it gives
-- out tokens up to it, so that the next owner begins above all of them, whatever its clock says.
-- Before this version, tokens came from the clock.
alter table {schema}.shards add column tokens bigint not null default 0;
update {schema}.shards set tokens = (extract(epoch from clock_timestamp()) * 1000000)::bigint + 60000000
  where exists (select from {schema}.meta where epoch > 0); -- a node has been there
