// Package disk is the shared store of a simulation, behind a faulty connection.
//
// The rows are in the memory store. Calls take time or fail. The request or the reply of a call
// gets lost, or the request arrives long after the caller has given up. A commit holds the lock of
// its fence, as it does in a database, and the store refuses commits that are too large or that
// contain poisoned rows. The disk tells the oracle about every commit that the store accepts.
package disk
