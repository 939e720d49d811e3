-- Version 15: shard groups. The store says which groups it has beside the default one and how many
-- shards each of them has, in the order of their shards: gpu=64,video=32. A node says which groups
-- it takes shards from; empty means the default group. A build that does not know groups can use
-- a store that has none: when the first group is added, the number below becomes 0.
-- compatible: 14
alter table {schema}.meta add column groups text not null default '';
alter table {schema}.nodes add column groups text not null default '';
