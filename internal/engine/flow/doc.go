// Package flow has the settings that hold tasks back, and lets nodes agree on them: the limits,
// breakers and paused queues that people have set, the state of breakers, and the pages of the
// ledger through which nodes share limits. All of these are settings in the store. Packages gate
// and ledger, which do no I/O, decide what the settings mean for a task. This package reads and
// writes for them.
//
// The engine calls it. A Flow belongs to a process, a Participant to one life of its node, a
// BoardGate to the board of that life. In return it needs a few methods of the engine: Node, Life
// and Board. Operators of limits and breakers reach Flow through the service.
//
//   - Flow keeps the settings, changes them for people, and writes what the gate reports. It writes
//     outside the hot path and by compare-and-set. A node that loses the race reads first what the
//     other node has written.
//   - BoardGate is the gate as the board uses it. It knows which node's permit a claim uses.
//   - Participant is one life of the node as one of the nodes that share limits. It frees the
//     permits of dead nodes once all owners have counted their claims, and returns its own permits
//     at the end.
//
// There are three locks. They are taken in this order only: the turn of Flow (one goroutine at a
// time reads or writes settings, and holds the turn while it waits for the store), then the lock of
// the board, then the lock of Flow's fields. So
//
//   - no goroutine waits for the store with the lock of the board or of the fields held;
//   - the board calls Collect, Configure and WriteSoon with its lock held: these methods take
//     at most the lock of the fields and never wait;
//   - Flow calls the board with at most the turn held, and reaches a gate only through Board.Look
//     and Board.Change, which hold the lock of the board, and through Board.Configure;
//   - no goroutine proposes with the lock of the board or of the fields held: after a change it
//     calls Board.Propose.
package flow
