-- Messages between two live nodes. No durable fact depends on them, so only time is lost with them:
-- the table is not logged, and is empty after a crash of the server.
create unlogged table {schema}.peer_mail (
  node   uuid  not null,
  id     uuid  not null,
  re     uuid  not null,
  sender uuid  not null,
  body   bytea not null,
  primary key (node, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
