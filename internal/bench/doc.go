// Package bench measures Perdure and compares it with other systems (peers). It also checks the
// results against our bars: the numbers that Perdure must reach. `perdure bench` and the module
// bench/, which adds the peers, are thin commands around it.
//
//	report, err := bench.Run(ctx, bench.Options{Places: …, Peers: …})
//	err = report.WriteMarkdown(os.Stdout)
//
// # Workloads
//
//   - throughput: workflows of three sequential no-op steps, 64 clients that wait for the
//     result.
//   - latency: the workflows of throughput, with one client.
//   - calls: calls of entities. 64 clients wait for the answer, and each client has its own entity.
//   - two-calls: workflows that call two entities, one after the other. 64 clients wait for the
//     result, and each client has its own two entities.
//   - transfer: workflows that lock two entities, call both, and unlock them, with one client.
//   - transfers, hot-transfers, random-transfers: the workflows of transfer, with 64 clients. In
//     transfers each client has its own two entities, in hot-transfers all clients have the same
//     two, and in random-transfers each workflow draws two of 100.
//   - payload: the workflows of throughput, with an input and results of 64 KiB.
//   - fan-out: one workflow with 1,000 parallel no-op steps.
//   - sequence: one workflow with 2,000 sequential steps. Between any two steps, the benchmark
//     makes a bare commit: it writes a fence and one row, without an engine, on a separate
//     connection. So steps and bare commits are measured at the same time, and their ratio does not
//     depend on the load of the machine.
//   - recovery: the process is killed at step 1,900 of 2,000. The result is the time from the
//     start of the next process to its first new step.
//   - history: the cost of a step at 10, 1,000 and 10,000 steps of history, compared with bare
//     commits.
//   - timers: 10,000 workflows that sleep and are due within 0.6 s. The results are how late their
//     code continues.
//   - tasks: no-op tasks. A client submits 5,000 tasks per call while 64 slots execute them. The
//     measurement ends when the store records all of them as completed.
//   - limit: the tasks of the workload tasks, under a limit that lets 40 of them run at a time.
//   - backlog: as many tasks as in the workload tasks, but all of them are submitted before the
//     process that executes them is opened.
//   - pickup: one task at a time, 20 per second. The results are the times from the return of the
//     submission, and from its call, to the start of the code. For a task that starts before the
//     submission returns, the first time is 0.
//   - open: the cost of a step next to 10, 1,000 and 100,000 sleeping executions, and the
//     memory per sleeping execution.
//
// Throughput, latency, calls and tasks can also be measured behind a server ([DialPeer]): in that
// case clients, server and worker are three processes, and the report has the processor time of
// each.
//
// Throughput and latency can also be measured with servers that have a store of their own
// ([Peer.Server]). The benchmark starts such a server ([Program]) from a program that the user has
// installed, once per measurement. The clients and the worker are one process. These systems are
// measured once per run, because they do not use the stores that the other systems are measured on.
//
// # The bare committer
//
// [BarePeer] stores what throughput and latency store, without an engine. Each of its clients hands
// five records per workflow to a goroutine, one after the other: the start, three steps and the
// end. The goroutine stores all records that wait in one transaction: the guarded update of a
// fence, an insert of the runs that start, an insert of the steps, an update of the runs that end,
// and one flush. So the batches grow with the number of clients, as the batches of Perdure do. The
// bare committer has one index per table, and neither lists nor recovery. The rate of Perdure
// divided by the rate of the bare committer in the same round shows how much of the machine's
// capacity users of Perdure get. Perdure itself needs only four commits, because it stores the last
// outcome and the end of a workflow together.
//
// # Fairness
//
// Each measurement runs in a separate process (this executable, started again; see [Child]) on a
// fresh database, so that no system pays for the garbage of another. Systems take turns round by
// round, and ratios are computed within a round, so noise affects all systems alike. The clients
// run in the process of the system, as with any embedded library. So the processor time of the
// system includes the clients.
//
// The processor time of the process is exact on every system. The processor time of PostgreSQL, the
// bytes and the resident memory come from /proc. They are zero on systems without /proc, or if the
// server runs on another machine.
package bench
