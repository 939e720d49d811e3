-- Entities, and what waits for them.

-- One row per entity that has a state or is locked; each change of the state writes it anew. No index has a column that such a change touches, so it leaves the
-- indexes alone as long as there is room on the page; and what changes stands behind what does not, so that little is written to the log.
create table {schema}.entities (
  shard   smallint not null,
  locked  boolean  not null,                              -- a section holds it
  tenant  text     collate "C" not null,
  type    text     collate "C" not null,
  key     text     collate "C" not null,
  version bigint   not null,                              -- counts the changes; every write names the one that it replaces
  changed bigint   not null,
  body    bytea    not null,
  primary key (shard, key, type, tenant)
) with (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Lists.
create index entities_listing on {schema}.entities (tenant, type, key) where locked is not null;
-- Lists of those that are locked.
create index entities_locked on {schema}.entities (tenant, type, key) where locked;

-- Calls and requests of locks that must not be lost, in their order. Rows are never updated. What waits for the entities of a shard is what its next owner
-- has to look for, in the order of the key.
create table {schema}.mailbox (
  seq    bigint   not null,
  at     bigint   not null,
  shard  smallint not null,
  tenant text     collate "C" not null,
  type   text     collate "C" not null,
  key    text     collate "C" not null,
  body   bytea    not null,
  primary key (shard, tenant, type, key, seq)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
