// Package cluster decides who owns what: a node's membership and lease, which shards it should
// have, and whom it may fence.
//
// Membership is a state machine without I/O, like the lanes: the caller hands in views of the store
// and results of its calls, and gets back what to do next. The store decides; what is computed here
// only proposes.
//
//   - A node that cannot renew its lease in time stops serving before anybody else can start
//     (Serving).
//   - Shards are proposed by rendezvous hashing over the live nodes, so that only what must move
//     moves.
//   - A node gives up shards that are proposed for another live node, and takes free ones, and
//     those of fenced nodes, that are proposed for itself.
//   - A node whose lease has expired by the store's clock is fenced; one on this host that is
//     provably gone is fenced at once.
package cluster
