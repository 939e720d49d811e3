// Package sim runs a cluster of three nodes on one shared store in virtual time, in one goroutine,
// from a seed.
//
// The state machines are those of production: lane.Lane, cluster.Membership and, through them,
// core. What production does with goroutines, channels and clocks is done here by an event heap: a
// node is a set of machines whose inputs are events. Code of production that waits (flow.Flow) runs
// as coroutines (thread), which wait for events. In between stands a store in memory behind a
// faulty connection (disk): calls take time, fail, are lost on the way there or back, or arrive
// long after the caller has given up. Nodes crash, pause past their lease, leave, come back and
// take over.
//
// On top run random programs (program, machine): workers interpret them as a pure function of the
// history, so that every history can be checked against its program. Every feature has a place in
// this workload:
//
//   - Programs run steps with retries, timers, races, children, watches; take signals, wait for
//     promises, set state and labels, mark versions; send signals and updates to other executions
//     (call) and wait for the answers; end, fail, clean up, continue as new.
//   - Users start, signal, settle, cancel, update, query, pause, resume, terminate and await, with
//     and without request ids, from any node (user, talk).
//   - They fork, import, retry, reset and delete (past), with edited results, whatever the run was
//     in the middle of: updates, state, labels, pauses.
//   - In some seeds there are tasks (tasks): submitted, and scheduled by programs; task workers
//     (hand) come and go, hang, report late and twice. The board is that of production. A node asks
//     another one whether it has a claim by letters, which are lost, late, and come twice (asking).
//     In half of these seeds nodes lend each other slots of their workers (lend), with the machines
//     of engine/loan.
//   - One seed in three is young, which is to say that it has what was added last. In these, what
//     has ended leaves by its age (retention): runs by the time of the lanes or one of their own,
//     dead letters by the sweep of their owner. Every other one of them has tasks, submitted many
//     at a time as well; users requeue dead letters, with another input too, take that back, and
//     purge them (letters); and there are limits, rates, breakers and paused queues (flow,
//     settings, gate), set, tripped, paused and reset from any node while tasks run. In most of
//     them all nodes share limits and breakers. All of package engine/flow is that of production,
//     with the gates, the ledger and the breakers; what it writes are settings, by compare-and-set,
//     so that writes fail, are lost on the way there or back, or land late, and nodes die between
//     two of them (flow, share). Workers are not lent to other nodes in these.
//   - In about one seed in four there are entities: accounts and desks (account), which clients,
//     workflows and the entities themselves call, with and without waiting, and which send, start
//     and signal. Their workers (teller) come and go, hang, make only the first calls, and report
//     twice. Programs lock up to four accounts at once, call them, and let go, are canceled or
//     terminated, or end inside (section); operators take locks away. The ledger knows every state
//     by the hand-over that left it so (holding), and follows each deed from who asked for it to
//     who is told.
//   - In some seeds workers have versions and pin what they begin, and deploys take all workers of
//     a version away for a while (pin).
//
// Two seeds in three have faults that last, or that come from outside (hardship): commits above a
// number of bytes time out or are refused (size); rows of an address are refused until everything
// else has ended (lasting); more comes at once than a lane has room for, and reports are as large
// as its budget (bounds); the store's clock jumps, and machines are suspended (clockwork); rows
// cannot be read, by anybody or by the older of two builds (rows); users use a request id twice,
// and nodes forget old ids (ids); a live node is declared dead (death). Neighbours have to end
// while poison lasts, and lanes have to keep to their bytes.
//
// Every accepted commit is applied to a ledger as well, which checks the invariants at once, each
// under its number (I1 …; those of internal/archtest/testdata/invariants.txt are E1 …, and L1 …
// where it is about entities; of lanes they are those of package lane); every effect (answer, call
// to a worker, mail) is checked against the ledger: what it rests on must be durable. After a while
// everything heals, and all that is open must come to its end in bounded virtual time; then the
// store is compared with the ledger and everything that was acknowledged must be there.
//
// The same seed gives the same trace, byte for byte. SIM_SEED=n go test ./internal/sim -run
// TestSeeds -v prints it.
package sim
