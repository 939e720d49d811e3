// Package oracle knows which rules have to hold, and fails the simulation when one is broken.
//
// The ledger is the expected content of the store. The disk applies every accepted commit to it,
// and the ledger checks each row immediately. An error names the number of the invariant that the
// row breaks. The cluster lets the oracle check every effect (an answer, a call to a worker, mail).
// The cause of an effect must be durable before the effect happens. In the end the oracle compares
// the store with the ledger.
//
// Words of this package:
//
//   - A batch is the rows of one commit. A hand-over is a list of calls of an entity that a lane
//     gives to a worker, and a claim is one hand-over of a task to a worker.
//   - A holding is the expected content of the store for an entity, and a deed is one call of an
//     entity.
//   - A pass is a task that a gate has let through limits and breakers.
//   - An op is a request of a user.
//   - An address is sick if the store has refused or damaged its rows at some time.
//
// Package cluster imports the oracle, and not the other way round, because the oracle only listens.
// It sees rows, answers, and a few facts about the life of a node (life, taskWorker), but no lane
// and no process. The file internal/archtest/testdata/invariants.txt explains the invariants E1, E2
// and so on, and those invariants L1, L2 and so on that concern entities. The comment of package
// lane explains the other invariants whose numbers start with L.
package oracle
