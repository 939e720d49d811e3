-- Entities, and their waiting calls.

-- One row per entity that has a state or is locked. Each change of the state writes a new version
-- of the row. The change touches no indexed column, so it leaves the indexes alone as long as there
-- is room on the page. Columns that change stand behind columns that do not, so that little is
-- written to the log.
create table {schema}.entities (
  shard   smallint not null,
  locked  boolean  not null,                              -- a section holds it
  tenant  text     collate "C" not null,
  type    text     collate "C" not null,
  key     text     collate "C" not null,
  version bigint   not null,                              -- counts changes; a write names the one it replaces
  changed bigint   not null,
  body    bytea    not null,
  primary key (shard, key, type, tenant)
) with (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Lists.
create index entities_listing on {schema}.entities (tenant, type, key) where locked is not null;
-- Lists of locked entities.
create index entities_locked on {schema}.entities (tenant, type, key) where locked;

-- Calls and lock requests that must not be lost, in their order. Rows are never updated. The next
-- owner of a shard reads the waiting calls of the entities of the shard, in the order of the key.
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
