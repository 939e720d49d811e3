-- Version 7: entities, and what waits for them.

-- One row per entity that has a state or is locked; each change of the state writes it anew. The key of the table is also the order of lists: an address has one
-- shard, so nothing is found by the shard alone.
create table perdure_entities (
  tenant  text    not null,
  type    text    not null,
  key     text    not null,
  shard   integer not null,
  version integer not null, -- counts the changes; every write names the one that it replaces
  changed integer not null,
  locked  integer not null, -- 1 while a section holds it
  body    blob    not null,
  primary key (tenant, type, key, shard)
) strict, without rowid;

-- Lists of those that are locked. A change of the state does not touch it.
create index perdure_entities_locked on perdure_entities (tenant, type, key) where locked = 1;

-- Calls and requests of locks that must not be lost, in their order. What waits for the entities of a shard is what its next owner has to look for.
create table perdure_mailbox (
  shard  integer not null,
  tenant text    not null,
  type   text    not null,
  key    text    not null,
  seq    integer not null,
  at     integer not null,
  body   blob    not null,
  primary key (shard, tenant, type, key, seq)
) strict, without rowid;
