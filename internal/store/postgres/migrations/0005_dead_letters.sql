-- Requests that were refused and kept (dead letters) stay in the inbox with a time that never comes. However many there are, whoever looks for what
-- waits does not meet them, and whoever looks for them meets nothing else.
create index inbox_waiting on {schema}.inbox (shard, id) where not_before < 253402300799000000;
create index inbox_dead on {schema}.inbox (id) where not_before = 253402300799000000;
