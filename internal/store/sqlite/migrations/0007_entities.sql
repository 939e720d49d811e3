-- Version 7: entities, and their waiting calls.

-- One row per entity that has a state or is locked. Each change of the state writes the row again.
-- The key of the table is also the order of lists: an address has one shard, so no query asks for
-- the shard alone.
create table perdure_entities (
  tenant  text    not null,
  type    text    not null,
  key     text    not null,
  shard   integer not null,
  version integer not null, -- counts changes; a write names the one it replaces
  changed integer not null,
  locked  integer not null, -- 1 while a section holds it
  body    blob    not null,
  primary key (tenant, type, key, shard)
) strict, without rowid;

-- Lists of locked entities. A change of the state does not touch it.
create index perdure_entities_locked on perdure_entities (tenant, type, key) where locked = 1;

-- Calls and lock requests that must not be lost, in their order. The next owner of a shard reads
-- the waiting calls of the entities of the shard.
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
