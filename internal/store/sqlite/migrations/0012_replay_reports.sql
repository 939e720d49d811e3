-- Version 12: replay reports, which say what a CI job or a worker found when it replayed histories
-- with a build. The id is a UUIDv7, so it is also the order of the reports and their age. A tenant
-- has one report of a request. Lists read the head, which stands in front of the much larger body.
create table perdure_replay_reports (
  id      blob not null primary key,
  tenant  text not null,
  request text not null,
  head    blob not null,
  body    blob not null
) strict;

create unique index perdure_replay_reports_tenant on perdure_replay_reports (tenant, id);
create unique index perdure_replay_reports_request on perdure_replay_reports (tenant, request);
