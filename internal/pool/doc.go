// Package pool executes tasks for an engine: it is the worker's side of a queue.
//
// A Pool holds claims and executes as many of them at a time as it has slots, each on its own
// goroutine. A pool that stays without claims has no goroutine. It has a timer only while it waits
// for free memory. A pool promises:
//
//   - The pool sends one report for every claim, or none if it has lost the claim. This holds even
//     if the handler panics, ends its goroutine, or never returns.
//   - The pool tells its session when the code of a lost claim has ended.
//   - The pool sends one heartbeat for all of its claims in one call. It does so three times in the
//     shortest heartbeat time-out among the claims. It continues as long as it holds claims: until
//     their reports are delivered, and also while the pool drains.
//   - The engine gets what a task writes (states, log lines, streamed items) in the order in which
//     the task wrote it, once, and before the report of the attempt.
//   - Under pressure the pool stops asking for claims. It stops when the load or the memory reaches
//     its high mark, and starts again when the level has fallen to its low mark.
//   - Close takes no new claims, lets running tasks finish, and gives back the others without
//     consuming an attempt.
//
// The pool does not know the types, payload settings and policies of tasks; see package perdure.
package pool
