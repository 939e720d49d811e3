-- Version 14: the oldest build that can use the schema after a migration, named by the version of
-- the schema that it knows. So a process of the previous release can open a store again while a
-- newer release replaces it. A migration without a number (0) excludes all builds that do not know
-- it.
alter table {schema}.migrations add column compatible integer not null default 0;
