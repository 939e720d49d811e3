// Package worker runs programs and calls of entities, as the worker of an application does.
//
// A Worker holds runs (Hold) and a Teller makes the calls of entities. Both may report late or
// twice, and may leave and come back. If the node of their process starts a new life, they report
// to the new life about work that an older life gave them. They know their process only through the
// interface host, so that they see only what a worker in production sees of a node. Task workers
// are in package cluster, because they lend slots and are part of a node's board.
package worker
