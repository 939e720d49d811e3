// Package flow is what keeps tasks back while nodes run, and how nodes agree on it: the limits,
// breakers and paused queues that people have set, the state of breakers, and the pages of the
// ledger by which nodes share limits. All of these are settings of the store. What they do to a
// task is decided by machines without I/O (packages gate and ledger); this package reads and writes
// for them.
//
// The engine calls it: a Flow belongs to a process, a Seat to one life of its node, a Gatekeeper to
// the board of that life. What it needs in return is small, and says here what it is: Node, Life
// and Board. Whoever operates limits and breakers calls Flow, through the service.
//
//   - Flow knows the settings, changes them for people, and writes what the gate has to tell,
//     beside the hot path, by compare-and-set. Whoever is slower reads first what the other has
//     written.
//   - Gatekeeper is the gate as the board asks it, and knows whose permit a claim uses.
//   - Seat is the place of a life of the node among those that share limits. It frees the permits
//     of the dead once everybody has counted their claims, and gives back its own at the end.
//
// Three locks are taken in this order, and never the other way round: the turn of Flow (one reads
// or writes settings at a time; it is held while the store is waited for), then that of the board,
// then that of Flow's fields. So
//
//   - nothing waits for the store with the lock of the board or of the fields held;
//   - the board calls Collect and Configure with its lock held, and may call WriteSoon so: these
//     take the lock of the fields, if any, and never wait;
//   - Flow calls the board with at most its turn, and reaches a gate by Board.Look and Board.Change
//     alone, which have the lock of the board, as has what Board.Configure calls;
//   - nothing is proposed with the lock of the board or of the fields held: whoever has changed
//     something calls Board.Propose afterwards.
package flow
