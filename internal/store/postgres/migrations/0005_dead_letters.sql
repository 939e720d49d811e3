-- Requests that were refused and kept (dead letters) stay in the inbox with a time that never
-- comes. A query for waiting requests does not read them, however many there are, and a query for
-- dead letters reads nothing else.
create index inbox_waiting on {schema}.inbox (shard, id) where not_before < 253402300799000000;
create index inbox_dead on {schema}.inbox (id) where not_before = 253402300799000000;
