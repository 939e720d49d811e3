-- Version 16: the names of the remote workers of servers, with the process of the server. A worker
-- outlives its server, and the next owner of a shard waits for the workers that the last one has
-- named. A node of an older build has no home, and names no workers.
-- compatible: 14
create table {schema}.remote_workers (
  name text collate "C" not null primary key,
  home uuid not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

alter table {schema}.nodes add column home uuid not null default '00000000-0000-0000-0000-000000000000';

-- An older build named no workers. So the next server waits as long as it did before.
insert into {schema}.remote_workers (name, home)
  select '?', '00000000-0000-0000-0000-000000000000' where exists (select from {schema}.meta where epoch > 0);
