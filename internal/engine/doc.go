// Package engine runs the state machines of a node: the lanes (package lane), the membership
// (package cluster), the board of tasks (package queue) and the gate that holds tasks back
// (packages gate and ledger, with flow around them). It is the thin shell of goroutines around
// them: it reads the clock, calls the store, hands work to workers and answers callers.
//
// A node lives in incarnations. Each one registers with the store under a new id, acquires shards
// and serves them until it is stopped or loses its lease. Then everything in memory is void, and
// the next incarnation starts.
//
// A node sends a request for an address that it does not own to the owner, through the store: it
// writes a row into the owner's inbox, and the owner stores the answer under the id of the request.
//
// Nodes share the work on tasks in two other ways. Rules, breakers and the pages of the ledger are
// settings in the store; each node writes its changes by compare-and-set (package flow). Workers
// execute tasks of runs that other nodes own; these nodes exchange messages (package peer). The
// owner borrows slots, and the node of the worker lends them (package lending). Such messages may
// be lost; only histories count.
package engine
