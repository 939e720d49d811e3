// Package bench measures Perdure, and peers beside it, with the workloads that our bars are stated
// in. `perdure bench` and the module bench/, which adds the peers, are thin commands around it.
//
//	report, err := bench.Run(ctx, bench.Options{Places: …, Peers: …})
//	err = report.WriteMarkdown(os.Stdout)
//
// # Workloads
//
//   - throughput (W1): workflows of three sequential no-op steps, 64 clients that wait for the
//     result.
//   - latency (W2): the same with one client.
//   - fan-out (W3): one workflow, 1,000 parallel no-op steps.
//   - sequence (W6): one workflow, 2,000 sequential steps. Between any two of them runs a bare
//     commit: fence and one row, by hand, on a connection of its own. So both are measured in the
//     same moments, and their ratio does not depend on the machine's mood.
//   - recovery (W6): the process is killed at step 1,900 of 2,000; the time from its start to its
//     first new step.
//   - history: the cost of a step at 10, 1,000 and 10,000 steps of history, again beside bare
//     commits.
//   - tasks: no-op tasks that are submitted 5,000 at a time while 64 slots drain them, until all
//     are recorded as completed.
//   - limit: the same with a limit of 40 that all tasks share.
//   - pickup: one task at a time, 20 per second: how soon its code begins, from the moment at which
//     the call that submits it returns, and from that call. A task that begins before the
//     submission has returned counts as begun at once.
//   - open (W5): the same with 10, 1,000 and 100,000 sleeping executions, and the memory that each
//     of those costs.
//
// # Fairness
//
// Each measurement is a process of its own (this executable, started again; see [Child]) on a fresh
// database, so that no system pays for another's garbage. Systems take turns round by round, and
// ratios are formed within a round: noise hits both. The clients live in the process of the system,
// as embedded libraries are used; its processor time includes them.
//
// Processor time is exact everywhere, but what belongs to PostgreSQL, bytes and resident memory are
// read from /proc and are zero where there is none, or when the server runs on another machine.
package bench
