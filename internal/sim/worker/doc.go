// Package worker runs programs and calls of entities, as the worker of an application does.
//
// A Worker holds runs (Hold) and a Teller makes the calls of entities. Both report late, report
// twice, report to a new life of a node what an older life gave them, leave, and come back. They
// know their process only through the interface host, so that they see only what a worker in
// production sees of a node. Task workers are in package cluster, because they lend slots and are
// part of a node's board.
package worker
