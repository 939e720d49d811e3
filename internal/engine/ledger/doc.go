// Package ledger shares the limits of tasks between the nodes of a store. It is a state machine
// without a clock, randomness, goroutines or I/O: the engine reads and writes its pages.
//
// The ledger is a fixed number of pages in the store. The address of a limit determines its page. A
// page holds the owners of its limits (see package limit), which record how many permits each node
// has leased. Nodes do not send each other messages. A node applies its own messages to the page
// and writes the page by compare-and-set. If another node has written the page first, the node
// reads the new page and applies its messages to that page. On the page it also reads which permits
// it was granted and which permits others want back. So a limit has one writer at a time, and no
// owner has to move when shards move or nodes die.
//
// The ledger calls a node a place. The number of a place is the epoch of the node, which is unique
// for one incarnation. A permit that is leased to a place is only for tasks that this place has
// claimed. Three rules make sure that a limit is not exceeded:
//
//   - A place starts a task only with a permit that is leased to it on a stored page.
//   - It gives a permit back when none of its workers executes the task any longer, even if the run
//     has moved to another node since.
//   - The lease of a dead place ends only when the new owners of its runs have found and counted
//     every claim that the place made (Hold, limit.ToOwner.Over). See Clean.
//
// A node that is alone does not have to write for each change. It takes whole pages (sole) and
// keeps their owners in memory. When another node needs such a page, it writes its message on the
// page, and the first node writes the owners back.
//
// The ledger promises the following; tests refer to the numbers:
//
//	D1  All nodes together never let more tasks hold a limit than it allows. This holds
//	    whatever is delayed or lost, whatever other nodes write in between, and whichever
//	    node dies.
//	D2  No permit is lost: when holders finish and pages are written and read, every
//	    waiting task gets through.
//	D3  A message of a place takes effect once, even if the outcome of a write is unknown.
package ledger
