-- Version 13: the length of the lease of a node, in microseconds. It is 0 for a node of an older
-- build.
alter table perdure_nodes add column ttl integer not null default 0;
