// Package lending runs the machines of package loan in a node. A Borrower lets workers of other
// nodes execute the tasks of this node, and a Lender lets the workers of this node execute tasks of
// other nodes. The machines decide; this package has their locks, goroutines and timers, and sends
// their messages to other nodes. The messages are knocks, polls and their answers; package loan
// describes them.
//
// The engine has one Borrower and one Lender for each life of its node, if several nodes can share
// the store.
//
// The rules for locks are:
//
//   - A goroutine takes the lock of a Borrower or a Lender first, then the lock of the board, then
//     the lock of a worker's session. It never holds the lock of a Borrower and the lock of a
//     Lender at the same time.
//   - The caller of a method that proposes tasks to workers (Proposer, and loan.Slots.Rejoin) must
//     hold no lock of this package. The reason is that the Borrower takes its lock to count a
//     proposal to a borrowed worker (LockedWorker.Expect).
//   - The board calls LockedWorker.Expect, AskAbout, IsDropped and Covered without its own lock.
//     HasOthers, Wanted and Wake take no lock.
package lending
