// Package ledger shares the limits of tasks between the nodes of a store. It is a state machine
// without clock, randomness, goroutine and I/O: the engine reads and writes its pages.
//
// The ledger is a fixed number of pages in the store, and a limit is on the page of its address. A
// page holds the owners of its limits (see package limit): who has leased how many permits. Nobody
// is sent a message. A node that has something to tell an owner applies it to the page and writes
// that by compare-and-set; whoever was faster is read first, and it is applied to what he has
// written. What a node was granted, and what is wanted back, it reads on the page. So a limit has
// one writer at a time, whoever that is, and moving shards and dying nodes move no owner.
//
// A node is a place of the ledger by its epoch, for one incarnation. A permit that is leased to a
// place is used by tasks that this very place has claimed. So three things make a limit hold:
//
//   - a place begins a task only with a permit that is leased to it on a page that is stored;
//   - it gives a permit back when nobody of its own executes the task any more, wherever the run
//     has moved meanwhile;
//   - the lease of a place that is no more ends when every claim it has made has been found by
//     whoever owns the run now, and is counted there (Hold, limit.ToOwner.Over); until then it
//     stands. See Clean.
//
// A node that is alone need not write: it takes whole pages (Sole), and is the owner of what is on
// them in its memory. When somebody else wants something of a page, he says so on it, and gets the
// page back with its owners.
//
// What it promises, referred to by tests:
//
//	D1  Nodes together never let more tasks hold a limit than it allows, whatever is delayed, lost, or written by others in between, and whoever dies.
//	D2  No permit is lost: when holders finish and pages are written and read, everybody who waits gets through.
//	D3  What a place tells takes effect once, also when nobody knows whether a write has landed.
package ledger
