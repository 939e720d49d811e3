// Package engine runs the state machines of a node. These are the lanes (package lane), the
// membership (package cluster), the board of tasks (package queue) and the gate that holds tasks
// back (packages gate and ledger, which package flow connects with the store). The package is a
// thin shell of goroutines around these machines: it reads the clock, calls the store, hands work
// to workers and answers callers.
//
// A node lives in incarnations. Each incarnation registers with the store under a new id, acquires
// shards and serves them until it is stopped or loses its lease. After that everything in memory is
// void, and the next incarnation starts.
//
// If a node gets a request for an address that it does not own, it sends the request to the owner,
// over a direct connection (package peerlink). If there is no connection, the request goes through
// the store: the node writes a row into the owner's inbox, and the owner stores the answer under
// the id of the request.
//
// Nodes share the work on tasks in two ways. First, rules, breakers and the pages of the ledger are
// settings in the store. Each node writes its changes by compare-and-set (package flow). Second,
// workers execute tasks of runs that other nodes own. The owner borrows slots, and the node of the
// worker lends them (package lending). For that, the nodes exchange messages (package peer). Such
// messages may be lost, because all decisions are in the histories.
package engine
