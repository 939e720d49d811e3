// Package cluster simulates three processes on one store. Each process is a node, which runs the
// production code of the lanes, the board, the gate and the membership. This package has simulated
// versions of the code that production has around these state machines. Processes crash, pause past
// their lease, leave and come back. Nodes talk by messages that get lost, arrive late or arrive
// twice (asking.go, lend.go, clerk.go).
//
// Words of this package:
//
//   - An incarnation is one life of a node, with its lease. A view lists the nodes and the owner of
//     each shard. Every renewal of the lease returns a view.
//   - A shell does for a lane what the loop of a lane does in production: it passes inputs to the
//     lane and carries out its effects.
//   - A board has the open tasks of a node, and a keeper is its gate: it lets a task start if
//     limits, breakers and pauses of queues allow it. A claim is one hand-over of a task to a
//     worker.
//   - A hand is a task worker, and a teller is a worker of entities.
//   - A purse is the part of a node that lends slots of its hands to other nodes, and borrows slots
//     of the hands of other nodes. A guest is a borrowed worker.
//   - A clerk sends requests to other owners through the store.
package cluster
