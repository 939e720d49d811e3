// Package sim runs a cluster of three nodes on one shared store in virtual time, in one goroutine,
// from a seed.
//
// The simulator has one package for each idea, and imports go in one direction:
//
//	kernel    virtual time, scheduler, random numbers, trace
//	scenario  what a seed decides before the first event: features, plan, programs, settings
//	oracle    what has to hold: the expected content of the store, the checks of facts and effects
//	disk      the store behind a faulty connection
//	worker    workers that run programs and calls of entities
//	cluster   processes, nodes, lanes, boards, leases and links
//	workload  users, operators and faults
//	sim       Run, the tests, and the known seeds
//
// Programs are in scenario and not in workload, because the oracle runs them too: it checks every
// history against its program. The cluster imports the oracle, and not the other way round, because
// the oracle only listens: the disk and the nodes tell it about commits and effects, and it never
// asks them. A feature usually has a file of the same name in several packages: what the seed
// decides (scenario), what must hold (oracle), what a node does (cluster), what users do
// (workload). Below, a name in parentheses is the name of such a file.
//
// The state machines are the production code: lane.Lane, cluster.Membership, and package core,
// which they use. An event heap replaces the goroutines, channels and clocks of production: a node
// is a set of machines whose inputs are events. Production code that waits (flow.Flow) runs as
// coroutines (thread), which wait for events. The store is in memory behind a faulty connection
// (disk). Calls take time or fail. The request or the reply of a call gets lost, or the request
// arrives long after the caller has given up. Nodes crash, pause past their lease, leave, come back
// and take over.
//
// The nodes run random programs (program, machine). What a program does next depends only on its
// history, so the simulator can check every history against its program. The workload has these
// main features:
//
//   - Programs run steps, some of them with retries. They set timers, let steps race against
//     timers, start children and watch other executions. They take signals, wait for promises, set
//     state and labels, and mark versions. They send signals and updates to other executions (call)
//     and wait for the answers. They end, fail, clean up and continue as new.
//   - Users start, signal, settle, cancel, update, query, pause, resume, terminate and await, with
//     and without request ids, from any node (user, talk).
//   - Users fork, import, retry, reset and delete runs (past). Some of the new runs start with an
//     edited result. The old run may be in any state: it may have open updates, state, labels or a
//     pause.
//   - Some seeds have tasks (tasks). Users submit them and programs schedule them. Task workers
//     (hand) come and go, hang, report late and twice. The board is the production code. Nodes ask
//     each other about claims by messages that get lost, arrive late or arrive twice (asking). In
//     more than a third of these seeds nodes lend each other slots of their workers (lend), with
//     the machines of engine/loan.
//   - In one seed in three the nodes delete closed runs and dead tasks by age (retention). A lane
//     removes a closed run after the retention of the run, or after the retention of the lane if
//     the run states none. Each node sweeps the dead tasks of its shards.
//   - Half of the seeds with retention also have tasks. In these seeds users also submit many tasks
//     in one request. In most of these seeds users requeue dead tasks, some of them with another
//     input. Users also undo requeues, and purge dead tasks (dead).
//   - Most of the seeds with retention and tasks also have limits, rates, breakers and paused
//     queues (flow, settings, gate). Users change limits and breakers, and pause queues, from any
//     node while tasks run. In most of the seeds with limits all nodes share limits and breakers.
//     The production code decides about tasks: package engine/flow, and the gates, the ledger of
//     permits and the breakers that it uses. Package engine/flow writes settings by
//     compare-and-set. A write may fail, its request or its reply may get lost, or it may take
//     effect late. Nodes may die between two writes (flow, share). In some of the seeds with shared
//     limits nodes lend workers too.
//   - About one seed in four has entities: accounts and desks (account). Clients, workflows and the
//     entities themselves call entities, with and without waiting for the answer. Entities call
//     other entities, start executions and send signals. Their workers (teller) come and go, hang,
//     report twice, or make only the first calls of a hand-over. Programs lock up to four accounts
//     together, call them, and unlock them. Some programs are canceled or terminated while they
//     hold locks, or end without unlocking (section). Operators take locks away. The oracle knows
//     for every state which hand-over produced it (holding). It follows each deed (a call of an
//     entity, with its own id) from its caller to its answer.
//   - In some seeds starts have options (terms): a delay, a time-out of the execution, or a policy
//     that repeats failed runs.
//   - In some seeds operators drop and skip signals that programs have not taken (drop).
//   - In some seeds workers are processes of their own and outlive the process that serves them
//     (outlive). When that process dies, the workers continue the bodies of steps that they run,
//     join another process, and tell it which runs they hold. Until these workers report, no other
//     worker may start a body that they still run.
//   - In some seeds nodes have different weights, and operators drain them (drain). In the end each
//     shard belongs to the node to which cluster.Membership assigns it.
//   - In some seeds the store has two shard groups, and nodes serve one of them or both (groups).
//     No node gets a shard of a group that it does not serve.
//   - In some seeds the leases of nodes have different lengths (leases).
//   - In some seeds states of accounts expire (expire).
//   - In some seeds users are clients of servers (ids). Each of their request ids names an era,
//     which is the time during which one lane owns the address. Eras are short. When a lane gets a
//     shard back, it gets late copies of requests that it has already served. In some of these
//     seeds users confirm that they have an answer, and the server removes the answer.
//   - In some seeds users send entities calls that kill the process that executes them (killer).
//     Owners must set such a call aside after a few deaths. No owner may set a call aside before
//     two owners have died while they executed only this call.
//   - In some seeds workers have versions and pin the runs that they start. Deploys take all
//     workers of a version away for a while (pin).
//   - In some seeds messages between shards, dead tasks, remembered answers and settings are
//     damaged (damage). Operators remove such dead tasks and restore such settings.
//
// Two seeds in three have faults that last or that come from outside (hardship). Commits above a
// number of bytes time out or are refused (size). The store refuses rows of an address until
// everything else has ended (lasting). A lane gets more input at one time than it has room for, or
// gets task reports that are as large as its budget (bounds). The store's clock jumps, and machines
// are suspended (clockwork). Some rows are unreadable for every build, and some only for the older
// of two builds (rows). Users use a request id twice, and nodes forget old ids (ids). A node
// believes wrongly that another node has died (feature false-death). While the store refuses rows
// of one address, the other executions must end. The memory of a lane must stay within its budget.
//
// The simulator also applies every accepted commit to the ledger of the oracle, which has the
// expected content of the store. The ledger checks the invariants immediately, and an error names
// the number of the invariant. The invariants of the engine (E1 …) and of entities (L1 …) are in
// the file internal/archtest/testdata/invariants.txt. The rules of lanes, which also have numbers
// L1 …, are in the doc of package lane. The simulator checks every effect (an answer, a call to a
// worker, mail) against the ledger: its cause must be durable. After a while all faults end, and
// everything that is open must end in bounded virtual time. Then the simulator compares the store
// with the ledger. Everything that a node has acknowledged must be in the store.
//
// The same seed gives the same trace, byte for byte. SIM_SEED=n go test ./internal/sim -run
// TestSeeds -v prints it. Package scenario has the table of features. The flag -features=list
// prints this table, and -features=lending,-entities turns features on or off in all seeds.
package sim
