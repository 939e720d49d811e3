// Package lending is how workers of one node execute tasks of runs that another node owns. The owner borrows slots (Borrower), the node of the workers lends them (Lender); they talk by letters
// (package peer), which may be lost, be late, or come twice.
//
// The owner knocks where workers are that could take what nobody of its own can. They poll, with everything that they hold of runs which are not theirs, and lend some slots until the
// answer, which brings claims. A slot is credited to one node at a time, and there is no standing loan that somebody would have to withdraw. What the owner tells a node is a stream of
// numbered entries, kept until a poll says that it has arrived; what the node tells is the whole list. So whatever gets lost costs time and nothing else.
//
// The engine has one Borrower and one Lender for each life of its node, where others share the store. What they need of it they say in node.go: the board and the lanes of the node, and its workers.
//
// Locks, in the order in which they are taken:
//
//   - that of a Borrower or a Lender, then that of the board, then that of a worker's session. Neither of the first two is held while the other is taken.
//   - Whatever proposes something to workers (Proposer, and Slots.Rejoin) is called with no lock of this package held: a proposal to a borrowed worker is counted by its Borrower (Worker.Expect).
//   - The board calls Worker.Expect, Found, Dropped and Covered with its own lock not held; HasOthers, Wanted and Nudge take no lock.
package lending
