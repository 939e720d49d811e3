-- What the workers of a node can run, so that operators can find executions without a worker.
alter table {schema}.nodes add column serves text not null default '';
