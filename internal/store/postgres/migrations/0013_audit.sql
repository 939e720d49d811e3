-- Version 13: the log of administrative actions. The id is a UUIDv7, so it is also the order of the
-- log and the age of an entry. An entry without a tenant concerns the whole server. A final entry
-- has an outcome and never changes.
create table {schema}.audit (
  id     uuid    not null primary key,
  tenant text    not null collate "C",
  final  boolean not null,
  body   bytea   not null
);
create index audit_tenant on {schema}.audit (tenant, id);
