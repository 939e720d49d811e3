// Package lending runs the machines of package loan in a node: a Borrower has the tasks of the node
// executed by workers of other nodes, and a Lender has its workers execute tasks of others. The
// machines decide; here are their locks, goroutines and timers, and the line to other nodes.
//
// The engine has one Borrower and one Lender for each life of its node, where others share the
// store.
//
// Locks, in the order in which they are taken:
//
//   - that of a Borrower or a Lender, then that of the board, then that of a worker's session.
//     Neither of the first two is held while the other is taken.
//   - A method that proposes something to workers (Proposer, and loan.Slots.Rejoin) is called with
//     no lock of this package held: a proposal to a borrowed worker is counted by its Borrower
//     (Worker.Expect).
//   - The board calls Worker.Expect, Found, Dropped and Covered with its own lock not held;
//     HasOthers, Wanted and Nudge take no lock.
package lending
