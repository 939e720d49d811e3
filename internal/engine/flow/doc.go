// Package flow has the settings that can hold tasks back, and lets nodes agree on them. These are
// the limits, breakers and paused queues that people have set, the state of breakers, and the pages
// of the ledger through which nodes share limits. All of them are settings in the store. Packages
// gate and ledger, which do no I/O, decide what the settings mean for a task. This package reads
// and writes the settings for them.
//
// The engine calls this package. A Flow belongs to a process, a Participant to one life of its
// node, and a BoardGate to the board of that life. The package calls the engine back through the
// interfaces Node, Life and Board. Operators of limits and breakers reach Flow through the service.
//
//   - Flow keeps the settings, changes them for people, and writes what the gate reports. It writes
//     outside the hot path and by compare-and-set. If another node has written first, it reads what
//     that node has written and tries again.
//   - BoardGate is the gate as the board uses it. It knows which node's permit a claim uses.
//   - Participant is one life of the node as one of the nodes that share limits. It frees the
//     permits of dead nodes once all owners have counted their claims, and returns its own permits
//     at the end.
//
// There are three locks. A goroutine takes them only in this order: the turn of Flow, the lock of
// the board, the lock of Flow's fields. The turn lets one goroutine at a time read or write
// settings, and the goroutine holds it while it waits for the store. So
//
//   - no goroutine waits for the store with the lock of the board or of the fields held;
//   - the board calls Collect, Configure and WriteSoon with its lock held: these methods take
//     at most the lock of the fields and never wait;
//   - Flow calls the board with at most the turn held, and reaches a gate only through Board.Look
//     and Board.Change, which hold the lock of the board, and through Board.Configure;
//   - no goroutine proposes tasks to workers with the lock of the board or of the fields held:
//     after a change the goroutine releases these locks and calls Board.Propose.
package flow
