// Package oracle knows what has to hold, and fails the simulation when it does not.
//
// The ledger is the expected content of the store. The disk applies every accepted commit to it,
// and the ledger checks each row at once, under the number of its invariant. The cluster asks the
// oracle about every effect (an answer, a call to a worker, mail): its cause must be durable. In
// the end the oracle compares the store with the ledger.
//
// The oracle is below the cluster, because it only listens: it sees rows, answers, and a few facts
// about the life of a node (life, taskWorker), and never a lane or a process. The numbers E1 … are
// in internal/archtest/testdata/invariants.txt, and so are L1 … where they concern entities; other
// numbers of lanes are in package lane.
package oracle
