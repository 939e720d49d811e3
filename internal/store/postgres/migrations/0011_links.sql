-- Version 11: where a node listens for the other nodes, and the fingerprint of its certificate.
-- Both are empty for a node that does not listen, such as one of an older build.
alter table {schema}.nodes add column link_address text not null default '', add column link_key text not null default '';
