// Package cluster keeps the view that one node has of its cluster: its membership and its lease,
// the shards that it should own, and the nodes that it may fence.
//
// Membership is a state machine without I/O, like the lanes: the caller passes in views of the
// store and results of its calls, and gets back what to do next. This package only proposes owners.
// The store decides which node gets a shard.
//
//   - A node that cannot renew its lease in time stops serving before another node can start
//     (IsServing).
//   - Each node computes the proposal by rendezvous hashing over the live nodes, in proportion to
//     their weights, so that as few shards as possible move.
//   - The shards of a group are proposed only for nodes that take them (NodeInfo.Groups). A group
//     without such a node has no owner until such a node joins.
//   - An operator can drain a node: then its shards are proposed for the other nodes. The drained
//     node stays a member and routes requests, and its workers execute tasks of other nodes.
//   - A node gives up shards that are proposed for another live node. It takes shards that are
//     proposed for itself, if they are free or belong to a fenced node.
//   - A node fences another node whose lease has expired by the store's clock. If the process of
//     the other node ran on the same host and is provably gone, the node fences it immediately.
package cluster
