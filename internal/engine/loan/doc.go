// Package loan decides how workers of one node execute tasks of runs that another node owns. The
// owner borrows slots (Debtor), and the node of the workers lends them (Creditor). The two nodes
// exchange messages that may be lost, late, or duplicated.
//
// The owner knocks at nodes whose workers could take waiting tasks: it sends them a short message.
// A node that has received this message polls the owner. A poll lists all claims that the node
// holds for runs of other nodes, and lends some slots. The answer brings claims for these slots and
// ends the loan. So no loan has to be withdrawn, and a slot is lent to one node at a time. What the
// owner sends to a node is a stream of numbered entries. It keeps the entries until a poll says
// that they have arrived. What the node sends to the owner is always the whole list. So a lost
// message costs only time.
//
// The machines have no clock, no goroutine and no lock: the caller passes in the time, and calls a
// method for each thing that happens. Package lending runs them in production, and the simulator
// runs them in virtual time. If a caller protects a machine with a lock, it must release the lock
// where a method says so, because proposals to borrowed workers call back into the machine
// (BorrowedWorker.Expect).
package loan
