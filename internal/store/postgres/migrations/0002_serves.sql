-- What the workers of a node can run, so that executions which nobody can continue are found.
alter table {schema}.nodes add column serves text not null default '';
