// Package loan decides how workers of one node execute tasks of runs that another node owns. The
// owner borrows slots (Debtor), and the node of the workers lends them (Creditor). The two nodes
// exchange messages that may be lost, late, or duplicated.
//
// The owner knocks at nodes whose workers could take waiting tasks: it sends them a short message.
// A node that has received this message polls the owner. A poll lists all claims that the node
// holds for runs of other nodes (a claim is the hand-over of one task to a worker), and lends some
// slots. The answer brings claims for these slots and ends the loan, except for slots whose claims
// are still on their way. So no loan has to be withdrawn. A lent slot is not free for the tasks of
// its own node, so no other owner can get it. What the owner sends to a node is a stream of
// numbered entries. It keeps the entries until a poll says that they have arrived. What the node
// sends to the owner is always the whole list. So a lost message costs only time.
//
// Debtor and Creditor are state machines without a clock, goroutines and locks: the caller passes
// in the time, and calls a method for each thing that happens. Package lending runs these machines
// in production, and the simulator runs them in virtual time. A caller that protects a machine with
// a lock must not hold the lock during CarryOut and Regain, because these functions call workers
// and boards, which may call a machine. For example, a board that proposes a task to a borrowed
// worker calls BorrowedWorker.Expect, which changes the Debtor.
package loan
