-- Version 18: shard groups in other databases. The first database of a cluster says which databases
-- hold groups: eu=eu+eu-batch,us=us. It keeps no URLs. Every other database says under which name
-- it belongs to which cluster. A build that does not know this can use a store that is a single
-- database: when a second one is added, the number below becomes 0.
-- compatible: 14
alter table {schema}.meta add column databases text not null default '', add column member text not null default '', add column home uuid;
