-- Version 12: the weight of a node, which decides about its share of the shards, and whether an
-- operator has asked it to hand its shards over. The weight is 0 for a node of an older build:
-- while there is one, all nodes have the same share, and no node drains.
alter table {schema}.nodes add column weight integer not null default 0, add column drained boolean not null default false;
