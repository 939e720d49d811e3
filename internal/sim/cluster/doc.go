// Package cluster is three processes on one store: the nodes, with the lanes, the boards, the gates
// and the membership of production, and everything that production has around them.
//
// A shell does for a lane what the loop of a lane does in production: it passes inputs to the lane
// and carries out its effects. An incarnation is one life of a node, with its lease. Processes
// crash, pause past their lease, leave and come back. Nodes talk by messages that get lost, arrive
// late or arrive twice (asking, lend, clerk).
package cluster
