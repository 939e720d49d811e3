-- Version 9: the log of administrative actions. The id is a UUIDv7, so it is also the order of the
-- log and the age of an entry. An entry without a tenant concerns the whole server. A final entry
-- has an outcome and never changes.
create table perdure_audit (
  id     blob    not null primary key,
  tenant text    not null,
  final  integer not null,
  body   blob    not null
) strict, without rowid;

create index perdure_audit_tenant on perdure_audit (tenant, id);
