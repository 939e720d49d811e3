// Package engine runs the state machines of a node: the lanes (package lane), the membership
// (package cluster), the board of tasks (package queue) and what keeps tasks back (packages gate
// and ledger, and flow around them). It is the thin shell of goroutines around them: it reads the
// clock, calls the store, hands work to workers and answers callers.
//
// A node lives in incarnations. Each registers with the store under a fresh id, acquires shards and
// serves them until it is stopped or loses its lease; then everything in memory is void, and the
// next incarnation begins.
//
// Whoever wants something of an address that this node does not own asks the owner by way of the
// store: a row in its inbox, and an answer remembered under the id of the request.
//
// What nodes share of tasks goes two other ways. Rules, breakers and the pages of the ledger are
// settings of the store, which whoever has something to add writes by compare-and-set (package
// flow). Workers execute tasks of runs that other nodes own by letters (package peer): the owner
// borrows, the node of the worker lends (package lending). Letters may be lost; what counts is in
// histories.
package engine
