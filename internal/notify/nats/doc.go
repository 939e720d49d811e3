// Package nats carries hints between nodes and changes to subscribers over NATS.
//
// NATS is optional, and nothing depends on it. Nodes also wake each other through the database, and
// look at the store at regular intervals. So a NATS server that is unavailable, slow or full of
// garbage costs latency at most. The Hub, which is the connection of a node to NATS, connects again
// by itself. It uses plain subjects and needs no JetStream.
//
// Subjects, where perdure is the prefix:
//
//   - perdure.hints.CLUSTER has the hints of the nodes of one store. CLUSTER is the id of the
//     store.
//   - perdure.changes.TENANT.CLASS.KIND has one change as JSON, without payloads, such as
//     perdure.changes.acme.execution.completed. A dot in the name of a tenant is written as =.
//   - perdure.changes.TENANT.missed says that changes of the tenant were dropped, and how many.
//
// A subscriber that may read only the changes of one tenant gets a NATS user with the permission to
// subscribe to perdure.changes.TENANT.>.
package nats
