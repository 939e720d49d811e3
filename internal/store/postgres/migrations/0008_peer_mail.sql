-- Letters between two nodes that are alive. They are never the truth, so nothing is lost with them but time: the table is not logged, and is empty after a crash of the server.
create unlogged table {schema}.peer_mail (
  node   uuid  not null,
  id     uuid  not null,
  re     uuid  not null,
  sender uuid  not null,
  body   bytea not null,
  primary key (node, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
