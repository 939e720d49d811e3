-- Version 17: replay reports, which say what a CI job or a worker found when it replayed histories
-- with a build. The id is a UUIDv7, so it is also the order of the reports and their age. A tenant
-- has one report of a request.
-- compatible: 14
create table {schema}.replay_reports (
  id      uuid  not null primary key,
  tenant  text  not null collate "C",
  request text  not null collate "C",
  head    bytea not null,
  body    bytea not null
);
create unique index replay_reports_tenant on {schema}.replay_reports (tenant, id);
create unique index replay_reports_request on {schema}.replay_reports (tenant, request);
