-- Version 8: the mark of the fencing tokens of a shard. The owner raises the mark before it gives
-- out tokens up to it, so that the next owner begins above all of them, whatever its clock says.
-- Before this version, tokens came from the clock.
alter table perdure_shards add column tokens integer not null default 0;
update perdure_shards set tokens = cast(strftime('%s', 'now') as integer) * 1000000 + 60000000
  where exists (select 1 from perdure_meta where name = 'epoch' and value > 0); -- a node has been there
