// Package sim runs a cluster of three nodes on one shared store in virtual time, in one goroutine,
// from a seed.
//
// The simulator has one package for each idea, and imports go in one direction:
//
//	kernel    virtual time, scheduler, random numbers, trace
//	scenario  what a seed decides before the first event: features, plan, programs, settings
//	oracle    what has to hold: the ledger of the store, and the checks of facts and effects
//	disk      the store behind a faulty connection
//	worker    workers that run programs and calls of entities
//	cluster   processes, nodes, lanes, boards, leases and links
//	workload  users, operators and faults
//	sim       Run, the tests, and the known seeds
//
// Programs are in scenario and not in workload, because the oracle runs them too: it checks every
// history against its program. The oracle is below the cluster, because it only listens: the disk
// and the nodes tell it about commits and effects, and it never asks them. A feature usually has a
// file of the same name in several packages: what is drawn (scenario), what must hold (oracle),
// what a node does (cluster), what users do (workload).
//
// The state machines are the production code: lane.Lane, cluster.Membership and, through them,
// core. An event heap replaces the goroutines, channels and clocks of production: a node is a set
// of machines whose inputs are events. Production code that waits (flow.Flow) runs as coroutines
// (thread), which wait for events. The store is in memory behind a faulty connection (disk): calls
// take time, fail, get lost on the way there or back, or arrive long after the caller has given up.
// Nodes crash, pause past their lease, leave, come back and take over.
//
// On top run random programs (program, machine). Workers interpret them as a pure function of the
// history, so the simulator can check every history against its program. Every feature has a place
// in this workload:
//
//   - Programs run steps with retries, timers, races, children and watches. They take signals, wait
//     for promises, set state and labels, and mark versions. They send signals and updates to other
//     executions (call) and wait for the answers. They end, fail, clean up and continue as new.
//   - Users start, signal, settle, cancel, update, query, pause, resume, terminate and await, with
//     and without request ids, from any node (user, talk).
//   - Users fork, import, retry, reset and delete (past), with edited results, in every state of
//     the run: during updates, with state, labels or pauses.
//   - Some seeds have tasks (tasks). Users submit them and programs schedule them. Task workers
//     (hand) come and go, hang, report late and twice. The board is the production code. Nodes ask
//     each other about claims by messages that get lost, arrive late or arrive twice (asking). In
//     more than a third of these seeds nodes lend each other slots of their workers (lend), with
//     the machines of engine/loan.
//   - One seed in three is young: it has the features that were added last. In these seeds, the
//     nodes delete closed runs and dead tasks by age (retention). A run leaves after its own
//     retention or after the retention of its lane, and the sweep of its owner removes a dead task.
//     Half of the young seeds have tasks, and users also submit many tasks in one request. Users
//     requeue dead tasks, some with another input, undo that, and purge them (dead). Most of these
//     seeds also have limits, rates, breakers and paused queues (flow, settings, gate). Users set,
//     trip, pause and reset them from any node while tasks run. In most of these seeds all nodes
//     share limits and breakers. Package engine/flow is the production code, with the gates, the
//     ledger and the breakers. It writes settings by compare-and-set: the writes fail, get lost on
//     the way there or back, or land late, and nodes die between two of them (flow, share). In some
//     of these seeds nodes lend workers too.
//   - About one seed in four has entities: accounts and desks (account). Clients, workflows and the
//     entities themselves call them, with and without waiting. Entities send, start and signal.
//     Their workers (teller) come and go, hang, make only the first calls, and report twice.
//     Programs lock up to four accounts together, call them, and unlock them. Some programs are
//     canceled or terminated inside the section, or end there (section). Operators take locks away.
//     The ledger knows for every state which hand-over produced it (holding), and follows each deed
//     from its caller to its answer.
//   - In some seeds starts have options (terms): a delay, a time-out of the execution, or a policy
//     that repeats failed runs.
//   - In some seeds operators drop and skip signals that programs have not taken (drop).
//   - In some seeds workers are processes of their own and outlive the process that serves them
//     (outlive). They keep the bodies that run, join another process, and say what they hold. Until
//     they report, no other worker may start a body that they still run.
//   - In some seeds nodes have different weights, and operators drain them (drain). In the end each
//     shard belongs to the node that it is proposed for.
//   - In some seeds the store has two shard groups, and nodes serve one of them or both (groups).
//     No node gets a shard of a group that it does not take.
//   - In some seeds states of accounts expire (expire).
//   - In some seeds users are clients of servers: they draw request ids in the eras of lanes (ids).
//     Eras are short, and late copies of requests come when a lane gets a shard back. In some of
//     these seeds users confirm that they have an answer, and the server removes it.
//   - In some seeds users make calls of entities that kill the process that makes them (killer).
//     The owner sets such a call aside after a few deaths. It does not set a call aside too early.
//   - In some seeds workers have versions and pin the runs that they start. Deploys take all
//     workers of a version away for a while (pin).
//   - In some seeds messages between shards, dead tasks, remembered answers and settings are
//     damaged (damage). Operators remove such dead tasks and restore such settings.
//
// Two seeds in three have faults that last or that come from outside (hardship). Commits above a
// number of bytes time out or are refused (size). The store refuses rows of an address until
// everything else has ended (lasting). A lane gets more input at the same time than it has room
// for, and reports as large as its budget (bounds). The store's clock jumps, and machines are
// suspended (clockwork). No build can read a row, or only the newer of two builds can (rows). Users
// use a request id twice, and nodes forget old ids (ids). A node believes wrongly that another node
// has died (death). Other executions have to end while rows are refused, and lanes have to keep
// within their bytes.
//
// The simulator also applies every accepted commit to a ledger, which checks the invariants
// immediately, each under its number. The file internal/archtest/testdata/invariants.txt has the
// numbers E1 … and those numbers L1 … that concern entities. Package lane has the other numbers L.
// The simulator checks every effect (an answer, a call to a worker, mail) against the ledger: its
// cause must be durable. After a while all faults end, and everything that is open must end in
// bounded virtual time. Then the simulator compares the store with the ledger. Everything that a
// node has acknowledged must be in the store.
//
// The same seed gives the same trace, byte for byte. SIM_SEED=n go test ./internal/sim -run
// TestSeeds -v prints it. Package scenario has the table of features; -features=list prints it, and
// -features=lending,-entities turns features on or off in all seeds.
package sim
