-- Version 19: the length of the lease of a node, in microseconds. Nodes of one store may have
-- leases of different lengths, and other nodes need the length to judge a lease when the clock of
-- the store has jumped. It is 0 for a node of an older build.
-- compatible: 14
alter table {schema}.nodes add column ttl bigint not null default 0;
