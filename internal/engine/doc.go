// Package engine runs the state machines of a node: the lanes (package lane) and the membership (package cluster). It is the thin
// shell of goroutines around them: it reads the clock, calls the store, hands work to workers and answers callers.
//
// A node lives in incarnations. Each registers with the store under a fresh id, acquires shards and serves them until it is stopped or
// loses its lease; then everything in memory is void, and the next incarnation begins.
//
// Whoever wants something of an address that this node does not own asks the owner by way of the store: a row in its inbox, and an
// answer remembered under the id of the request.
package engine
