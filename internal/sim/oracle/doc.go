// Package oracle knows which rules have to hold, and fails the simulation when one is broken.
//
// The ledger is the expected content of the store. The disk applies every accepted commit to it,
// and the ledger checks each row immediately, under the number of its invariant. The cluster asks
// the oracle about every effect (an answer, a call to a worker, mail): its cause must be durable.
// In the end the oracle compares the store with the ledger.
//
// The oracle is below the cluster, because it only listens: it sees rows, answers, and a few facts
// about the life of a node (life, taskWorker), and never a lane or a process. The file
// internal/archtest/testdata/invariants.txt has the numbers E1 … and those numbers L1 … that
// concern entities. Package lane has the other numbers L.
package oracle
