// Package loan decides how workers of one node execute tasks of runs that another node owns. The
// owner borrows slots (Debtor), the node of the workers lends them (Creditor). The two nodes talk
// by letters, which may be lost, be late, or arrive twice.
//
// The owner knocks at nodes whose workers could take what waits. They poll, with everything that
// they hold of runs of other nodes, and lend some slots until the answer, which brings claims. A
// slot is credited to one node at a time, and there is no standing loan that somebody has to
// withdraw. What the owner tells a node is a stream of numbered entries, kept until a poll says
// that they have arrived. What the node tells the owner is the whole list. So a lost letter costs
// time and nothing else.
//
// The machines have no clock, no goroutine and no lock: the time is an argument, and a round is a
// call. Package lending runs them in production, and the simulator runs them in virtual time. A
// caller that has a lock around a machine must let go of it wherever a method says so, because
// proposals to borrowed workers come back to the machine (Worker.Expect).
package loan
