// Package pool executes tasks for an engine: it is the worker's side of a queue.
//
// A Pool holds claims and executes as many of them at a time as it has slots, each on its own
// goroutine. A pool without claims has no goroutine and no timer. It promises:
//
//   - Every claim ends in one report, or in no report if the pool has lost the claim. This holds
//     whatever the handler does: panic, end its goroutine, or never return.
//   - The pool beats for all of its claims in one call, at a third of the shortest heartbeat
//     time-out among them. It does so for as long as it holds them: until the report is delivered,
//     and also while the pool drains.
//   - The engine gets what a task writes (states, log lines, streamed items) in the order in which
//     the task wrote it, once, and before the report of the attempt.
//   - Under pressure the pool stops asking for claims: when a level reaches its high mark, until
//     the level has come down to its low mark.
//   - Close takes no new claims, lets running tasks finish, and gives back the others without
//     consuming an attempt.
//
// The pool does not care about the types, payload settings and policies of tasks; see package
// perdure.
package pool
