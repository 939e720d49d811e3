-- Version 11: the names of the remote workers of a server, with the process of that server. A
-- worker outlives its server, and the next process waits for the workers that the last one has
-- named.
create table perdure_remote_workers (
  name text not null primary key,
  home blob not null
) strict, without rowid;

-- An older build named no workers. So the next server waits as long as it did before.
insert into perdure_remote_workers (name, home)
  select '?', zeroblob(16) where exists (select 1 from perdure_meta where name = 'epoch' and value > 0);
