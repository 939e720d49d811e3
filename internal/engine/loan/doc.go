// Package loan decides how workers of one node execute tasks of runs that another node owns. The
// owner borrows slots (Debtor), the node of the workers lends them (Creditor). The two nodes
// exchange messages that may be lost, late, or duplicated.
//
// The owner knocks at nodes whose workers could take waiting tasks. They poll, with a list of all
// claims that they hold for runs of other nodes, and lend some slots until the answer, which brings
// claims. A slot is lent to one node at a time, and a loan ends with the answer, so no loan has to
// be withdrawn. What the owner sends to a node is a stream of numbered entries, which it keeps
// until a poll says that they have arrived. What the node sends to the owner is always the whole
// list. So a lost message costs only time.
//
// The machines have no clock, no goroutine and no lock: the time is an argument, and a round is a
// call. Package lending runs them in production, and the simulator runs them in virtual time. A
// caller with a lock around a machine must release it where a method says so, because proposals to
// borrowed workers call back into the machine (BorrowedWorker.Expect).
package loan
